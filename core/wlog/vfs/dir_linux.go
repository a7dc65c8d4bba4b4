package vfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"unsafe"
)

// maxParts is how many parts one system call writes; the log has three.
const maxParts = 8

// Writev implements [File] with one system call, unless there are many parts or the system writes only some of the bytes.
func (f osFile) Writev(off int64, parts [][]byte) error {
	if len(parts) > maxParts {
		return f.writeEach(off, parts)
	}
	n, err := f.pwritev(off, parts)
	if err != nil {
		return &fs.PathError{Op: "write", Path: f.Name(), Err: err}
	}
	for i, p := range parts {
		off += int64(len(p))
		if n -= len(p); n < 0 {
			if _, err := f.WriteAt(p[len(p)+n:], off+int64(n)); err != nil {
				return err
			}
			return f.writeEach(off, parts[i+1:])
		}
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
		// The system call takes the offset in two halves; 64-bit systems use only the first.
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

// halfBits is 32 for both sizes of uintptr: with 64 bits the kernel shifts out the upper half.
const halfBits = 32

// reserve reserves blocks for the file up to size, or fails at once if there are too few. It does nothing where the file system cannot do
// that.
func (f osFile) reserve(size int64) error {
	err := ignoringInterrupts(func() error { return syscall.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return nil
	}
	return err
}

// Sync implements [File]. It syncs the data and the metadata that is needed to read it.
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

// openDirect opens f a second time, for direct transfers. On file systems without them it returns f alone.
func openDirect(f *os.File, flag int) File {
	raw, err := os.OpenFile(f.Name(), flag&^(os.O_CREATE|os.O_EXCL)|syscall.O_DIRECT, 0)
	if err != nil {
		return osFile{f}
	}
	return &directFile{osFile: osFile{f}, raw: raw}
}
