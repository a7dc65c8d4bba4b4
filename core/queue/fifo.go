package queue

import (
	"cmp"
	"slices"

	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/sdk/hook"
)

// slot is a message in its queue: where its record lies and what state it is
// in. It has no pointer and stays where it is until the message leaves, handed
// out or not, so that a message that comes back is where it was.
type slot struct {
	segment uint32
	offset  uint32
	length  uint32
	flags   slotFlags // and what else there is: with five fields the compiler would not keep slots in registers
}

// slotFlags are what is remembered of a message besides its bytes: flags, its state in bits 14 and 15, and above them how
// often it came back undelivered, for the delivery limit. The flags that the journal has, too, come first: they are the
// lowest 8 bits.
type slotFlags uint32

const (
	redelivered slotFlags = 1 << iota
	persistent
	hasDeathHistory // x-death is the broker's own
	hasState        // the strategy keeps 8 bytes with it
	hasBCC
	traced
	askHead    // OnHead wants to see it at the head
	hasDigest  // the record says whose its deadline is
	inHeap     // the deadline heap has an item for it
	inRun      // its deadline is part of the sorted run
	inRequeued // its fifo's back has an item for it
	alike      // its record has the properties of an earlier one: see store.shared
)

// The states of a message.
const (
	stateFree    slotFlags = 0                         // left the queue, or never was
	stateReady   slotFlags = 1 << 14                   // waits to be handed out
	stateUnacked slotFlags = 1 << 15                   // handed out, unacknowledged
	stateMask              = stateReady | stateUnacked // the bits
)

func (s *slot) is(state slotFlags) bool { return s.flags&stateMask == state }

func (s *slot) become(state slotFlags) { s.flags = s.flags&^stateMask | state }

const returnsShift = 16

// returns is how often the message came back undelivered, as far as that is counted.
func (s *slot) returns() uint16 { return uint16(s.flags >> returnsShift) }

func (s *slot) setReturns(n uint16) {
	s.flags = s.flags&(1<<returnsShift-1) | slotFlags(n)<<returnsShift
}

// chunk is chunkSlots slots in a row. The last chunk of a fifo begins small and
// grows by copying; one that few messages are left of is thinned, so that a
// message which outlives its neighbours does not hold the room of all of them.
// Deadlines and extents lie apart and only where a message has one.
type chunk struct {
	number    uint64 // of the chunk: its slots' sequence numbers, but for the place in it
	slots     []slot
	deadlines []hook.Instant // nil, or as long as slots
	extents   []uint32       // where in the journal each message is; nil, or as long as slots
	saved     []uint32       // by how much its operation there is shorter than the message weighs; nil, or as long as slots
	positions []uint16       // thinned: the place of each slot, ascending; nil = its index
	live      int32          // slots that are not gone
}

// sparseRatio is the part of its slots a chunk must still use to keep them all.
const sparseRatio = 16

// index returns the index of the slot with a place, or of the first one behind it.
func (c *chunk) index(place int) int {
	if c.positions == nil {
		return place
	}
	i, _ := slices.BinarySearch(c.positions, uint16(place))
	return i
}

// position returns where the slot with an index stands.
func (c *chunk) position(i int) uint64 {
	if c.positions == nil {
		return uint64(i)
	}
	return uint64(c.positions[i])
}

// has reports whether there is a slot for a place.
func (c *chunk) has(place int) bool {
	i := c.index(place)
	return i < len(c.slots) && c.position(i) == uint64(place)
}

const (
	chunkBits  = 11
	chunkSlots = 1 << chunkBits
	firstChunk = 8
)

// fifo is the messages of one priority level in order, by a sequence number
// that never comes again. Chunks without messages are left out, some of them
// only after a while.
type fifo struct {
	chunks      []chunk
	first       uint64 // number of chunks[0]
	emptyChunks int    // chunks that are there and have no slots
	next        uint64 // sequence number of the next message
	head        uint64 // no slot below is ready, but those in back
	ready       int
	busy        bool    // it filled a chunk since it was last idle: begin the next at full size
	requeued    seqHeap // sequence numbers of messages that came back, all of them below head

	firstOfTurn uint64 // first message that came in this turn, while Queue.fresh

	deliveredUpTo, journalledUpTo uint64 // messages below handed were handed out; noted is what the journal knows of it

	// The sorted run: messages whose deadlines arrived in order need no heap.
	run     uint64       // no slot below is part of the run
	runLast hook.Instant // the latest deadline in it
}

