package journal

import (
	"math"

	"github.com/curfewmq/curfew/core/wlog"
)

// bounds say how large things may be, in bytes.
type bounds struct {
	commit int
	// ahead bounds the commits that are written before their turn and still in the queue: each entry that is written in its turn
	// repeats them.
	ahead int
}

// boundsOf returns the bounds of an engine. If its entries are smaller than [wlog.MaxEntry], a part of an entry is left for commits that
// overtake it.
func boundsOf(e wlog.Engine) bounds {
	const part = 16
	if most := e.MaxEntry(); most < wlog.MaxEntry {
		return bounds{commit: most - most/part, ahead: most / part}
	}
	return bounds{commit: wlog.MaxEntry, ahead: math.MaxInt}
}

// most returns how many bytes may be ahead with a commit of that purpose. What moves leaves half of them to what settles: that is
// small, and without it nothing gets free.
func (b bounds) most(p wlog.Purpose) int {
	if p < wlog.Settling {
		return b.ahead / 2
	}
	return b.ahead
}

// MaxCommit returns how many bytes of operations a commit may have.
func (w *Writer) MaxCommit() int { return w.bounds.commit }
