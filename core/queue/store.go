package queue

import (
	"bytes"
	"encoding/binary"

	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/queue/spill"
	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/sdk/hook"
)

// segment is a memory segment: records one after the other. It begins small and grows by
// copying until it has a slab of segmentSize. A record that is larger has a segment to
// itself.
type segment struct {
	buf   []byte
	block *block.Block // of buf, once buf may have other owners; nil = it has none
	began hook.Instant
	live  uint32 // records not freed
	bytes uint32 // their bytes

	state segmentState
	pages spill.Pages // in the spill file, while spilled, loading or cached
	size  int         // bytes of the records on pages
	io    *spill.IO   // while evicting or loading
}

const (
	firstSegment = 1 << 10
	segmentSize  = spill.PageSize
)

// store holds the records of one queue. The zero value is empty and holds no memory.
// It belongs to the queue's turn.
type store struct {
	segments      []segment
	first         uint32   // number of segments[0]
	residentBytes int      // bytes of all segments in memory
	spilled       int      // bytes of all segments in the spill file
	live          int      // bytes of records not freed
	persistent    int      // records of persistent messages not freed
	away          int      // records not freed that are in the spill file only
	loaded        []uint32 // numbers of segments that became cached, in that order
	evicting      []uint32 // numbers of segments whose eviction began, in that order
	prefetched    uint32   // number of the segment that was prefetched last
	shared        shared
	file          *spillFile // for segments beyond the memory budget; nil = there is none
	cold          bool       // an exchange holds the messages
}

// shared locates the properties that were stored last in a segment, for the next records
// to refer to. Their bytes stay valid: only strategy data changes in a segment before it
// is empty.
type shared struct {
	segment, offset uint32
	size            int // of the properties; 0 = there are none
}

// worthSharing is the least size of properties that consecutive records share.
const worthSharing = 24

func (s *store) at(n uint32) *segment { return &s.segments[n-s.first] }

// add stores a message and returns its slot.
func (s *store) add(now hook.Instant, m *Message, k strategyData, flags slotFlags) slot {
	size := recordSize(m, flags)
	n := s.segmentFor(size, now, now)
	g := s.at(n)
	off := len(g.buf)
	g.buf = appendHead(g.buf, age(now, g.began), m, k, flags)
	flags |= s.appendProps(n, g, m.Props)
	g.buf = append(g.buf, m.Body...)
	at := slot{segment: n, offset: uint32(off), length: uint32(size), flags: flags}
	s.count(g, at)
	return at
}

// appendProps appends the properties of a record, or the offset of the same properties.
// It returns the flag alike for an offset, else 0.
func (s *store) appendProps(n uint32, g *segment, props []byte) slotFlags {
	h := &s.shared
	if h.size > 0 && h.segment == n && h.size == len(props) {
		if _, at := binary.Uvarint(g.buf[h.offset:]); bytes.Equal(g.buf[int(h.offset)+at:][:h.size], props) {
			g.buf = binary.LittleEndian.AppendUint32(g.buf, h.offset)
			return alike
		}
	}
	if len(props) >= worthSharing {
		*h = shared{segment: n, offset: uint32(len(g.buf)), size: len(props)}
	}
	g.buf = binary.AppendUvarint(g.buf, uint64(len(props)))
	g.buf = append(g.buf, props...)
	return 0
}

// put appends a whole record to a segment, and returns the flags of the stored record.
func (s *store) put(n uint32, record []byte, flags slotFlags) slotFlags {
	g := s.at(n)
	flags &^= alike
	head, props, body := cutRecord(record, flags)
	if len(props) < worthSharing {
		g.buf = append(g.buf, record...)
		return flags
	}
	g.buf = append(g.buf, head...)
	flags |= s.appendProps(n, g, props)
	g.buf = append(g.buf, body...)
	return flags
}

// addWhole stores a whole record of a message that entered the queue at entered. If it
// begins a segment, ages there count from began, which is not later than entered.
func (s *store) addWhole(began, entered hook.Instant, record []byte, flags slotFlags) slot {
	n := s.segmentFor(len(record), began, entered)
	g := s.at(n)
	at := slot{segment: n, offset: uint32(len(g.buf)), length: uint32(len(record))}
	at.flags = s.put(n, record, flags)
	binary.LittleEndian.PutUint32(g.buf[int(at.offset)+flags.strategyDataSize():], age(entered, g.began))
	s.count(g, at)
	return at
}

