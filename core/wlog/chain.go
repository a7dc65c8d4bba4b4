package wlog

import (
	"fmt"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Chain checks the headers of a shard's log, from its first entry on. After replay the new owner continues it. The zero value is
// at the beginning of the log. A Chain belongs to one goroutine.
type Chain struct {
	Last  Index        // the last entry that was not void; 0 = none
	Epoch uint64       // of its writer
	Time  hook.Instant // when it was written

	begun bool
}

// Follow checks the next header of the log. An entry is void, and must be skipped, if its writer did not own the shard when the
// entry arrived: its epoch is older than that of the newest Takeover before it, or it is a Takeover that came too late, after
// another one or after an entry that its writer had not seen. An error means that entries are missing or misplaced.
//
// Entries before the first were trimmed, so the first one is not checked.
func (c *Chain) Follow(at Index, h *Header) (void bool, err error) {
	if c.begun && at <= c.Last {
		return false, fmt.Errorf("entry %#x follows entry %#x", at, c.Last)
	}
	if c.begun && c.isVoid(h) {
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

func (c *Chain) isVoid(h *Header) bool {
	if h.Kind == Takeover {
		return h.Epoch <= c.Epoch || h.Prev != c.Last
	}
	return h.Epoch < c.Epoch
}

// Next returns the header of the next entry. Its time never goes back, even if the clock does.
func (c *Chain) Next(kind Kind, shard uint32, now hook.Instant) Header {
	return Header{Kind: kind, Shard: shard, Epoch: c.Epoch, Time: max(now, c.Time), Prev: c.Last}
}

// Appended adds an entry at an index to the chain.
func (c *Chain) Appended(at Index, h *Header) {
	c.Last, c.Epoch, c.Time, c.begun = at, h.Epoch, h.Time, true
}
