package queue

// Segments come and go between memory and the spill file while the queue's turns
// go on. What a turn has read stays where it is until the turn's end: memory is
// given back in rest alone.

// evictLast begins to move the segment that was filled last to the file, unless
// its messages are about to be handed out.
func (s *store) evictLast() {
	const few = 2 // segments at the head that are not worth it
	p := spill.Load()
	last := len(s.segments) - 1
	if last < few || !p.shouldSpill() {
		return
	}
	g := &s.segments[last]
	if cap(g.buf) != segmentSize {
		return // a small one, or one record that is larger than a page
	}
	g.moving = p.write(g.buf)
	s.evicting = append(s.evicting, s.last())
}

// releaseSpilled gives back the memory of segments that are on the disk now, and of those
// that were brought back, but for the latest. A disk that does not keep up is
// waited for.
func (s *store) releaseSpilled() {
	const most = 2 // segments that are being written
	for len(s.evicting) > 0 {
		if g := s.find(s.evicting[0]); g != nil && g.moving != nil {
			if len(s.evicting) <= most && !g.moving.finished() {
				break
			}
			s.finishEviction(g)
		}
		s.evicting = s.evicting[1:]
	}
	for len(s.loaded) > 1 {
		if g := s.find(s.loaded[0]); g != nil && g.buf != nil && g.page != 0 {
			s.unload(g)
		}
		s.loaded = s.loaded[1:]
	}
}

// find returns the segment of a number, nil if it is gone.
func (s *store) find(n uint32) *segment {
	if n-s.first >= uint32(len(s.segments)) {
		return nil
	}
	return s.at(n)
}

// finishEviction ends the writing of a segment: it is on its page, and in memory no more.
func (s *store) finishEviction(g *segment) {
	if s.written(g) {
		s.unload(g)
	}
}

// written waits until the writing of a segment has ended, and reports whether it
// has a page now.
func (s *store) written(g *segment) bool {
	t := g.moving
	<-t.done
	g.moving = nil
	if t.ok {
		g.page, g.filled = t.page+1, len(g.buf)
		s.spilled += pageSize
	}
	return t.ok
}

// unload gives back the memory of a segment that is in the file.
func (s *store) unload(g *segment) {
	s.residentBytes -= cap(g.buf)
	g.replace(nil)
}

// load brings a segment back to memory: its messages are next. It stays in the
// file too, until its messages are gone or change. Those after it are probably
// next then.
func (s *store) load(n uint32) {
	g := s.at(n)
	if g.buf != nil {
		return
	}
	s.fetch(g)
	if err := s.awaitLoad(g); err != nil {
		spill.Load().lack(err)
	}
	s.loaded = append(s.loaded, n)
	s.prefetch(n + 1)
}

// fetch begins to read a segment, unless that was done before.
func (s *store) fetch(g *segment) {
	if g.moving == nil {
		g.moving = spill.Load().fetch(g.page - 1)
		s.residentBytes += pageSize
	}
}

// awaitLoad waits for a segment that is being read. With an error it is not in memory.
func (s *store) awaitLoad(g *segment) error {
	t := g.moving
	<-t.done
	g.moving = nil
	g.buf = t.buf[:g.filled]
	if t.err != nil {
		s.unload(g)
	}
	return t.err
}

// prefetch begins to read a segment that will probably be next, if it is in the
// file. One that was expected in vain is given up.
func (s *store) prefetch(n uint32) {
	if g := s.find(s.prefetched); n != s.prefetched && g != nil && g.buf == nil && g.moving != nil {
		if s.awaitLoad(g) == nil {
			s.unload(g)
		}
	}
	s.prefetched = n
	if g := s.find(n); g != nil && g.buf == nil && g.page != 0 {
		s.fetch(g)
	}
}

// peek returns a whole record's bytes: they alias the segment, or are a copy when
// that is in the file or has them in two places.
func (s *store) peek(at slot) []byte {
	if at.flags&alike != 0 {
		return s.whole(at)
	}
	g := s.at(at.segment)
	if g.buf != nil {
		return g.buf[at.offset : at.offset+at.length]
	}
	b := make([]byte, at.length)
	spill.Load().read(b, (g.page-1)*pageSize+int64(at.offset))
	return b
}

// pin brings a segment back to memory for good: it changes.
func (s *store) pin(n uint32) {
	s.load(n)
	g := s.at(n)
	if g.moving != nil {
		s.written(g)
	}
	s.freePage(g)
}

// discard gives back a segment's memory and its page.
func (s *store) discard(g *segment) {
	switch {
	case g.moving != nil && g.buf != nil:
		s.written(g)
	case g.moving != nil:
		_ = s.awaitLoad(g) // it is not needed any more
	}
	if g.buf != nil {
		s.unload(g)
	}
	s.freePage(g)
}

// freePage gives back a segment's page, if it has one.
func (s *store) freePage(g *segment) {
	if g.page == 0 {
		return
	}
	spill.Load().give(g.page - 1)
	s.spilled -= pageSize
	g.page = 0
}