// count counts a record that was added.
func (s *store) count(g *segment, at slot) {
	g.live++
	g.bytes += at.length
	s.live += int(at.length)
	s.persistent += at.flags.persistent()
}

// restore stores a record that peek returned, of a message that entered the queue at
// entered.
func (s *store) restore(entered hook.Instant, record []byte, flags slotFlags) slot {
	at := s.addWhole(entered, entered, record, flags)
	s.releaseSpilled() // a replay has no turns, whose ends would do this
	return at
}

// free removes a record. Without records, the segment is dropped, or emptied if it is the
// one being filled.
func (s *store) free(at slot) {
	g := s.at(at.segment)
	g.live--
	g.bytes -= at.length
	s.live -= int(at.length)
	s.persistent -= at.flags.persistent()
	if !g.inMemory() {
		s.away--
	}
	if g.live > 0 {
		return
	}
	if at.segment == s.last() && g.state == resident && cap(g.buf) <= segmentSize {
		g.empty() // the segment being filled: start over in warm memory
		s.shared = shared{}
		return
	}
	s.drop(g)
}

// drop releases a segment without records.
func (s *store) drop(g *segment) {
	s.discard(g)
	gone := 0
	for gone < len(s.segments) && s.segments[gone].state == dropped {
		gone++
	}
	s.segments = s.segments[gone:]
	s.first += uint32(gone)
}

// release drops all segments; no record may be used afterwards.
func (s *store) release() {
	for i := range s.segments {
		s.discard(&s.segments[i])
	}
	*s = store{first: s.first + uint32(len(s.segments)), file: s.file, cold: s.cold}
}

// sparse reports whether most bytes of the segments, in memory and in the spill file, are
// those of removed records. For an example see compact.
func (s *store) sparse() bool { return s.residentBytes+s.spilled > 4*s.live+sparseFloor }

const sparseFloor = 4 << 20

// last returns the number of the segment being filled.
func (s *store) last() uint32 { return s.first + uint32(len(s.segments)) - 1 }

// mostlyGone reports whether the records of a segment should be moved, because it is less
// than half full.
func (s *store) mostlyGone(n uint32) bool {
	g := s.at(n)
	if g.onPage() {
		return g.bytes < spill.PageSize/2
	}
	return int(g.bytes) < cap(g.buf)/2
}

// move copies a record to the segment being filled, and frees the original.
func (s *store) move(at slot) slot {
	b, began := s.peek(at), s.at(at.segment).began
	moved := s.addWhole(began, enteredAt(b, began, at.flags), b, at.flags)
	s.free(at)
	return moved
}

// segmentFor returns the number of the last segment, with capacity for size bytes of a
// message that entered the queue at entered. If it has to begin another segment, ages
// there count from began. A segment takes only messages that entered within maxAge (24
// days) of its beginning, also when records are moved. Example: a record of day 70 in a
// segment of day 48 may be moved to another segment of day 48, but not to one of day 0.
func (s *store) segmentFor(size int, began, entered hook.Instant) uint32 {
	last := len(s.segments) - 1
	if last >= 0 {
		g := &s.segments[last]
		if len(g.buf) == 0 {
			g.began = began
		}
		if s.fits(g, size) && entered-g.began < maxAge && began >= g.began {
			return s.first + uint32(last)
		}
	}
	s.begin(max(size, s.nextSize()), began)
	return s.last()
}

// fits reports whether the last segment has capacity for size more bytes. It grows a
// small segment for them.
func (s *store) fits(g *segment, size int) bool {
	need := len(g.buf) + size
	if need <= cap(g.buf) {
		return true
	}
	if need > segmentSize || cap(g.buf) > segmentSize || g.buf == nil {
		return false
	}
	grown := cap(g.buf)
	for grown < need {
		grown *= 4
	}
	bigger := slab.Alloc(min(grown, segmentSize))
	s.residentBytes += cap(bigger) - cap(g.buf)
	bigger = bigger[:copy(bigger[:cap(bigger)], g.buf)]
	g.replace(bigger)
	return true
}

// block returns the block of a segment in memory, which callers retain.
func (s *store) block(n uint32) *block.Block {
	g := s.at(n)
	if g.block == nil {
		g.block = block.OfSlab(g.buf)
	}
	return g.block
}

