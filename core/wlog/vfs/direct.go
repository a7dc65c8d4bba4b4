package vfs

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// directFile is a file that bypasses the system's cache where possible. A log is written once and read at most once, so cached pages would
// be the most expensive part of a write. The file is open twice: transfers of whole pages bypass the cache, all others use it. The system
// keeps both consistent. It implements [File].
type directFile struct {
	osFile          // uses the cache
	raw    *os.File // bypasses the cache; nil once the file system has refused that

	tail   [page]byte // the last page written
	tailAt int64      // offset of tail; 0 = unknown, because the first page is written only once
}

// page is the unit of direct transfers: their sizes, and their offsets in file and memory, are multiples of it.
const page = 4096

// stages are buffers in which the parts of a write are joined.
var stages = sync.Pool{New: func() any {
	b := Aligned(stageSize)
	return &b
}}

const stageSize = 1 << 20

// Aligned returns n bytes of memory at a page boundary, as direct transfers need them.
func Aligned(n int) []byte {
	b := make([]byte, n+page-1)
	off := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (page - 1)
	return b[off : off+n : off+n]
}

// suits reports whether a transfer can bypass the cache.
func suits(p []byte, off int64) bool {
	return (off|int64(len(p)))%page == 0 && uintptr(unsafe.Pointer(unsafe.SliceData(p)))%page == 0
}

func (f *directFile) ReadAt(p []byte, off int64) (int, error) {
	if f.raw != nil && suits(p, off) {
		if n, err := f.raw.ReadAt(p, off); err == nil {
			return n, nil
		}
	} else if f.raw != nil && len(p) >= stagedRead && f.readStaged(p, off) {
		return len(p), nil
	}
	return f.osFile.ReadAt(p, off)
}

// stagedRead is the size from which on a read bypasses the cache at any offset: copying the bytes is cheaper than pages in the cache.
const stagedRead = 64 << 10

// readStaged reads whole pages and copies the requested bytes. It reports false if it cannot, as near the end of the file.
func (f *directFile) readStaged(p []byte, off int64) bool {
	stage := stages.Get().(*[]byte)
	defer stages.Put(stage)
	for len(p) > 0 {
		skip := int(off % page)
		b := (*stage)[:min(stageSize, (skip+len(p)+page-1)/page*page)]
		if n, err := f.raw.ReadAt(b, off-int64(skip)); err != nil || n < len(b) {
			return false
		}
		n := copy(p, b[skip:])
		p, off = p[n:], off+int64(n)
	}
	return true
}

// Writev implements [File]. It writes its first page whole, including the bytes before off.
func (f *directFile) Writev(off int64, parts [][]byte) error {
	end := off
	for _, p := range parts {
		end += int64(len(p))
	}
	if f.raw == nil || end == off || end%page != 0 {
		f.tailAt = 0
		return f.osFile.Writev(off, parts)
	}
	err := f.transfer(off, parts)
	if errors.Is(err, syscall.EINVAL) {
		err = errors.Join(f.refused(), f.osFile.Writev(off, parts))
	}
	return err
}

func (f *directFile) transfer(off int64, parts [][]byte) error {
	b := *stages.Get().(*[]byte)
	defer stages.Put(&b)
	n := int(off % page)
	at := off - int64(n)
	if err := f.begin(b[:n], at); err != nil {
		return err
	}
	f.tailAt = 0
	for _, p := range parts {
		for len(p) > 0 {
			if n == len(b) {
				if _, err := f.raw.WriteAt(b, at); err != nil {
					return err
				}
				at += int64(n)
				n = 0
			}
			k := copy(b[n:], p)
			n += k
			p = p[k:]
		}
	}
	if _, err := f.raw.WriteAt(b[:n], at); err != nil {
		return err
	}
	f.tailAt = at + int64(n) - page
	copy(f.tail[:], b[n-page:n])
	return nil
}

// begin fills p with the beginning of a page.
func (f *directFile) begin(p []byte, at int64) error {
	if len(p) == 0 {
		return nil
	}
	if at == f.tailAt && at > 0 {
		copy(p, f.tail[:])
		return nil
	}
	_, err := f.osFile.ReadAt(p, at)
	return err
}

// refused gives up direct transfers for good.
func (f *directFile) refused() error {
	raw := f.raw
	f.raw = nil
	return raw.Close()
}

func (f *directFile) Allocate(size int64) error {
	err := f.allocate(size, f.raw)
	if f.raw != nil && errors.Is(err, syscall.EINVAL) {
		err = errors.Join(f.refused(), f.allocate(size, nil))
	}
	return err
}

func (f *directFile) Close() error {
	if f.raw == nil {
		return f.osFile.Close()
	}
	return errors.Join(f.raw.Close(), f.osFile.Close())
}
