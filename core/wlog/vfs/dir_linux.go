package vfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"unsafe"
)

// maxParts is how many parts one call writes. Nobody has more so far.
const maxParts = 8

// Writev implements [File] with one system call, unless the system writes less
// than it was given.
func (f osFile) Writev(off int64, parts [][]byte) error {
	for len(parts) > maxParts {
		if err := f.Writev(off, parts[:maxParts]); err != nil {
			return err
		}
		for _, p := range parts[:maxParts] {
			off += int64(len(p))
		}
		parts = parts[maxParts:]
	}
	n, err := f.pwritev(off, parts)
	if err != nil {
		return &fs.PathError{Op: "write", Path: f.Name(), Err: err}
	}
	for _, p := range parts {
		done := min(n, len(p))
		n -= done
		off += int64(done)
		if done == len(p) {
			continue
		}
		if _, err := f.WriteAt(p[done:], off); err != nil {
			return err
		}
		off += int64(len(p) - done)
	}
	return nil
}

func (f osFile) pwritev(off int64, parts [][]byte) (int, error) {
	var vector [maxParts]syscall.Iovec
	count := 0
	for _, p := range parts {
		if len(p) > 0 {
			vector[count].Base = &p[0]
			vector[count].SetLen(len(p))
			count++
		}
	}
	if count == 0 {
		return 0, nil
	}
	for {
		// The system call takes the offset in two halves, of which 64-bit systems
		// use the first for all of it.
		n, _, errno := syscall.Syscall6(syscall.SYS_PWRITEV, f.Fd(), uintptr(unsafe.Pointer(&vector)),
			uintptr(count), uintptr(off), uintptr(off>>halfBits), 0)
		if errno == 0 {
			return int(n), nil
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// halfBits is 32 where a uintptr has 32 bits. Where it has 64 the upper half is
// shifted out by the kernel.
const halfBits = 32

// reserve finds blocks for the file up to size, or says at once that there are
// not enough. Not every file system can.
func (f osFile) reserve(size int64) error {
	err := ignoringInterrupts(func() error { return syscall.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return nil
	}
	return err
}

// Sync implements [File]: data, and what of the rest is needed to find it.
func (f osFile) Sync() error {
	err := ignoringInterrupts(func() error { return syscall.Fdatasync(int(f.Fd())) })
	if err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

func ignoringInterrupts(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// openDirect opens f a second time, for direct transfers. File systems that know
// of none refuse; f does then.
func openDirect(f *os.File, flag int) File {
	raw, err := os.OpenFile(f.Name(), flag&^(os.O_CREATE|os.O_EXCL)|syscall.O_DIRECT, 0)
	if err != nil {
		return osFile{f}
	}
	return &directFile{osFile: osFile{f}, raw: raw}
}
