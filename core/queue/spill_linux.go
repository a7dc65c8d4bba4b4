package queue

import (
	"os"
	"syscall"
)

// openDirect opens a file a second time, to be read and written in whole pages
// without the system's cache. Where that cannot be it returns the file.
func openDirect(f *os.File) *os.File {
	if direct, err := os.OpenFile(f.Name(), os.O_RDWR|syscall.O_DIRECT, 0); err == nil {
		return direct
	}
	return f
}

// punchHole gives room on the disk back and leaves the file as long as it is.
func punchHole(f *os.File, off, size int64) error {
	const keepSize, punch = 1, 2
	return syscall.Fallocate(int(f.Fd()), keepSize|punch, off, size)
}
