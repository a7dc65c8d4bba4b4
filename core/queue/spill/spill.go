// Package spill is a file for memory segments that do not fit the memory budget. A
// segment takes pages of the file, which it gives back; the disk space of free pages is
// returned in the background. The file promises no durability. It has no name, so it
// vanishes with the process, however that ends.
//
// The package does not know the contents of a segment, and does not decide when to write
// one.
package spill

import (
	"os"

	"github.com/curfewmq/curfew/core/slab"
)

// PageSize is the size of a page in bytes. A larger segment has several pages.
const PageSize = 256 << 10

// File is a file of pages. Any goroutine may call its methods.
type File struct {
	direct *os.File // pages.file, opened to read and write whole pages past the system's cache
	pages
}

// Open creates a file in a folder.
func Open(dir string) (*File, error) {
	f, err := os.CreateTemp(dir, "bodies-*")
	if err != nil {
		return nil, err
	}
	direct := openDirect(f)
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &File{direct: direct, pages: pages{file: f}}, nil
}

// Close closes the file. Reads and writes fail from then on, and pages that are given back
// are ignored: a hole would be made in the file that gets the descriptor.
func (f *File) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.background.Wait()
	if f.direct != f.file {
		_ = f.direct.Close()
	}
	return f.file.Close()
}

// IO is the writing or reading of a segment by a goroutine of its own. Until it has
// finished, Buf must not be changed; while a segment is read, it must not be read, either.
type IO struct {
	Buf   []byte
	Pages Pages
	done  chan struct{}
	err   error // set before done is closed
}

func begin(l Pages, buf []byte, at func(b []byte, off int64) (int, error)) *IO {
	t := &IO{Buf: buf, Pages: l, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		t.err = l.each(buf, 0, at)
	}()
	return t
}

// Wait waits until the segment is written or read, and returns its error.
func (t *IO) Wait() error {
	<-t.done
	return t.err
}

// Finished reports whether Wait returns at once.
func (t *IO) Finished() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// wholePages returns how many bytes of a slab are written and read for so many bytes of
// records: whole pages of the system, because only these get past its cache.
func wholePages(size int) int {
	const systemPage = 4 << 10
	if size <= PageSize {
		return PageSize
	}
	return (size + systemPage - 1) &^ (systemPage - 1)
}

// Write begins to write a slab of package slab to free pages. If that fails, the caller
// gives the pages back.
func (f *File) Write(slab []byte) *IO {
	n := wholePages(len(slab))
	return begin(f.take(n), slab[:n], f.direct.WriteAt)
}

// Load begins to read a segment of so many bytes into a new slab.
func (f *File) Load(l Pages, size int) *IO {
	n := wholePages(size)
	return begin(l, slab.Alloc(n)[:n], f.direct.ReadAt)
}

// Read fills b with a segment's bytes from an offset on.
func (f *File) Read(b []byte, l *Pages, from int) error { return l.each(b, from, f.file.ReadAt) }
