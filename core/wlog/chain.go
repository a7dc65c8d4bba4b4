package wlog

import (
	"fmt"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Chain checks the headers of a shard's log, from its first entry on. After a replay the new owner continues its chain. The zero value is
// at the beginning of the log. A Chain belongs to one goroutine.
type Chain struct {
	Last  Index        // the last valid entry; 0 = none
	Epoch uint64       // of its writer
	Time  hook.Instant // when it was written

	begun bool
}

// Follow checks the next header of the log. An entry is void, and must be skipped, if its writer no longer owned the shard when the entry
// arrived: its epoch is older than that of the newest Takeover before it. A Takeover is also void if it comes after another Takeover of the
// same or a later epoch, or after an entry that its writer had not seen. An error means that entries are missing or misplaced.
//
// An example: owner A (epoch 4) has written entries 7 and 8. B replays them and writes Takeover 9 with epoch 5 and previous entry 8. An
// entry of A that arrives as 10 still has epoch 4, and is void. Had it arrived before B's Takeover, as 9, the Takeover would name 8 as the
// previous entry instead of 9, and be void: B must try again.
//
// The first header is not checked, because the entries before it were trimmed.
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

// Next returns the header of the next entry. Its time is never less than that of the entry before, even if the clock was set back.
func (c *Chain) Next(kind Kind, shard uint32, now hook.Instant) Header {
	return Header{Kind: kind, Shard: shard, Epoch: c.Epoch, Time: max(now, c.Time), Prev: c.Last}
}

// Appended adds an entry at an index to the chain.
func (c *Chain) Appended(at Index, h *Header) {
	c.Last, c.Epoch, c.Time, c.begun = at, h.Epoch, h.Time, true
}
