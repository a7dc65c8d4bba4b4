package spill

import (
	"os"
	"syscall"
)

// openDirect opens a file again, to transfer whole pages past the system's cache. It
// returns f where the file system cannot do that.
func openDirect(f *os.File) *os.File {
	if direct, err := os.OpenFile(f.Name(), os.O_RDWR|syscall.O_DIRECT, 0); err == nil {
		return direct
	}
	return f
}

// punchHole returns disk space to the file system. The file stays as long as it is.
func punchHole(f *os.File, off, size int64) error {
	const keepSize, punch = 1, 2
	return syscall.Fallocate(int(f.Fd()), keepSize|punch, off, size)
}
