package seg

import "github.com/curfewmq/curfew/core/wlog/vfs"

// segmentReader reads a segment from front to back in large pieces, and reads the next piece ahead in the background. It belongs to one
// goroutine, and can be used for one segment after another.
type segmentReader struct {
	g    *segment
	buf  []byte
	from int64 // where buf begins in the file
	next ahead
}

// ahead is the piece that is read ahead.
type ahead struct {
	buf  []byte
	off  int64         // in the file
	n    int           // bytes
	err  error         // valid once done is closed, like buf
	done chan struct{} // nil = nothing is being read
}

// piece is how many bytes are read at a time: enough to keep the disk busy, and few enough to be still in the processor's cache when their
// checksums are computed.
const piece = 512 << 10

// reset begins another segment.
func (r *segmentReader) reset(g *segment) {
	r.wait()
	r.g, r.buf, r.from = g, r.buf[:0], 0
}

// wait waits for the read-ahead. Until then the file must stay open.
func (r *segmentReader) wait() {
	if r.next.done != nil {
		<-r.next.done
		r.next.done = nil
	}
}

// at returns n bytes or more of the file from off on, valid until the next call. If the file has fewer, at returns damage before it
// allocates memory.
func (r *segmentReader) at(off int64, n int) ([]byte, error) {
	if off >= r.from && off+int64(n) <= r.from+int64(len(r.buf)) {
		return r.buf[off-r.from:], nil
	}
	if off+int64(n) > r.g.size {
		return nil, r.g.damage(off, "the file ends within an entry")
	}
	from := off / page * page
	had := r.keep(from)
	r.buf, r.from = r.buf[:had], from
	r.take()
	need := off + int64(n) - from
	if err := r.fill(int(min(roundUp(need, page), r.g.size-from))); err != nil {
		r.buf = r.buf[:0]
		return nil, err
	}
	r.readAhead(int(need))
	return r.buf[off-from:], nil
}

// keep moves the bytes from off on to the front of buf, and returns their number.
func (r *segmentReader) keep(off int64) int {
	if off < r.from || off >= r.from+int64(len(r.buf)) {
		return 0
	}
	return copy(r.buf, r.buf[off-r.from:])
}

// take appends the piece that was read ahead, if it comes next.
func (r *segmentReader) take() {
	pending := r.next.done != nil
	r.wait()
	end := r.from + int64(len(r.buf))
	if !pending || r.next.err != nil || r.next.off != end {
		return
	}
	had := len(r.buf)
	r.grow(had + r.next.n)
	copy(r.buf[had:], r.next.buf[:r.next.n])
}

// fill reads on until buf has size bytes.
func (r *segmentReader) fill(size int) error {
	had := len(r.buf)
	if had >= size {
		return nil
	}
	r.grow(size)
	return r.g.read(r.buf[had:], r.from+int64(had))
}

func (r *segmentReader) grow(size int) {
	if cap(r.buf) >= size {
		r.buf = r.buf[:size]
		return
	}
	bigger := vfs.Aligned(max(size, 2*piece))
	copy(bigger, r.buf)
	r.buf = bigger[:size]
}

// readAhead begins to read the next piece. It is as long as the bytes just needed, because successive entries are often of similar size.
func (r *segmentReader) readAhead(needed int) {
	const most = 8 * piece
	a := &r.next
	a.off = r.from + int64(len(r.buf))
	a.n = int(min(roundUp(int64(min(max(needed, piece), most)), page), r.g.size-a.off))
	if a.n == 0 {
		return
	}
	if cap(a.buf) < a.n {
		a.buf = vfs.Aligned(a.n)
	}
	a.done = make(chan struct{})
	go a.read(r.g)
}

func (a *ahead) read(g *segment) {
	a.err = g.read(a.buf[:a.n], a.off)
	close(a.done)
}
