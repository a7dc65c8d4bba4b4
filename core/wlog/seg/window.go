package seg

// window reads a segment in large pieces, of which it keeps one. It belongs to
// one goroutine and can be used for one segment after another.
type window struct {
	g    *segment
	buf  []byte // the piece
	from int64  // where in the file it begins
}

// piece is how much is read at a time: enough for the disk, and little enough to
// be in the processor's cache still when it is checked.
const piece = 512 << 10

func (w *window) reset(g *segment) {
	w.g, w.buf, w.from = g, w.buf[:0], 0
}

// at returns what it has of the file from off on: n bytes or more. They are
// valid until the next call. The file must have that many; that is checked
// before memory is taken for them.
func (w *window) at(off int64, n int) ([]byte, error) {
	if off >= w.from && off+int64(n) <= w.from+int64(len(w.buf)) {
		return w.buf[off-w.from:], nil
	}
	if off+int64(n) > w.g.size {
		return nil, w.g.damage(off, "the file ends within an entry")
	}
	had := w.keep(off)
	want := int(min(int64(max(n, piece)), w.g.size-off))
	w.grow(want)
	w.buf, w.from = w.buf[:want], off
	if err := w.g.read(w.buf[had:], off+int64(had)); err != nil {
		w.buf = w.buf[:0]
		return nil, err
	}
	return w.buf, nil
}

// keep moves what it has from off on to the front and returns how much that is.
func (w *window) keep(off int64) int {
	if off < w.from || off >= w.from+int64(len(w.buf)) {
		return 0
	}
	return copy(w.buf, w.buf[off-w.from:])
}

func (w *window) grow(size int) {
	if cap(w.buf) >= size {
		return
	}
	bigger := make([]byte, max(size, 2*piece))
	copy(bigger, w.buf)
	w.buf = bigger
}
