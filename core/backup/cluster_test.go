package backup

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/cluster"
	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// nodesBackup returns the backup of a node whose copies of two shards and the registry have an entry each. Without a number in about, it
// is that of the node, which has the only vote.
func nodesBackup(t *testing.T, about replicas.Copy) []byte {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "node")
	made, err := cluster.Make(dir, 2)
	must(t, err)
	for shard := range uint32(3) {
		log, err := made.Found(t.Context(), shard)
		must(t, err)
		must(t, log.Append(t.Context(), hook.Instant(7), []byte("a message")))
	}
	must(t, made.Finish(t.Context()))
	if about.Node == 0 {
		about.Node = made.Number()
	}
	logs, err := seg.ReadSnapshot(t.Context(), vfs.Dir(cluster.Folder(dir)))
	must(t, err)
	c := Of(Manifest{Version: "1.2.3", Node: "curfew@a:5680", Time: time.Unix(1e9, 0).UTC(), Copy: &about}, logs, nil)
	var b bytes.Buffer
	must(t, c.Write(t.Context(), &b, func(int64) error { return nil }))
	must(t, c.Close())
	return b.Bytes()
}

// The backup of a cluster becomes the folder of the first node of a new cluster, and nothing else.
func TestRestoreOfACluster(t *testing.T) {
	archive := nodesBackup(t, replicas.Copy{Address: "a:5680", Shards: 2, Format: 1})
	dir := filepath.Join(t.TempDir(), "data")
	m, reports, err := Restore(t.Context(), bytes.NewReader(archive), dir)
	must(t, err)
	if m.Format != 2 || m.Copy.Address != "a:5680" || len(reports) != 3 {
		t.Errorf("the manifest is %+v, with reports about %d logs", m, len(reports))
	}
	if names := namesIn(t, dir); !slices.Equal(names, []string{"LOCK", "cluster"}) {
		t.Errorf("there are %q", names)
	}
	must(t, cluster.CheckFolder(dir, true))
	if err := cluster.CheckFolder(dir, false); err == nil {
		t.Error("a single broker would start on it")
	}
	r, err := seg.NewReader(vfs.Dir(cluster.Folder(dir)))
	must(t, err)
	found := 0
	for _, shard := range r.Shards() {
		must(t, r.Read(t.Context(), shard, func(_ wlog.Index, _ *wlog.Header, entry []byte) error {
			found += bytes.Count(entry, []byte("a message"))
			return nil
		}))
	}
	must(t, r.Close())
	if found != 3 {
		t.Errorf("%d messages, want 3", found)
	}
}

// What is no whole copy of a cluster is refused, and leaves nothing.
func TestRestoreOfAClusterRefuses(t *testing.T) {
	whole := nodesBackup(t, replicas.Copy{Shards: 2})
	for _, tt := range []struct {
		name    string
		archive []byte
		want    string
	}{
		{"of a node without a vote", nodesBackup(t, replicas.Copy{Node: 99, Shards: 2}), "the node had no vote in it yet"},
		{"half of it", whole[:len(whole)/2], "it ends too early"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			_, _, err := Restore(t.Context(), bytes.NewReader(tt.archive), dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
			if names := namesIn(t, dir); len(names) > 0 {
				t.Errorf("%q stay", names)
			}
		})
	}
}
