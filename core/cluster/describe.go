package cluster

import (
	"slices"

	"github.com/curfewmq/curfew/core/wlog/quorum"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Describe returns what writes the entries of the logs in a folder as text, if body does that for those of shards. Those in the folder of a
// node are not the shards' own, but have them.
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
