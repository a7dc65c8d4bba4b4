package broker

import (
	"path/filepath"
	"testing"

	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// The size of a disk is known before the data directory exists, because the default of limits.disk-free depends on it.
func TestDiskSizeBeforeTheDirectoryIsThere(t *testing.T) {
	dir := t.TempDir()
	room, known := vfs.SpaceOf(vfs.Dir(dir))
	if !known {
		t.Skip("this system does not say how large a disk is")
	}
	if got := diskSize(filepath.Join(dir, "not", "there")); got != uint64(room.Total) || got == 0 {
		t.Errorf("got %d, want %d", got, room.Total)
	}
}
