package store

import (
	"testing"

	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

// What is not the logs' leaves them what they need on a full disk.
func TestWhatElseLiesOnADiskLeavesTheLogsRoom(t *testing.T) {
	fsys := crashfs.New(1)
	fsys.SetSpace(1 << 30)
	room, err := HasSpace(fsys)
	if err != nil {
		t.Fatal(err)
	}
	const needed = 5 << 30 / 32 // as the disk alarm says: a file, and four of them
	for _, tc := range []struct {
		free int64
		want bool
	}{{1 << 30, true}, {needed + 1<<20, true}, {needed, false}, {1 << 20, false}} {
		fsys.SetSpace(tc.free)
		if got := room(); got != tc.want {
			t.Errorf("with %d bytes free: got %v, want %v", tc.free, got, tc.want)
		}
	}
}
