package seg

import "github.com/curfewmq/curfew/core/wlog/vfs"

// segmentReader reads a segment from front to back in large pieces, of which it keeps
// what is asked for, and has the next one read meanwhile. It belongs to one
// goroutine and can be used for one segment after another.
type segmentReader struct {
	g    *segment
	buf  []byte // what it has
	from int64  // where in the file that begins
	next ahead
}

// ahead is a piece that is being read.
type ahead struct {
	buf  []byte
	off  int64         // where in the file it begins
	n    int           // how much it is
	err  error         // to be looked at when done is closed, as buf
	done chan struct{} // nil = nothing is being read
}

// piece is how much is read at a time: enough for the disk, and little enough to
// be in the processor's cache still when it is checked.
const piece = 512 << 10

// reset begins with another segment.
func (w *segmentReader) reset(g *segment) {
	w.rest()
	w.g, w.buf, w.from = g, w.buf[:0], 0
}

// rest waits for what is being read. Until then the file must stay open.
func (w *segmentReader) rest() {
	if w.next.done != nil {
		<-w.next.done
		w.next.done = nil
	}
}

// at returns what it has of the file from off on: n bytes or more. They are
// valid until the next call. The file must have that many; that is checked
// before memory is taken for them.
func (w *segmentReader) at(off int64, n int) ([]byte, error) {
	if off >= w.from && off+int64(n) <= w.from+int64(len(w.buf)) {
		return w.buf[off-w.from:], nil
	}
	if off+int64(n) > w.g.size {
		return nil, w.g.damage(off, "the file ends within an entry")
	}
	from := off / page * page
	had := w.keep(from)
	w.buf, w.from = w.buf[:had], from
	w.take()
	need := off + int64(n) - from
	if err := w.fill(int(min(roundUp(need, page), w.g.size-from))); err != nil {
		w.buf = w.buf[:0]
		return nil, err
	}
	w.readAhead(int(need))
	return w.buf[off-from:], nil
}

// keep moves what it has from off on to the front and returns how much that is.
func (w *segmentReader) keep(off int64) int {
	if off < w.from || off >= w.from+int64(len(w.buf)) {
		return 0
	}
	return copy(w.buf, w.buf[off-w.from:])
}

// take adds what was read meanwhile, if that is what comes next.
func (w *segmentReader) take() {
	pending := w.next.done != nil
	w.rest()
	end := w.from + int64(len(w.buf))
	if !pending || w.next.err != nil || w.next.off != end {
		return
	}
	had := len(w.buf)
	w.grow(had + w.next.n)
	copy(w.buf[had:], w.next.buf[:w.next.n])
}

// fill reads on until it has so much.
func (w *segmentReader) fill(size int) error {
	had := len(w.buf)
	if had >= size {
		return nil
	}
	w.grow(size)
	return w.g.read(w.buf[had:], w.from+int64(had))
}

// grow makes buf so long.
func (w *segmentReader) grow(size int) {
	if cap(w.buf) >= size {
		w.buf = w.buf[:size]
		return
	}
	bigger := vfs.Aligned(max(size, 2*piece))
	copy(bigger, w.buf)
	w.buf = bigger[:size]
}

// readAhead begins to read the next piece: as much as was just needed, since
// entries are often alike.
func (w *segmentReader) readAhead(needed int) {
	const most = 8 * piece
	a := &w.next
	a.off = w.from + int64(len(w.buf))
	a.n = int(min(roundUp(int64(min(max(needed, piece), most)), page), w.g.size-a.off))
	if a.n == 0 {
		return
	}
	if cap(a.buf) < a.n {
		a.buf = vfs.Aligned(a.n)
	}
	a.done = make(chan struct{})
	go a.read(w.g)
}

func (a *ahead) read(g *segment) {
	a.err = g.read(a.buf[:a.n], a.off)
	close(a.done)
}
