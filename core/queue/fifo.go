package queue

import (
	"cmp"
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
)

// fifo is the messages of one priority level, in the order of their sequence numbers,
// which are never reused. Chunks without messages are removed from the list, some of them
// only after a while.
type fifo struct {
	chunks      []chunk
	first       uint64 // number of chunks[0]
	emptyChunks int    // chunks in the list without slots
	next        uint64 // sequence number of the next message
	head        uint64 // no slot below is ready, except those in requeued
	ready       int
	busy        bool    // a chunk was filled since the fifo was last idle: the next one begins at full size
	requeued    seqHeap // sequence numbers of requeued messages, all of them below head

	firstOfTurn uint64 // the first message that entered in this turn, while Queue.zeroTTL is set

	deliveredUpTo  uint64 // messages below it were delivered
	journalledUpTo uint64 // the deliveredUpTo that was journalled last

	run sortedRun
}

const positionMask = chunkSlots - 1

// locate returns the chunk of a sequence number and the index of its slot there; ok is
// false if it has no slot.
func (f *fifo) locate(seq uint64) (c *chunk, i int, ok bool) {
	if c = f.chunk(seq); c == nil {
		return nil, 0, false
	}
	i = c.index(int(seq & positionMask))
	return c, i, i < len(c.slots) && (c.positions == nil || c.positions[i] == uint16(seq&positionMask))
}

// slot returns the slot of a sequence number, nil if it has none.
func (f *fifo) slot(seq uint64) *slot {
	c, i, ok := f.locate(seq)
	if !ok {
		return nil
	}
	return &c.slots[i]
}

func (f *fifo) chunk(seq uint64) *chunk {
	i := f.index(seq >> chunkBits)
	if i == len(f.chunks) || f.chunks[i].number != seq>>chunkBits || f.chunks[i].slots == nil {
		return nil
	}
	return &f.chunks[i]
}

// index returns the index of the chunk with a number, or of the first chunk behind it.
// Mostly no chunk is missing between it and the first or last one: then the difference of
// their numbers leads to it.
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

// nextChunk returns the first sequence number of the next chunk behind that of seq, or
// limit if there is none.
func (f *fifo) nextChunk(seq, limit uint64) uint64 {
	i := f.index(seq>>chunkBits + 1)
	if i == len(f.chunks) {
		return limit
	}
	return min(f.chunks[i].number<<chunkBits, limit)
}

// push appends a slot and returns its sequence number.
func (f *fifo) push(s slot, deadline hook.Instant) uint64 {
	seq := f.next
	f.next++
	c := f.tail(seq)
	s.become(stateReady)
	i := int(seq & positionMask)
	c.slots[i] = s
	c.live++
	c.setDeadline(i, deadline)
	f.ready++
	return seq
}

// skipTo raises the next sequence number to at least seq: messages that have left had the
// numbers below.
func (f *fifo) skipTo(seq uint64) {
	f.next = max(f.next, seq)
	if f.ready == 0 && len(f.chunks) == 0 {
		f.head, f.run.next = f.next, f.next
	}
}

// tail returns the chunk for seq, which it makes large enough.
func (f *fifo) tail(seq uint64) *chunk {
	n := seq >> chunkBits
	if len(f.chunks) == 0 {
		f.first = n
	}
	if k := len(f.chunks); k == 0 || f.chunks[k-1].number < n {
		f.chunks = append(f.chunks, chunk{number: n})
	}
	c := &f.chunks[len(f.chunks)-1]
	if i := int(seq & positionMask); i >= len(c.slots) {
		c.grow(i, f.busy)
		f.busy = f.busy || len(c.slots) == chunkSlots
	}
	return c
}

// remove frees the slot with an index, and memory of a chunk that is not needed any more.
func (f *fifo) remove(c *chunk, i int) {
	c.slots[i].become(stateFree)
	c.live--
	if c.number == f.next>>chunkBits {
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

// unlink removes chunks without slots from the list: those at the front, and all of them
// if they are many.
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

// releaseIdle frees the last chunk of a fifo without messages, which otherwise stays for
// the messages to come.
func (f *fifo) releaseIdle() {
	if len(f.chunks) != 1 || f.chunks[0].live > 0 {
		return
	}
	f.chunks[0].free()
	f.chunks, f.emptyChunks, f.requeued, f.ready, f.busy = nil, 0, nil, 0, false
	f.head, f.run.next = f.next, f.next
}

// peek returns the sequence number of the message to deliver next; one must be ready.
// Requeued messages below head come first.
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
			if f.head >= f.next {
				panic("queue: no message is ready") // else this loop would not end
			}
			f.head = f.nextChunk(f.head, f.next)
			continue
		}
		for i := c.index(int(f.head & positionMask)); i < len(c.slots); i++ {
			if c.slots[i].is(stateReady) {
				f.head = c.seq(i)
				return f.head
			}
		}
		f.head = (c.number + 1) << chunkBits
	}
}

// messageFrom returns the first message at or behind seq; its slot is nil if there is
// none.
func (f *fifo) messageFrom(seq uint64) (uint64, *slot) {
	for seq = max(seq, f.first<<chunkBits); seq < f.next; seq = (seq>>chunkBits + 1) << chunkBits {
		c := f.chunk(seq)
		if c == nil {
			continue
		}
		for i := c.index(int(seq & positionMask)); i < len(c.slots); i++ {
			if !c.slots[i].is(stateFree) {
				return c.seq(i), &c.slots[i]
			}
		}
	}
	return f.next, nil
}

// take makes a ready message a taken one.
func (f *fifo) take(s *slot) {
	s.become(stateUnacked)
	f.ready--
}

// requeue makes a taken message ready again, in its old position.
func (f *fifo) requeue(seq uint64, s *slot) {
	s.become(stateReady)
	f.ready++
	if seq < f.head && s.flags&inRequeued == 0 {
		s.flags |= inRequeued
		f.requeued.push(seq)
	}
}

// rewind moves head back to a message that head has passed and that is about to be
// requeued, so that the message need not go to the heap of requeued ones. Since head
// passed it, messages may have been taken, and nothing else may have happened.
func (f *fifo) rewind(seq uint64) { f.head = min(f.head, seq) }
