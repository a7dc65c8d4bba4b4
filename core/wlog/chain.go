package wlog

import (
	"fmt"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Chain follows the headers of a shard's log from its first entry and says what
// each is worth. An owner goes on with the one it replayed. The zero value
// stands before the first entry; a Chain belongs to one goroutine.
type Chain struct {
	Last  Index        // the last entry that counted; 0 = none
	Epoch uint64       // of the owner that wrote it
	Time  hook.Instant // when

	begun bool
}

// Follow takes the next header of the log. An entry is void, and passed over, if
// its writer did not own the shard when the entry arrived: its epoch is older
// than that of the newest Takeover before it, or it is a Takeover that came too
// late, after another or after an entry its writer had not seen. An error means
// that entries are missing, or in the wrong place.
//
// What stood before the first entry was trimmed, so that one is taken at its word.
func (c *Chain) Follow(at Index, h *Header) (void bool, err error) {
	if c.begun && at <= c.Last {
		return false, fmt.Errorf("entry %#x follows entry %#x", at, c.Last)
	}
	if c.begun && c.late(h) {
		return true, nil
	}
	if c.begun && h.Epoch > c.Epoch && h.Kind != Takeover {
		return false, fmt.Errorf("entry of epoch %d in epoch %d, whose end is missing", h.Epoch, c.Epoch)
	}
	if c.begun && h.Prev != c.Last {
		return false, fmt.Errorf("the entry before it should be %#x and is %#x", h.Prev, c.Last)
	}
	c.Appended(at, h)
	return false, nil
}

func (c *Chain) late(h *Header) bool {
	if h.Kind == Takeover {
		return h.Epoch <= c.Epoch || h.Prev != c.Last
	}
	return h.Epoch < c.Epoch
}

// Next returns the header of the entry that goes on the end of the chain. Time
// does not go back with the clock.
func (c *Chain) Next(kind Kind, shard uint32, now hook.Instant) Header {
	return Header{Kind: kind, Shard: shard, Epoch: c.Epoch, Time: max(now, c.Time), Prev: c.Last}
}

// Appended tells the chain that its next entry now lies at that index.
func (c *Chain) Appended(at Index, h *Header) {
	c.Last, c.Epoch, c.Time, c.begun = at, h.Epoch, h.Time, true
}
