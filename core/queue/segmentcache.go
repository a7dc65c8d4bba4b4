package queue

import (
	"github.com/curfewmq/curfew/core/queue/spill"
	"github.com/curfewmq/curfew/core/slab"
)

// segmentState says where the records of a segment are. Segments move between memory and
// the spill file while the queue's turns go on. Bytes that a turn has read stay in memory
// until the turn ends: see endTurn.
type segmentState uint8

const (
	resident segmentState = iota // in memory
	evicting                     // in memory, and being written to the file
	spilled                      // in the file
	loading                      // in the file, and being read to memory
	cached                       // in both, unchanged
	dropped                      // nowhere: it has no records any more
)

// inMemory reports whether buf holds the records.
func (g *segment) inMemory() bool {
	return g.state == resident || g.state == evicting || g.state == cached
}

// onPage reports whether pages hold the records.
func (g *segment) onPage() bool { return g.state == spilled || g.state == loading || g.state == cached }

// paged returns how many bytes of the spill file the segment takes.
func (g *segment) paged() int { return g.pages.Count() * spill.PageSize }

// find returns the segment with a number, nil if the store has none.
func (s *store) find(n uint32) *segment {
	if n-s.first >= uint32(len(s.segments)) {
		return nil
	}
	return s.at(n)
}

// evictLast begins to spill the segment that was filled last, unless its messages will
// be delivered soon.
func (s *store) evictLast() {
	const headSegments = 2 // the first ones stay in memory, unless they are large
	g := s.at(s.last())
	if g.state != resident || cap(g.buf) < segmentSize {
		return // a small segment, or one that has moved already
	}
	p := s.file
	if len(s.segments) <= headSegments && cap(g.buf) == segmentSize || !p.shouldSpill(s) {
		s.shrink(g)
		return
	}
	g.state, g.io = evicting, p.Write(g.buf)
	s.evicting = append(s.evicting, s.last())
}

// shrink gives back memory that a segment does not need. The segment gets no more
// records, because a large record begins the next segment.
func (s *store) shrink(g *segment) {
	if len(g.buf) > segmentSize/2 || g.block != nil {
		return
	}
	smaller := slab.Alloc(len(g.buf))
	s.residentBytes += cap(smaller) - cap(g.buf)
	g.replace(smaller[:copy(smaller[:cap(smaller)], g.buf)])
}

// finishEviction waits for the write. If that failed, perhaps because the disk is full,
// the segment stays in memory; otherwise it is cached.
func (s *store) finishEviction(g *segment) {
	t := g.io
	g.state, g.io = resident, nil
	if t.Wait() != nil {
		s.file.Give(t.Pages)
		return
	}
	g.state, g.pages, g.size = cached, t.Pages, len(g.buf)
	s.spilled += g.paged()
}

// releaseSpilled releases the memory of segments that have been written to the file, and
// of those that were loaded, except for the last one. If the disk does not keep up, it
// waits for it.
func (s *store) releaseSpilled() {
	const maxEvicting = 2 // at a time
	for len(s.evicting) > 0 {
		if g := s.find(s.evicting[0]); g != nil && g.state == evicting {
			if len(s.evicting) <= maxEvicting && !g.io.Finished() {
				break
			}
			s.finishEviction(g)
			s.uncache(g)
		}
		s.evicting = s.evicting[1:]
	}
	for len(s.loaded) > 1 {
		if g := s.find(s.loaded[0]); g != nil {
			s.uncache(g)
		}
		s.loaded = s.loaded[1:]
	}
}

// uncache releases the memory of a cached segment.
func (s *store) uncache(g *segment) {
	if g.state == cached {
		s.releaseBuf(g)
		g.state = spilled
		s.away += int(g.live)
	}
}

func (s *store) releaseBuf(g *segment) {
	s.residentBytes -= cap(g.buf)
	g.replace(nil)
}

// load returns a segment whose messages are next. If need be, it reads the segment from
// the file.
func (s *store) load(n uint32) *segment {
	if g := s.at(n); g.buf != nil {
		return g
	}
	return s.loadSpilled(n)
}

func (s *store) loadSpilled(n uint32) *segment {
	g := s.at(n)
	s.startLoad(g)
	if err := s.awaitLoad(g); err != nil {
		s.file.fail(err)
	}
	s.loaded = append(s.loaded, n)
	s.prefetch(n + 1)
	return g
}

// startLoad begins to read a spilled segment.
func (s *store) startLoad(g *segment) {
	if g.state == spilled {
		g.state, g.io = loading, s.file.Load(g.pages, g.size)
		s.residentBytes += cap(g.io.Buf)
	}
}

// awaitLoad waits for a segment that is being read. It is spilled after an error.
func (s *store) awaitLoad(g *segment) error {
	t := g.io
	err := t.Wait()
	g.state, g.io, g.buf = cached, nil, t.Buf[:g.size]
	s.away -= int(g.live)
	if err != nil {
		s.uncache(g)
	}
	return err
}

// prefetch begins to read a segment that will probably be next. It releases the segment
// that was prefetched before, if that one is still not needed.
func (s *store) prefetch(n uint32) {
	if g := s.find(s.prefetched); n != s.prefetched && g != nil && g.state == loading {
		_ = s.awaitLoad(g) // its bytes are not needed
		s.uncache(g)
	}
	s.prefetched = n
	if g := s.find(n); g != nil {
		s.startLoad(g)
	}
}

// pin loads a segment that is about to change, and frees its pages.
func (s *store) pin(n uint32) {
	g := s.load(n)
	if g.state == evicting {
		s.finishEviction(g)
	}
	s.freePage(g)
	g.state = resident
}

// discard releases a segment's memory and its pages.
func (s *store) discard(g *segment) {
	switch g.state {
	case evicting:
		s.finishEviction(g)
	case loading:
		_ = s.awaitLoad(g) // its bytes are not needed
	}
	s.freePage(g)
	if g.inMemory() {
		s.releaseBuf(g)
	} else if g.state == spilled {
		s.away -= int(g.live)
	}
	g.state = dropped
}

// freePage gives back a segment's pages, if it has some.
func (s *store) freePage(g *segment) {
	if g.onPage() {
		s.file.Give(g.pages)
		s.spilled -= g.paged()
	}
}
