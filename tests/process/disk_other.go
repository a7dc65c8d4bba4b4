//go:build !linux

package process

import (
	"errors"
	"testing"
)

// SmallDisk returns an error: only Linux has the file systems that it makes.
func SmallDisk(*testing.T, int) (dir string, err error) {
	return "", errors.New("a small file system is made only on Linux")
}
