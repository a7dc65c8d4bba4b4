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
// While an interval brings what many reads did, it is doubled, up to longestInterval, each time with a trial: such a peer sends
// flat out, and being woken costs it, and its consumers, more than waiting does.
//
// It is plain data of a reader.
type moderation struct {
	polling  bool
	interval time.Duration // while polling

	// The window that is being measured.
	since hook.Instant
	reads int // that brought something
	empty int // that did not
	bytes int

	burst   bool         // this window has what gathered while the connection was polled
	eager   rate         // what arrived before polling began
	began   hook.Instant // when it did
	trial   bool         // this window decides whether polling, or the longer interval, was a good idea
	against rate         // what the trial is compared with
	begins  pause        // between trials of polling
	grows   pause        // between trials of longer intervals
}

// pause is how long trials that failed are not repeated.
type pause struct {
	length time.Duration
	until  hook.Instant
}

// failed lengthens the pause.
func (p *pause) failed(now hook.Instant) {
	p.length = min(max(2*p.length, shortestWait), longestWait)
	p.until = now.Add(p.length)
}

// rate is bytes and reads in a time.
type rate struct {
	bytes, reads int
	over         time.Duration
}

const (
	shortestInterval = 100 * time.Microsecond // and so what polling adds to a message's latency, at most,
	longestInterval  = 400 * time.Microsecond // and what it adds while very much arrives
	plenty           = 4                      // as many reads as before polling in a shortestInterval are very much

	eagerWindow = 16               // reads
	hotWithin   = time.Millisecond // that many reads within this time are often
	thinRead    = 4 << 10          // bytes of one read that are little
	fatRead     = 32 << 10         // bytes of one read behind which another follows at once

	pollWindow = 40 // intervals

	pollHeld = 4 * time.Millisecond // polling ends when reading is held up for so long

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
	r, burst := m.measured(now), m.burst
	m.begin(now)
	m.burst = false
	if burst || r.over > hotWithin || r.bytes > eagerWindow*thinRead || now < m.begins.until {
		return false
	}
	m.polling, m.interval, m.began = true, shortestInterval, now
	m.eager, m.against, m.trial = r, r, true
	return true
}

// review ends polling if it does not pay, or changes the interval.
func (m *moderation) review(now hook.Instant) (changed bool) {
	r := m.measured(now)
	idle := m.empty > pollWindow/2
	m.begin(now)
	failed := m.trial && r.slower(m.against)
	thin := r.bytes*m.eager.reads < 2*m.eager.bytes*pollWindow // an interval brings less than two reads did
	switch {
	case failed && m.interval == shortestInterval:
		m.begins.failed(now)
	case idle, thin, now >= m.began.Add(pollAtMost):
	default:
		return m.adjust(now, r, failed)
	}
	m.polling, m.burst = false, true
	return true
}

// adjust changes the interval if that is better, or to be tried.
func (m *moderation) adjust(now hook.Instant, r rate, failed bool) (changed bool) {
	much := plenty * m.eager.bytes * pollWindow * int(m.interval/shortestInterval) // in so many reads, polled
	arrived := r.bytes * m.eager.reads
	switch {
	case failed:
		m.interval /= 2
		m.grows.failed(now)
	case m.interval > shortestInterval && arrived < much/4*3:
		m.interval = shortestInterval
	case m.interval < longestInterval && arrived >= much && now >= m.grows.until:
		m.interval *= 2
		m.trial, m.against = true, r
		return true
	default:
		if m.trial {
			m.trial, m.begins.length = false, 0
		}
		return false
	}
	m.trial = false
	return true
}

// slower reports whether a rate is clearly less than another.
func (r rate) slower(than rate) bool {
	return float64(r.bytes)/float64(r.over) < 0.9*float64(than.bytes)/float64(than.over)
}
