//go:build unix

package process

import (
	"os"
	"syscall"
)

// lock waits until no other process has locked a file, which it makes.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close() // the lock's error says more
		return nil, err
	}
	return func() { _ = f.Close() }, nil // which unlocks it
}
