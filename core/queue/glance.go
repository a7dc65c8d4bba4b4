package queue

import (
	"fmt"

	"github.com/curfewmq/curfew/core/queue/spill"
)

// pageCopy is a copy of a spilled segment, for looking at its messages. The segment is
// not loaded, so that the segments that consumers need soon stay in memory.
type pageCopy struct {
	segment uint32
	store   *store // the store of that segment; nil means that there is no copy
	buf     []byte
	reads   int // pages that were read
}

// glance decodes a record without loading its segment. The record is valid until the
// next glance, or until the queue does anything else. An error says that a spilled
// segment cannot be read; it does not stop the queue, which may never need the segment.
func (s *store) glance(at slot, c *pageCopy) (record, error) {
	g := s.at(at.segment)
	buf := g.buf
	if buf == nil || !g.inMemory() {
		if err := c.fill(s, at.segment); err != nil {
			return record{}, err
		}
		buf = c.buf
	}
	if at.flags&alike != 0 {
		head, props, body := partsAlike(buf, at)
		return recordOf(head, props, body, g.began, at.flags), nil
	}
	head, props, body := cutRecord(buf[at.offset:at.offset+at.length], at.flags)
	return recordOf(head, props, body, g.began, at.flags), nil
}

// fill copies a spilled segment, unless c has it already.
func (c *pageCopy) fill(s *store, n uint32) error {
	if c.store == s && c.segment == n && len(c.buf) > 0 {
		return nil
	}
	g := s.at(n)
	if cap(c.buf) < g.size {
		c.buf = make([]byte, max(g.size, spill.PageSize))
	}
	c.buf, c.store = c.buf[:g.size], nil
	c.reads++
	if err := s.file.Read(c.buf, &g.pages, 0); err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	c.store, c.segment = s, n
	return nil
}
