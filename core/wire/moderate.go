package wire

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// moderation decides when a connection is read in intervals rather than whenever something arrives.
//
// Client libraries write each message by itself, and a system with a processor to spare wakes the reader for each of them:
// that costs more than everything else that is done for a message. So, as network drivers do with interrupts, a connection
// from which little is read very often is polled: whatever arrives in an interval is read at once.
//
// A peer that waits for answers, with a window of confirms or acknowledgements, sends less if they come later. So polling
// begins with a trial: if less arrives than before, it ends, and the next trial is later the more often that happens.
//
// It is plain data of a reader.
type moderation struct {
	polling bool

	// The window that is being measured.
	since hook.Instant
	reads int // that brought something
	empty int // that did not
	bytes int

	eager  rate          // what arrived before polling began
	began  hook.Instant  // when it did
	trial  bool          // this window decides whether it was a good idea
	wait   time.Duration // from a failed trial to the next
	notYet hook.Instant  // there is no trial before
}

// rate is bytes and reads in a time.
type rate struct {
	bytes, reads int
	over         time.Duration
}

const (
	pollInterval = 100 * time.Microsecond // and so what polling adds to a message's latency, at most

	eagerWindow = 16               // reads
	hotWithin   = time.Millisecond // that many reads within this time are often
	thinRead    = 4 << 10          // bytes of one read that are little
	fatRead     = 32 << 10         // bytes of one read behind which another follows at once

	pollWindow = 40 // intervals

	shortestWait = 20 * time.Millisecond
	longestWait  = time.Second

	pollAtMost = time.Second // then there is another trial: the peer may have begun to wait for answers
)

// note takes note of a read of n bytes, which are 0 if there was nothing, and decides how to go on. It reports whether that
// changed.
func (m *moderation) note(now hook.Instant, n int) (changed bool) {
	if m.since == 0 {
		m.begin(now)
		return false
	}
	m.bytes += n
	if n > 0 {
		m.reads++
	} else {
		m.empty++
	}
	if m.polling {
		return m.reads+m.empty >= pollWindow && m.review(now)
	}
	return m.reads >= eagerWindow && m.consider(now)
}

func (m *moderation) begin(now hook.Instant) {
	m.since, m.reads, m.empty, m.bytes = now, 0, 0, 0
}

// stop ends polling because nothing is read for some time. What was measured until then says nothing of the time after it.
func (m *moderation) stop() { m.polling, m.since = false, 0 }

func (m *moderation) measured(now hook.Instant) rate {
	return rate{m.bytes, m.reads, max(now.Sub(m.since), 1)}
}

// consider begins to poll if the connection is hot.
func (m *moderation) consider(now hook.Instant) (changed bool) {
	r := m.measured(now)
	m.begin(now)
	if r.over > hotWithin || r.bytes > eagerWindow*thinRead || now < m.notYet {
		return false
	}
	m.polling, m.trial, m.eager, m.began = true, true, r, now
	return true
}

// review ends polling if it does not pay.
func (m *moderation) review(now hook.Instant) (changed bool) {
	r := m.measured(now)
	idle := m.empty > pollWindow/2
	m.begin(now)
	switch {
	case m.trial && r.slower(m.eager):
		m.wait = min(max(2*m.wait, shortestWait), longestWait)
		m.notYet = now.Add(m.wait)
	case idle || r.bytes*m.eager.reads < 2*m.eager.bytes*pollWindow: // an interval brings less than two reads did
	case now >= m.began.Add(pollAtMost):
	default:
		m.trial, m.wait = false, 0
		return false
	}
	m.polling = false
	return true
}

// slower reports whether a rate is clearly less than another.
func (r rate) slower(than rate) bool {
	return float64(r.bytes)/float64(r.over) < 0.9*float64(than.bytes)/float64(than.over)
}
