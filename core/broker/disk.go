package broker

import (
	"path/filepath"

	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// diskSize returns the size of the disk that dir is on, or will be on once it is created; 0 = unknown.
func diskSize(dir string) uint64 {
	for {
		if room, known := vfs.SpaceOf(vfs.Dir(dir)); known {
			return uint64(max(room.Total, 0))
		}
		above := filepath.Dir(dir)
		if above == dir {
			return 0
		}
		dir = above
	}
}