// slot returns the slot of a sequence number, nil when its chunk is gone.
func (f *fifo) slot(seq uint64) *slot {
	c := f.chunk(seq)
	if c == nil {
		return nil
	}
	place := int(seq & (chunkSlots - 1))
	if c.positions == nil {
		if place >= len(c.slots) {
			return nil
		}
		return &c.slots[place]
	}
	if !c.has(place) {
		return nil
	}
	return &c.slots[c.index(place)]
}

func (f *fifo) chunk(seq uint64) *chunk {
	i := f.index(seq >> chunkBits)
	if i == len(f.chunks) || f.chunks[i].number != seq>>chunkBits || f.chunks[i].slots == nil {
		return nil
	}
	return &f.chunks[i]
}

// index returns where the chunk with a number is, or the first one behind it. It
// mostly lies as far from the first or the last one as their numbers say.
func (f *fifo) index(number uint64) int {
	n := uint64(len(f.chunks))
	if i := number - f.first; i < n && f.chunks[i].number == number {
		return int(i)
	}
	if n == 0 || f.chunks[n-1].number < number {
		return int(n)
	}
	if i := f.chunks[n-1].number - number; i < n && f.chunks[n-1-i].number == number {
		return int(n - 1 - i)
	}
	i, _ := slices.BinarySearchFunc(f.chunks, number, func(c chunk, number uint64) int { return cmp.Compare(c.number, number) })
	return i
}

// nextChunk returns the first sequence number of the next chunk there is behind
// that of seq, or limit if there is none.
func (f *fifo) nextChunk(seq, limit uint64) uint64 {
	i := f.index(seq>>chunkBits + 1)
	if i == len(f.chunks) {
		return limit
	}
	return min(f.chunks[i].number<<chunkBits, limit)
}

func (f *fifo) deadline(seq uint64) hook.Instant {
	c := f.chunk(seq)
	if c == nil || c.deadlines == nil || !c.has(int(seq&(chunkSlots-1))) {
		return 0
	}
	return c.deadlines[c.index(int(seq&(chunkSlots-1)))]
}

// extentOf returns where in the journal the message is, 0 when it is not there, and what it takes there, times sign.
func (f *fifo) extentOf(seq uint64, s *slot, sign int64) (extent uint32, bytes int64) {
	c := f.chunk(seq)
	if c == nil || c.extents == nil {
		return 0, 0
	}
	i := c.index(int(seq & (chunkSlots - 1)))
	return c.extents[i], sign * (weight(s) - c.savedBy(i))
}

// setExtent says where in the journal the message is, and how many bytes less it takes there than it weighs.
func (f *fifo) setExtent(seq uint64, extent uint32, saved int) {
	c := f.chunk(seq)
	if c.extents == nil {
		c.extents = make([]uint32, len(c.slots))
	}
	i := c.index(int(seq & (chunkSlots - 1)))
	c.extents[i] = extent
	c.save(i, saved)
}

func (c *chunk) savedBy(i int) int64 {
	if c.saved == nil {
		return 0
	}
	return int64(c.saved[i])
}

func (c *chunk) save(i, bytes int) {
	if c.saved == nil {
		if bytes == 0 {
			return
		}
		c.saved = make([]uint32, len(c.slots))
	}
	c.saved[i] = uint32(bytes)
}

func (f *fifo) setDeadline(seq uint64, t hook.Instant) {
	c := f.chunk(seq)
	if c.deadlines == nil {
		if t == 0 {
			return
		}
		c.deadlines = slab.Make[hook.Instant](len(c.slots))
	}
	c.deadlines[c.index(int(seq&(chunkSlots-1)))] = t
}

