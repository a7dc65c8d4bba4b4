package queue

import (
	"slices"

	"github.com/curfewmq/curfew/core/slab"
)

// replayedLevel is a level of a queue that is being restored. Most messages come in
// order. Relocated messages come behind later ones, often few of a chunk, so a chunk is
// dense only while messages are added to it.
type replayedLevel struct {
	fifo
	filling uint64 // number of the chunk that got the last message
}

// insert adds a message, and returns its chunk and index.
func (f *replayedLevel) insert(seq uint64, s slot, body uint32) (c *chunk, i int) {
	n := seq >> chunkBits
	f.reach(seq + 1)
	if was := f.filling; was != n {
		f.filling = n
		f.tidy(was)
	}
	at := f.index(n)
	if at == len(f.chunks) || f.chunks[at].number != n {
		f.chunks = slices.Insert(f.chunks, at, chunk{number: n})
		f.first = f.chunks[0].number
	} else if f.chunks[at].slots == nil {
		f.emptyChunks--
	}
	c, i = &f.chunks[at], int(seq&positionMask)
	c.makeDense()
	if i >= len(c.slots) {
		c.grow(i, f.busy)
		f.busy = f.busy || len(c.slots) == chunkSlots
	}
	s.become(stateReady)
	c.slots[i] = s
	c.live++
	if c.holds != nil {
		c.holds[i] = 0
	}
	c.setBody(i, body)
	return c, i
}

// delivered records that all messages below a sequence number were delivered.
func (f *replayedLevel) delivered(upTo uint64) {
	f.deliveredUpTo = max(f.deliveredUpTo, upTo)
	f.journalledUpTo = f.deliveredUpTo
	f.reach(upTo)
}

// reach records that all messages below a sequence number have entered.
func (f *replayedLevel) reach(next uint64) {
	was := f.next
	if next <= was {
		return
	}
	f.next = next
	if next>>chunkBits != was>>chunkBits {
		f.tidy(was >> chunkBits)
	}
}

// tidy frees memory of the chunk with a number, unless messages are being added to it.
func (f *replayedLevel) tidy(n uint64) {
	at := f.index(n)
	if at == len(f.chunks) || f.chunks[at].number != n || f.chunks[at].slots == nil || n == f.next>>chunkBits {
		return
	}
	c := &f.chunks[at]
	switch {
	case c.live == 0:
		c.free()
		f.emptyChunks++
		f.unlink()
	case c.positions == nil && int(c.live) < len(c.slots)/sparseRatio:
		c.makeSparse()
	}
}

// complete returns the level as a fifo for a queue.
func (f *replayedLevel) complete() fifo {
	f.tidy(f.filling)
	if n := len(f.chunks); n > 0 && f.chunks[n-1].number == f.next>>chunkBits {
		f.chunks[n-1].makeDense() // messages are added to it
	}
	f.unlink()
	f.head, _ = f.messageFrom(0)
	f.run.next = f.head
	return f.fifo
}

func (c *chunk) setBody(i int, size uint32) {
	if c.bodies == nil {
		c.bodies = slab.Make[uint32](len(c.slots))
	}
	c.bodies[i] = size
}
