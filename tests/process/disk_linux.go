package process

import (
	"fmt"
	"syscall"
	"testing"
)

// SmallDisk returns a directory that is a file system of so many MiB until the end of the test. Its error says why there is none.
func SmallDisk(t *testing.T, mib int) (dir string, err error) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("curfew", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		return "", fmt.Errorf("a small file system cannot be mounted here, which needs root: %w", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, nil
}