// push appends a slot and returns its sequence number.
func (f *fifo) push(s slot, deadline hook.Instant) uint64 {
	seq := f.next
	f.next++
	c := f.tail(seq)
	s.become(stateReady)
	c.slots[seq&(chunkSlots-1)] = s
	c.live++
	if deadline != 0 || c.deadlines != nil {
		f.setDeadline(seq, deadline)
	}
	f.ready++
	return seq
}

// skipTo makes seq the next number at least: a message that left had it.
func (f *fifo) skipTo(seq uint64) {
	f.next = max(f.next, seq)
	if f.ready == 0 && len(f.chunks) == 0 {
		f.head, f.run = f.next, f.next
	}
}

// tail returns the chunk seq goes to, grown so that it has room for it.
func (f *fifo) tail(seq uint64) *chunk {
	n := seq >> chunkBits
	if len(f.chunks) == 0 {
		f.first = n
	}
	if k := len(f.chunks); k == 0 || f.chunks[k-1].number < n {
		f.chunks = append(f.chunks, chunk{number: n})
	}
	c := &f.chunks[len(f.chunks)-1]
	i := int(seq & (chunkSlots - 1))
	if i >= len(c.slots) {
		c.grow(i, f.busy)
		f.busy = f.busy || len(c.slots) == chunkSlots
	}
	return c
}

func (c *chunk) grow(i int, whole bool) {
	size := max(len(c.slots), firstChunk)
	for size <= i {
		size *= 4
	}
	if whole {
		size = chunkSlots
	}
	size = min(size, chunkSlots)
	slots := slab.Make[slot](size)
	copy(slots, c.slots)
	slab.FreeMade(c.slots)
	c.slots = slots
	if c.extents != nil {
		c.extents = append(make([]uint32, 0, size), c.extents...)[:size]
	}
	if c.saved != nil {
		c.saved = append(make([]uint32, 0, size), c.saved...)[:size]
	}
	if c.deadlines == nil {
		return
	}
	deadlines := slab.Make[hook.Instant](size)
	copy(deadlines, c.deadlines)
	slab.FreeMade(c.deadlines)
	c.deadlines = deadlines
}

// remove marks the message as gone and gives back chunks nobody needs.
func (f *fifo) remove(seq uint64) {
	c := f.chunk(seq)
	c.slots[c.index(int(seq&(chunkSlots-1)))].become(stateFree)
	c.live--
	if seq>>chunkBits == f.next>>chunkBits {
		return // messages are still added to it
	}
	if c.live > 0 {
		if c.positions == nil && int(c.live) < len(c.slots)/sparseRatio {
			c.makeSparse()
		}
		return
	}
	c.free()
	f.emptyChunks++
	f.unlink()
}

// unlink drops chunks without slots: those at the front, and all when they are
// many.
func (f *fifo) unlink() {
	const many = 64
	for len(f.chunks) > 0 && f.chunks[0].slots == nil {
		f.chunks = f.chunks[1:]
		f.emptyChunks--
	}
	if f.emptyChunks > many && f.emptyChunks > len(f.chunks)/2 {
		f.chunks = slices.DeleteFunc(f.chunks, func(c chunk) bool { return c.slots == nil })
		f.emptyChunks = 0
	}
	if f.first = f.next >> chunkBits; len(f.chunks) > 0 {
		f.first = f.chunks[0].number
	}
}

func (c *chunk) free() {
	slab.FreeMade(c.slots)
	slab.FreeMade(c.deadlines)
	c.slots, c.deadlines, c.extents, c.saved, c.positions = nil, nil, nil, nil, nil
}

// makeSparse keeps the slots that are in use and drops the others.
func (c *chunk) makeSparse() {
	kept := chunk{number: c.number, slots: slab.Make[slot](int(c.live))[:0], positions: make([]uint16, 0, c.live), live: c.live}
	if c.deadlines != nil {
		kept.deadlines = slab.Make[hook.Instant](int(c.live))[:0]
	}
	for i := range c.slots {
		if c.slots[i].is(stateFree) {
			continue
		}
		kept.slots = append(kept.slots, c.slots[i])
		kept.positions = append(kept.positions, uint16(i))
		if c.deadlines != nil {
			kept.deadlines = append(kept.deadlines, c.deadlines[i])
		}
		if c.extents != nil {
			kept.extents = append(kept.extents, c.extents[i])
		}
		if c.saved != nil {
			kept.saved = append(kept.saved, c.saved[i])
		}
	}
	c.free()
	*c = kept
}