// empty prepares a segment without records for new ones. Memory that has other owners
// is left to them.
func (g *segment) empty() {
	if g.block != nil && g.block.Shared() {
		g.replace(slab.Alloc(cap(g.buf)))
	}
	g.buf = g.buf[:0]
}

// replace exchanges the memory of a segment; nil = none.
func (g *segment) replace(b []byte) {
	if g.block == nil {
		slab.Free(g.buf)
	} else {
		g.block.Release()
	}
	g.buf, g.block = b, nil
}

// nextSize returns the size of the next segment: a whole slab if the queue filled half
// of one already.
func (s *store) nextSize() int {
	if s.live >= segmentSize/2 {
		return segmentSize
	}
	return firstSegment
}

// begin begins another segment. It drops an empty last one, which was retained only to be
// filled.
func (s *store) begin(size int, now hook.Instant) {
	if len(s.segments) > 0 {
		if g := s.at(s.last()); g.live == 0 && g.state == resident {
			s.drop(g)
		}
	}
	if len(s.segments) > 0 {
		s.evictLast()
	}
	b := slab.Alloc(size)
	s.residentBytes += cap(b)
	s.segments = append(s.segments, segment{buf: b[:0], began: now})
}

// read decodes a record.
func (s *store) read(at slot) record {
	head, props, body := s.parts(at)
	return recordOf(head, props, body, s.at(at.segment).began, at.flags)
}

// recordOf decodes a record from its parts.
func recordOf(head, props, body []byte, began hook.Instant, flags slotFlags) record {
	r := record{props: props, body: body}
	r.enqueued = enteredAt(head, began, flags)
	r.strategyData, head = cutStrategyData(head, flags)
	e := int(head[4])
	r.exchange = head[5 : 5+e]
	head = head[5+e:]
	k := int(head[0])
	r.key = head[1 : 1+k]
	if flags&hasBCC != 0 {
		r.bcc = head[1+k:]
	}
	return r
}

// parts returns the parts of a record, without the length of its properties.
func (s *store) parts(at slot) (head, props, body []byte) {
	if at.flags&alike == 0 {
		return cutRecord(s.peek(at), at.flags)
	}
	return partsAlike(s.load(at.segment).buf, at)
}

// partsAlike is parts for a record with the flag alike, in the bytes of its segment.
func partsAlike(segment []byte, at slot) (head, props, body []byte) {
	b := segment[at.offset:]
	n := headSize(b, at.flags)
	shared := segment[binary.LittleEndian.Uint32(b[n:]):]
	size, l := binary.Uvarint(shared)
	props = shared[l : l+int(size)]
	return b[:n], props, b[n+4:][:int(at.length)-n-l-len(props)]
}

// peek returns a whole record's bytes. They alias the segment; if the segment is spilled,
// or the properties are those of another record, they are a copy.
func (s *store) peek(at slot) []byte {
	if at.flags&alike != 0 {
		head, props, body := s.parts(at)
		w := append(make([]byte, 0, at.length), head...)
		w = append(binary.AppendUvarint(w, uint64(len(props))), props...)
		return append(w, body...)
	}
	g := s.at(at.segment)
	if g.buf != nil {
		return g.buf[at.offset : at.offset+at.length]
	}
	b := make([]byte, at.length)
	s.file.read(b, &g.pages, int(at.offset))
	return b
}

// setStrategyData changes the strategy data of a record, and reports whether they were
// different. A record without space for them is moved.
func (s *store) setStrategyData(at *slot, m strategyData) (changed bool) {
	flags := at.flags | m.flags()
	if flags&hasStrategyData == 0 {
		return false
	}
	if flags != at.flags {
		*at = s.enlarge(*at, flags)
	} else if s.read(*at).strategyData == m {
		return false
	}
	s.pin(at.segment)
	m.putTo(s.at(at.segment).buf[at.offset:], flags)
	return true
}

// enlarge moves a record, with space for the strategy data that flags name.
func (s *store) enlarge(at slot, flags slotFlags) slot {
	b, began := s.peek(at), s.at(at.segment).began
	entered := enteredAt(b, began, at.flags)
	before, size := at.flags.strategyDataSize(), flags.strategyDataSize()
	bigger := append(make([]byte, size, size+len(b)), b[before:]...)
	moved := s.addWhole(began, entered, bigger, flags)
	s.free(at)
	return moved
}
