package cluster

import (
	"slices"

	"github.com/curfewmq/curfew/core/wlog/quorum"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Describe returns a function that writes the entries of the logs in a folder as text; body does that for entries of shards. In a node's
// folder the logs hold a replica's records, and the shards' entries are inside these.
func Describe(folder vfs.FS, body seg.Decode) (seg.Decode, error) {
	files, err := folder.List()
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(files, func(f vfs.Stat) bool { return f.Name == identityFile }) {
		return quorum.Describe(body), nil
	}
	return body, nil
}