// release gives back everything.
func (f *fifo) release() {
	for i := range f.chunks {
		f.chunks[i].free()
	}
	f.chunks, f.emptyChunks, f.requeued, f.ready, f.busy = nil, 0, nil, 0, false
	f.head, f.run = f.next, f.next
}

// releaseIdle gives back the memory of a fifo that holds no message. What it would
// hold on to is the chunk being filled.
func (f *fifo) releaseIdle() {
	if n := len(f.chunks); n == 0 || n > 1 || f.chunks[0].live > 0 {
		return
	}
	f.release()
}

// peek returns the message to hand out next, of which there must be one. It came
// back if it is below head.
func (f *fifo) peek() uint64 {
	for len(f.requeued) > 0 {
		s := f.slot(f.requeued[0])
		if s != nil && s.is(stateReady) {
			return f.requeued[0]
		}
		if s != nil {
			s.flags &^= inRequeued
		}
		f.requeued.pop()
	}
	return f.advanceHead()
}

// advanceHead moves head to the first ready slot at or behind it.
func (f *fifo) advanceHead() uint64 {
	for {
		c := f.chunk(f.head)
		if c == nil {
			f.head = f.nextChunk(f.head, f.next)
			continue
		}
		for i := c.index(int(f.head & (chunkSlots - 1))); i < len(c.slots); i++ {
			if c.slots[i].is(stateReady) {
				f.head = f.head&^(chunkSlots-1) + c.position(i)
				return f.head
			}
		}
		f.head = (f.head>>chunkBits + 1) << chunkBits
	}
}

// take marks a ready message as handed out.
func (f *fifo) take(s *slot) {
	s.become(stateUnacked)
	f.ready--
}

// requeue makes a message that was taken ready again, where it was.
func (f *fifo) requeue(seq uint64, s *slot) {
	s.become(stateReady)
	f.ready++
	if seq < f.head && s.flags&inRequeued == 0 {
		s.flags |= inRequeued
		f.requeued.push(seq)
	}
}

// rewind lets head go back to a message that it was moved from, before that is
// given back: nothing has happened since but that messages were taken.
func (f *fifo) rewind(seq uint64) { f.head = min(f.head, seq) }

// runTop returns the earliest deadline of the sorted run and its message; ok is
// false when the run is empty.
func (f *fifo) runTop() (seq uint64, at hook.Instant, ok bool) {
	for f.run < f.next {
		c := f.chunk(f.run)
		if c == nil || c.deadlines == nil {
			f.run = f.nextChunk(f.run, f.next)
			continue
		}
		for i := c.index(int(f.run & (chunkSlots - 1))); i < len(c.slots); i++ {
			if s := &c.slots[i]; s.is(stateReady) && s.flags&inRun != 0 {
				f.run = f.run&^(chunkSlots-1) + c.position(i)
				return f.run, c.deadlines[i], true
			}
		}
		f.run = min((f.run>>chunkBits+1)<<chunkBits, f.next)
	}
	f.runLast = 0
	return 0, 0, false
}

// seqHeap is a binary min-heap of sequence numbers.
type seqHeap []uint64

func (h *seqHeap) push(n uint64) {
	*h = append(*h, n)
	a := *h
	for i := len(a) - 1; i > 0; {
		p := (i - 1) / 2
		if a[p] <= a[i] {
			return
		}
		a[p], a[i] = a[i], a[p]
		i = p
	}
}

func (h *seqHeap) pop() {
	a := *h
	last := len(a) - 1
	a[0] = a[last]
	a = a[:last]
	*h = a
	if last == 0 {
		*h = nil
	}
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(a) {
			return
		}
		if c+1 < len(a) && a[c+1] < a[c] {
			c++
		}
		if a[i] <= a[c] {
			return
		}
		a[i], a[c] = a[c], a[i]
		i = c
	}
}
