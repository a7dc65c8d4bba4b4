package store

import (
	"testing"

	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

func TestLogs(t *testing.T) {
	k := open(t, crashfs.New(1), func(o *Options) { o.Shards = 2 })
	defer k.end()
	s := k.declare("q")
	in := s.Config().Storage.Shard
	before := k.Logs()[in]
	k.put(s, "a message")
	logs := k.Logs()
	if len(logs) != 3 {
		t.Fatalf("%d logs, want 3", len(logs))
	}
	for i, l := range logs {
		if int(l.Shard) != i {
			t.Errorf("log %d is of shard %d", i, l.Shard)
		}
		if l.Disk.Segments < 1 || l.Disk.Bytes < int64(l.LogBytes) {
			t.Errorf("shard %d: %d bytes in %d segments with %d bytes", i, l.LogBytes, l.Disk.Segments, l.Disk.Bytes)
		}
	}
	got := logs[in]
	if got.Latency.Count != before.Latency.Count+1 || got.Disk.Syncs.Count <= before.Disk.Syncs.Count || got.Live <= before.Live {
		t.Errorf("before a message got %+v, after it %+v", before, got)
	}
}
