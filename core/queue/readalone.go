package queue

import "encoding/binary"

// readAlone is read for a message that is shown and stays. From a spilled segment it
// reads this record alone, and does not load the segment. The record aliases memory or is
// a copy.
func (s *store) readAlone(at slot) record {
	g := s.at(at.segment)
	switch {
	case g.buf != nil && g.inMemory():
		return s.read(at)
	case at.flags&alike == 0:
		head, props, body := cutRecord(s.peek(at), at.flags)
		return recordOf(head, props, body, g.began, at.flags)
	}
	// The slot's length is that of the whole record with its properties, so this reads
	// more bytes than the record has in the segment.
	b := make([]byte, min(int(at.length), g.size-int(at.offset)))
	s.file.read(b, &g.pages, int(at.offset))
	n := headSize(b, at.flags)
	from := int(binary.LittleEndian.Uint32(b[n:]))
	prefix := make([]byte, min(binary.MaxVarintLen64, g.size-from))
	s.file.read(prefix, &g.pages, from)
	size, l := binary.Uvarint(prefix)
	props := make([]byte, size)
	s.file.read(props, &g.pages, from+l)
	return recordOf(b[:n], props, b[n+4:][:int(at.length)-n-l-len(props)], g.began, at.flags)
}
