package vfs

import (
	"io/fs"
	"math"
	"syscall"
)

var (
	_ Spacious = Dir("")
	_ Spacious = (*Held)(nil)
)

// Space implements [Spacious].
func (d Dir) Space() (Space, error) {
	var st syscall.Statfs_t
	if err := ignoringInterrupts(func() error { return syscall.Statfs(string(d), &st) }); err != nil {
		return Space{}, &fs.PathError{Op: "statfs", Path: string(d), Err: err}
	}
	block := uint64(max(st.Bsize, 1))
	return Space{Path: string(d), Free: blocks(st.Bavail, block), Total: blocks(st.Blocks, block)}, nil
}

// blocks returns the bytes of n blocks, at most the maximum of an int64.
func blocks(n, size uint64) int64 {
	if n > math.MaxInt64/size {
		return math.MaxInt64
	}
	return int64(n * size)
}
