package queue

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// Messages beyond a memory budget lie in a file, whole segments of them: those
// that were filled last, since what was filled first is handed out first. The
// file is no part of what is durable. It has no name, so that nothing is left of
// it when the process ends however it ends.

// spillFile is the file and which of its pages are in use.
type spillFile struct {
	file   *os.File
	budget int64

	mu   sync.Mutex // guards what follows
	free []int64    // pages given back
	size int64      // pages in the file
}

// pageSize is the size of a page: that of a segment.
const pageSize = segmentSize

var spill atomic.Pointer[spillFile]

// SpillTo makes every queue of the process write message bodies to a file in dir
// while queued messages hold more than budget bytes of memory. It is called once,
// before there are queues.
func SpillTo(dir string, budget int64) error {
	f, err := os.CreateTemp(dir, "bodies-*")
	if err != nil {
		return err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return err
	}
	spill.Store(&spillFile{file: f, budget: budget})
	return nil
}

// over reports whether a segment should go to the file.
func (p *spillFile) over() bool { return p != nil && used.Load() > p.budget }

// write puts a segment on a page. A disk that takes no more is no error: the
// segment stays in memory.
func (p *spillFile) write(b []byte) (page int64, ok bool) {
	page = p.take()
	if _, err := p.file.WriteAt(b, page*pageSize); err != nil {
		p.give(page)
		return 0, false
	}
	return page, true
}

// read fills b from a place in a page. What cannot be read back is as lost as
// memory that fails, and nothing can go on without it.
func (p *spillFile) read(b []byte, page, off int64) {
	if _, err := p.file.ReadAt(b, page*pageSize+off); err != nil {
		panic(fmt.Sprintf("curfew: message bodies cannot be read back: %v", err))
	}
}

func (p *spillFile) take() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		page := p.free[n-1]
		p.free = p.free[:n-1]
		return page
	}
	p.size++
	return p.size - 1
}

// give takes a page back. With the last one the disk gets its room back.
func (p *spillFile) give(page int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, page)
	if int64(len(p.free)) == p.size {
		p.free, p.size = nil, 0
		_ = p.file.Truncate(0) // room on the disk is all that is at stake
	}
}

// spillLast moves the segment that was filled last to the file, unless its
// messages are about to be handed out.
func (s *store) spillLast() {
	const few = 2 // segments at the head that are not worth it
	p := spill.Load()
	last := len(s.segments) - 1
	if last < few || !p.over() {
		return
	}
	g := &s.segments[last]
	if cap(g.buf) != segmentSize {
		return // a small one, or one record that is larger than a page
	}
	page, ok := p.write(g.buf)
	if !ok {
		return
	}
	g.page, g.filled = page+1, len(g.buf)
	s.unload(g)
}

// unload gives back the memory of a segment that is in the file.
func (s *store) unload(g *segment) {
	s.held -= cap(g.buf)
	freeSlab(g.buf)
	g.buf = nil
}

// load brings a segment back to memory: its messages are next. It stays in the
// file too, until its messages are gone or change.
func (s *store) load(n uint32) {
	g := s.at(n)
	if g.buf != nil {
		return
	}
	b := newSlab(segmentSize)
	spill.Load().read(b[:g.filled], g.page-1, 0)
	g.buf = b[:g.filled]
	s.held += cap(b)
	s.loaded = append(s.loaded, n)
}

// rest gives back the memory of segments that were loaded, but for the latest.
func (s *store) rest() {
	for len(s.loaded) > 1 {
		n := s.loaded[0]
		s.loaded = s.loaded[1:]
		if n-s.first < uint32(len(s.segments)) && s.at(n).buf != nil && s.at(n).page != 0 {
			s.unload(s.at(n))
		}
	}
}

// peek returns a record's bytes: they alias the segment, or are a copy when that
// is in the file.
func (s *store) peek(at slot) []byte {
	g := s.at(at.segment)
	if g.buf != nil {
		return g.buf[at.offset : at.offset+at.length]
	}
	b := make([]byte, at.length)
	spill.Load().read(b, g.page-1, int64(at.offset))
	return b
}

// keep brings a segment back to memory for good: it changes.
func (s *store) keep(n uint32) {
	s.load(n)
	if g := s.at(n); g.page != 0 {
		spill.Load().give(g.page - 1)
		g.page = 0
	}
}
