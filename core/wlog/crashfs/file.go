package crashfs

import (
	"errors"
	"io"
	"io/fs"
	"slices"

	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// file is a file's contents, whatever its name.
type file struct {
	data      []byte  // as processes see them
	disk      []byte  // as they would be found after losing power
	pending   []write // not synced, in order
	allocated int64   // bytes
}

// write is a change to a file's contents: data at off.
type write struct {
	off  int64
	data []byte
}

func (w write) apply(to []byte) []byte {
	if len(w.data) == 0 {
		return to
	}
	if hole := w.off - int64(len(to)); hole > 0 {
		to = append(to, make([]byte, hole)...)
	}
	within := copy(to[w.off:], w.data)
	return append(to, w.data[within:]...)
}

// sectors cuts a write at the disk's sectors.
func (w write) sectors() []write {
	var pieces []write
	for len(w.data) > 0 {
		n := min(int64(len(w.data)), Sector-w.off%Sector)
		pieces = append(pieces, write{off: w.off, data: w.data[:n]})
		w = write{off: w.off + n, data: w.data[n:]}
	}
	return pieces
}

func (f *file) write(w write) {
	f.data = w.apply(f.data)
	f.pending = append(f.pending, w)
}

// handle is an open file. It implements [vfs.File].
type handle struct {
	fs     *FS
	f      *file
	name   string // it was opened by
	mode   vfs.Mode
	closed bool
}

func (h *handle) usable(op string) error {
	if h.closed {
		return &fs.PathError{Op: op, Path: h.name, Err: fs.ErrClosed}
	}
	if op != "read" && h.mode == vfs.Read {
		return &fs.PathError{Op: op, Path: h.name, Err: fs.ErrPermission}
	}
	return nil
}

// begin counts an operation, and returns why it fails.
func (h *handle) begin(name string, kind OpKind) error {
	if err := h.usable(name); err != nil {
		return err
	}
	return h.fs.op(kind, h.name)
}

func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.begin("read", OpRead); err != nil {
		return 0, err
	}
	n := copy(p, h.f.data[min(off, int64(len(h.f.data))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Writev implements [vfs.File]. If it fails, any of its sectors may be written.
func (h *handle) Writev(off int64, parts [][]byte) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.usable("write"); err != nil {
		return err
	}
	w := write{off: off, data: slices.Concat(parts...)}
	if err := h.fs.op(OpWrite, h.name); err != nil {
		if !errors.Is(err, errDark) {
			for _, piece := range h.fs.some(w.sectors()) {
				h.f.write(piece)
			}
		}
		return err
	}
	h.f.write(w)
	return nil
}

func (h *handle) Allocate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.begin("allocate", OpAllocate); err != nil {
		return err
	}
	had := int64(len(h.f.data))
	if size <= had {
		return nil
	}
	if err := h.fs.take(h.f, size-had); err != nil {
		return &fs.PathError{Op: "allocate", Path: h.name, Err: err}
	}
	h.f.write(write{off: had, data: zeros(size - had)})
	return nil
}

// noughts is what most writes of zeros have. Nothing writes to it.
var noughts = make([]byte, 1<<20)

// zeros returns zeros to be read.
func zeros(n int64) []byte {
	if n > int64(len(noughts)) {
		return make([]byte, n)
	}
	return noughts[:n:n]
}

// Sync implements [vfs.File]. If it fails, some of the writes are on the disk, and a second Sync does not write the others.
func (h *handle) Sync() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.usable("sync"); err != nil {
		return err
	}
	err := h.fs.op(OpSync, h.name)
	if h.fs.dark {
		return err // LosePower decides about the unsynced writes
	}
	for _, w := range h.f.pending {
		pieces := []write{w}
		if err != nil {
			pieces = h.fs.some(w.sectors())
		}
		for _, piece := range pieces {
			h.f.disk = piece.apply(h.f.disk)
		}
	}
	h.f.pending = nil
	return err
}

func (h *handle) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return &fs.PathError{Op: "close", Path: h.name, Err: fs.ErrClosed}
	}
	h.closed = true
	if h.mode == vfs.Lock {
		delete(h.fs.locked, h.name)
	}
	return nil
}
