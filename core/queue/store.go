package queue

import (
	"bytes"
	"encoding/binary"

	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A record is a message's bytes as its queue keeps them, in a segment:
//
//	 0        4       5     5+e          6+e            p           p+len
//	+--------+-------+-----+--------+---+--------------+-----------+------+
//	| age    | e     | exchange     | k | routing key  | props len | props| body
//	| u32    | u8    |     |        |u8 |              | uvarint   |      |
//	+--------+-------+-----+--------+---+--------------+-----------+------+
//
// age is when the message entered the queue, in milliseconds after the segment
// was begun. The record starts with its mark: with the slot flag hasState 8 bytes,
// and with hasDigest 8 more. With hasBCC the blind-copy keys follow the routing key: a count and,
// for each, length and key, the numbers as uvarints (headers can name keys that
// are longer than a routing key may be). The body is the rest.
//
// Messages in a row often have the same properties: what x-death says of thousands
// that expired in one second is the same to the letter. Where a record has those of
// an earlier one in its segment, their offset, a u32, stands for length and
// properties, and the slot has the flag alike. Its length is that of the whole
// record all the same, which is what the journal has.

// record is a record taken apart. Its slices alias the segment.
type record struct {
	exchange, key []byte
	bcc           []byte // count and keys as stored; nil = none
	props, body   []byte
	enqueued      hook.Instant
	strategyData
}

// strategyData is what a strategy keeps with a message: bytes of its own, and whose the
// deadline is. See [hook.Verdict].
type strategyData struct {
	state  int64
	digest uint64
}

// hasStrategyData are the flags of what is there of a mark: 8 bytes for each.
const hasStrategyData = hasState | hasDigest

func strategyDataOf(v *hook.Verdict) strategyData { return strategyData{v.State, v.Digest} }

// flags are those of a record that takes the mark.
func (m strategyData) flags() (f slotFlags) {
	if m.state != 0 {
		f |= hasState
	}
	if m.digest != 0 {
		f |= hasDigest
	}
	return f
}

// strategyDataSize is what a mark takes in a record with these flags.
func (f slotFlags) strategyDataSize() int {
	n := 0
	if f&hasState != 0 {
		n = 8
	}
	if f&hasDigest != 0 {
		n += 8
	}
	return n
}

// putTo writes as much of a mark to the start of b as there is room for in a record
// with these flags.
func (m strategyData) putTo(b []byte, flags slotFlags) {
	if flags&hasState != 0 {
		binary.LittleEndian.PutUint64(b, uint64(m.state))
		b = b[8:]
	}
	if flags&hasDigest != 0 {
		binary.LittleEndian.PutUint64(b, m.digest)
	}
}

// cutStrategyData takes the mark off the start of a record.
func cutStrategyData(b []byte, flags slotFlags) (m strategyData, rest []byte) {
	if flags&hasState != 0 {
		m.state = int64(binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	if flags&hasDigest != 0 {
		m.digest = binary.LittleEndian.Uint64(b)
		b = b[8:]
	}
	return m, b
}

// segment is a run of records. It begins small and grows by copying until it
// has a slab of segmentSize; a record that is larger has a segment to itself.
type segment struct {
	buf   []byte
	block *block.Block // that buf lies in, once somebody may hold on to it; nil = nobody does
	began hook.Instant
	live  uint32 // records not freed
	bytes uint32 // their bytes

	state    segmentState
	page     int64     // of the spill file, while spilled, loading or cached
	size     int       // bytes of records on that page
	transfer *transfer // while evicting or loading
}

const (
	firstSegment = 1 << 10
	segmentSize  = 256 << 10
)

// store keeps the records of one queue. The zero value is empty and holds no
// memory; it belongs to the queue's turn.
type store struct {
	segments      []segment
	first         uint32   // number of segments[0]
	residentBytes int      // bytes of all segments in memory
	spilled       int      // bytes of all in the spill file
	live          int      // bytes of records not freed
	loaded        []uint32 // segments that were brought back from the spill file
	evicting      []uint32 // segments that are on their way there, and may be gone since
	prefetched    uint32   // the last one that was read before it was asked for
	shared        shared
}

// shared is properties in the segment that is being filled, with their length, for
// the next records to refer to. The bytes before the end of a segment that is not
// empty do not change, but for marks.
type shared struct {
	segment, offset uint32
	size            int // of the properties; 0 = there are none
}

// worthSharing is the size of properties from which on they are not stored twice.
const worthSharing = 24

func (s *store) at(n uint32) *segment { return &s.segments[n-s.first] }

// add copies a message in and returns where it lies.
func (s *store) add(now hook.Instant, m *Message, k strategyData, flags slotFlags) slot {
	size := recordSize(m, flags)
	n := s.segmentFor(size, now)
	g := s.at(n)
	off := len(g.buf)
	g.buf = appendHead(g.buf, now, g.began, m, k, flags)
	flags |= s.appendProps(n, g, m.Props)
	g.buf = append(g.buf, m.Body...)
	g.live++
	g.bytes += uint32(size)
	s.live += size
	return slot{segment: n, offset: uint32(off), length: uint32(size), flags: flags}
}

// appendProps appends the properties of a record, or where they are. It returns the
// flag that says which.
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

// put appends a whole record that has no flag alike yet, and returns its flags.
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

// cutRecord divides a whole record: head is what is before the length of the
// properties.
func cutRecord(b []byte, flags slotFlags) (head, props, body []byte) {
	at := headSize(b, flags)
	size, n := binary.Uvarint(b[at:])
	from := at + n
	return b[:at], b[from : from+int(size)], b[from+int(size):]
}

// headSize returns where the length of the properties is in a record, or what
// stands for it.
func headSize(b []byte, flags slotFlags) int {
	at := flags.strategyDataSize() + 4
	at += 1 + int(b[at])
	at += 1 + int(b[at])
	if flags&hasBCC != 0 {
		at += keysLen(b[at:])
	}
	return at
}

// restore copies in a record that raw returned once, of a message that entered
// the queue at entered.
func (s *store) restore(entered hook.Instant, record []byte, flags slotFlags) slot {
	n := s.segmentFor(len(record), entered)
	g := s.at(n)
	off := len(g.buf)
	flags = s.put(n, record, flags)
	s.releaseSpilled() // there are no turns while queues are restored
	at := slot{segment: n, offset: uint32(off), length: uint32(len(record)), flags: flags}
	s.settle(g, entered, at)
	return at
}

// free marks a record as gone and gives back its segment when it was the last.
func (s *store) free(at slot) {
	g := s.at(at.segment)
	g.live--
	g.bytes -= at.length
	s.live -= int(at.length)
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

func (s *store) drop(g *segment) {
	s.discard(g)
	gone := 0
	for gone < len(s.segments) && s.segments[gone].state == dropped {
		gone++
	}
	s.segments = s.segments[gone:]
	s.first += uint32(gone)
}

// release gives back everything; no record may be used afterwards.
func (s *store) release() {
	for i := range s.segments {
		s.discard(&s.segments[i])
	}
	*s = store{first: s.first + uint32(len(s.segments))}
}

// sparse reports whether most of the memory, and of the spill file, belongs to
// records that are gone: their segments live on for the sake of a few that stay.
func (s *store) sparse() bool { return s.residentBytes+s.spilled > 4*s.live+sparseFloor }

const sparseFloor = 4 << 20

// last returns the number of the segment that is being filled.
func (s *store) last() uint32 { return s.first + uint32(len(s.segments)) - 1 }

// mostlyGone reports whether the records of a segment are worth moving.
func (s *store) mostlyGone(n uint32) bool {
	g := s.at(n)
	if g.onPage() {
		return g.bytes < pageSize/2
	}
	return int(g.bytes) < cap(g.buf)/2
}

// move copies a record out of its segment to one that is being filled.
func (s *store) move(at slot) slot {
	b := s.peek(at)
	entered := s.parse(at, b).enqueued
	n := s.segmentFor(len(b), s.at(at.segment).began)
	g := s.at(n)
	moved := at
	moved.segment, moved.offset = n, uint32(len(g.buf))
	moved.flags = s.put(n, b, at.flags)
	s.settle(g, entered, moved)
	s.free(at)
	return moved
}

// maxAge is how long a segment may be filled: ages are 32 bits of milliseconds.
const maxAge = hook.Instant(1) << 31 * 1e6

func (s *store) segmentFor(size int, now hook.Instant) uint32 {
	last := len(s.segments) - 1
	if last >= 0 {
		g := &s.segments[last]
		if len(g.buf) == 0 {
			g.began = now
		}
		if s.fits(g, size) && now-g.began < maxAge && now >= g.began {
			return s.first + uint32(last)
		}
	}
	s.begin(max(size, s.nextSize()), now)
	return s.last()
}

// fits makes room for size bytes in the last segment if it may grow that far.
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

// block returns the block that a segment in memory lies in, for somebody to hold on to.
func (s *store) block(n uint32) *block.Block {
	g := s.at(n)
	if g.block == nil {
		g.block = block.OfSlab(g.buf)
	}
	return g.block
}

// empty makes a segment without records ready for others. Memory that somebody holds
// on to is left to them.
func (g *segment) empty() {
	if g.block != nil && g.block.Shared() {
		g.replace(slab.Alloc(cap(g.buf)))
	}
	g.buf = g.buf[:0]
}

// replace gives a segment other memory; nil is none.
func (g *segment) replace(b []byte) {
	if g.block == nil {
		slab.Free(g.buf)
	} else {
		g.block.Release()
	}
	g.buf, g.block = b, nil
}

// nextSize is small for a queue that holds little and a whole slab for one that
// already filled one.
func (s *store) nextSize() int {
	if s.live >= segmentSize/2 {
		return segmentSize
	}
	return firstSegment
}

func (s *store) begin(size int, now hook.Instant) {
	if g := s.emptied(); g != nil {
		s.drop(g) // it was kept to be filled again, and never will be
	}
	s.evictLast()
	b := slab.Alloc(size)
	s.residentBytes += cap(b)
	s.segments = append(s.segments, segment{buf: b[:0], began: now})
}

// emptied returns the last segment if it is in memory without a record, else nil.
func (s *store) emptied() *segment {
	if len(s.segments) == 0 {
		return nil
	}
	if g := s.at(s.last()); g.live == 0 && g.state == resident {
		return g
	}
	return nil
}

// read takes the record at a slot apart.
func (s *store) read(at slot) record {
	if at.flags&alike == 0 {
		return s.parse(at, s.peek(at))
	}
	g := s.resident(at.segment)
	b := g.buf[at.offset:]
	head := headSize(b, at.flags)
	r := s.parseHead(at, b[:head])
	props, whole := g.alike(b[head:])
	r.props = props
	r.body = b[head+4:][:int(at.length)-head-whole]
	return r
}

// parts are the bytes of a record without the length of its properties.
func (s *store) parts(at slot) (head, props, body []byte) {
	if at.flags&alike == 0 {
		return cutRecord(s.peek(at), at.flags)
	}
	g := s.resident(at.segment)
	b := g.buf[at.offset:]
	n := headSize(b, at.flags)
	props, whole := g.alike(b[n:])
	return b[:n], props, b[n+4:][:int(at.length)-n-whole]
}

// alike returns the properties that an offset stands for, and what they take in a
// whole record.
func (g *segment) alike(offset []byte) (props []byte, whole int) {
	b := g.buf[binary.LittleEndian.Uint32(offset):]
	size, n := binary.Uvarint(b)
	return b[n : n+int(size)], n + int(size)
}

// whole puts the bytes of a record together that has the properties of another.
func (s *store) whole(at slot) []byte {
	g := s.resident(at.segment)
	b := g.buf[at.offset:]
	head := headSize(b, at.flags)
	_, size := g.alike(b[head:])
	from := binary.LittleEndian.Uint32(b[head:])
	w := make([]byte, 0, at.length)
	w = append(w, b[:head]...)
	w = append(w, g.buf[from:][:size]...)
	return append(w, b[head+4:][:int(at.length)-head-size]...)
}

// resident returns a segment that is in memory, if need be because it is brought
// there.
func (s *store) resident(n uint32) *segment {
	if g := s.at(n); g.buf != nil {
		return g
	}
	s.load(n)
	return s.at(n)
}

// parse takes the bytes of the whole record at a slot apart.
func (s *store) parse(at slot, b []byte) record {
	head, props, body := cutRecord(b, at.flags)
	r := s.parseHead(at, head)
	r.props, r.body = props, body
	return r
}

// parseHead takes what is before the properties apart.
func (s *store) parseHead(at slot, b []byte) record {
	var r record
	r.strategyData, b = cutStrategyData(b, at.flags)
	r.enqueued = s.at(at.segment).began + hook.Instant(binary.LittleEndian.Uint32(b))*1e6
	e := int(b[4])
	r.exchange = b[5 : 5+e]
	b = b[5+e:]
	k := int(b[0])
	r.key = b[1 : 1+k]
	if at.flags&hasBCC != 0 {
		r.bcc = b[1+k:]
	}
	return r
}

// age is how much later than its segment a record began, in milliseconds, rounded
// up: a deadline that is worked out from it must not be early.
func age(entered, began hook.Instant) uint32 { return uint32((entered - began + 999_999) / 1e6) }

// setStrategyData changes the mark of a record, which is copied when it has no room for it. It reports whether the record had
// another.
func (s *store) setStrategyData(at *slot, m strategyData) (changed bool) {
	flags := at.flags | m.flags()
	if flags&hasStrategyData == 0 {
		return false
	}
	if flags != at.flags {
		s.enlarge(at, s.peek(*at), flags)
	} else if s.read(*at).strategyData == m {
		return false
	}
	s.pin(at.segment)
	m.putTo(s.at(at.segment).buf[at.offset:], flags)
	return true
}

// enlarge copies a record, the bytes of which are b, to one that has room for the
// mark of other flags.
func (s *store) enlarge(at *slot, b []byte, flags slotFlags) {
	entered, began := s.parse(*at, b).enqueued, s.at(at.segment).began
	before, size := at.flags.strategyDataSize(), flags.strategyDataSize()
	bigger := slot{length: at.length + uint32(size-before), flags: flags}
	if bigger.segment = s.segmentFor(int(bigger.length), began); bigger.segment == at.segment {
		b = s.peek(*at) // the segment may have grown, and lie elsewhere
	}
	to := s.at(bigger.segment)
	bigger.offset = uint32(len(to.buf))
	bigger.flags = s.put(bigger.segment, append(make([]byte, size, int(bigger.length)), b[before:]...), flags)
	s.settle(to, entered, bigger)
	s.free(*at)
	*at = bigger
}

// settle completes a record of a message that entered at entered, which was
// copied in.
func (s *store) settle(to *segment, entered hook.Instant, at slot) {
	b := to.buf[int(at.offset)+at.flags.strategyDataSize():]
	// segmentFor has begun a segment no later than the record's.
	binary.LittleEndian.PutUint32(b, age(entered, to.began))
	to.live++
	to.bytes += at.length
	s.live += int(at.length)
}

func recordSize(m *Message, flags slotFlags) int {
	n := 4 + 1 + len(m.Routing.Exchange) + 1 + len(m.Routing.Key) + uvarintLen(len(m.Props)) + len(m.Props) + len(m.Body)
	n += flags.strategyDataSize()
	if flags&hasBCC != 0 {
		n += uvarintLen(len(m.Routing.BCC))
		for _, k := range m.Routing.BCC {
			n += uvarintLen(len(k)) + len(k)
		}
	}
	return n
}

// appendHead appends what is before the properties of a record.
func appendHead(b []byte, now, began hook.Instant, m *Message, k strategyData, flags slotFlags) []byte {
	if flags&hasStrategyData != 0 {
		n := flags.strategyDataSize()
		b = append(b, make([]byte, n)...)
		k.putTo(b[len(b)-n:], flags)
	}
	b = binary.LittleEndian.AppendUint32(b, age(now, began))
	b = append(b, byte(len(m.Routing.Exchange)))
	b = append(b, m.Routing.Exchange...)
	b = append(b, byte(len(m.Routing.Key)))
	b = append(b, m.Routing.Key...)
	if flags&hasBCC != 0 {
		b = binary.AppendUvarint(b, uint64(len(m.Routing.BCC)))
		for _, k := range m.Routing.BCC {
			b = binary.AppendUvarint(b, uint64(len(k)))
			b = append(b, k...)
		}
	}
	return b
}

// keysLen returns the length of a stored list of keys.
func keysLen(b []byte) int {
	count, at := binary.Uvarint(b)
	for range count {
		size, n := binary.Uvarint(b[at:])
		at += n + int(size)
	}
	return at
}

// blindKeys takes a stored list of keys apart; nil holds none.
func blindKeys(b []byte) []string {
	if b == nil {
		return nil
	}
	count, at := binary.Uvarint(b)
	keys := make([]string, count)
	for i := range keys {
		size, n := binary.Uvarint(b[at:])
		at += n
		keys[i] = string(b[at : at+int(size)])
		at += int(size)
	}
	return keys
}

func uvarintLen(n int) int {
	l := 1
	for ; n >= 0x80; n >>= 7 {
		l++
	}
	return l
}
