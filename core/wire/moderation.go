package wire

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// moderation decides when to poll a connection instead of reading as soon as bytes arrive.
//
// Many client libraries write each message separately, and a system with an idle processor
// wakes the reader for each of them. The wakeup costs more than all other work for the
// message. The remedy is that of network drivers with interrupts: the reader of a
// connection that often brings little polls it, which means that it reads at intervals
// everything that has arrived.
//
// A peer that waits for confirms or deliveries sends less if they come later. Polling therefore begins with a trial. If less arrives
// than before, polling ends, and the pause before the next trial grows with every failure.
//
// While an interval brings as much as many reads did before, it is doubled, up to
// longestInterval, each time with a trial. Such a peer sends as fast as it can, and wakeups
// cost the peer and its consumers more than waiting does.
//
// moderation is plain data and belongs to the reader.
type moderation struct {
	polling  bool
	interval time.Duration // while polling

	// The current measurement.
	since hook.Instant
	reads int // reads that brought bytes
	empty int // reads that brought none
	bytes int

	burst   bool         // the measurement includes what accumulated while polling
	eager   rate         // the rate before polling began
	began   hook.Instant // when polling began
	trial   bool         // the measurement decides whether polling, or the longer interval, stays
	against rate         // the rate that the trial is compared with
	begins  pause        // pause between trials of polling
	grows   pause        // pause between trials of longer intervals
}

// pause is the time before a failed trial is repeated.
type pause struct {
	length time.Duration
	until  hook.Instant
}

// failed begins a longer pause.
func (p *pause) failed(now hook.Instant) {
	p.length = min(max(2*p.length, shortestWait), longestWait)
	p.until = now.Add(p.length)
}

// rate is an amount of input and the time in which it arrived.
type rate struct {
	bytes, reads int
	over         time.Duration
}

const (
	shortestInterval = 100 * time.Microsecond // the most that polling adds to a message's latency
	longestInterval  = 400 * time.Microsecond // the same while plenty arrives
	plenty           = 4                      // reads' worth of bytes in a shortestInterval that make the interval grow

	eagerWindow = 16               // reads
	hotWithin   = time.Millisecond // eagerWindow reads within this time start a trial
	thinRead    = 4 << 10          // bytes per read on average, at most, for a trial
	fatRead     = 32 << 10         // bytes of one read after which the next does not wait for a tick

	pollWindow = 40 // intervals

	maxPolledWait = 4 * time.Millisecond // polling ends when reading is blocked for longer than this

	shortestWait = 20 * time.Millisecond
	longestWait  = time.Second

	pollAtMost = time.Second // then the next trial begins, because the peer may wait for answers by now
)

// note counts a read of n bytes, which may be 0. It reports whether polling or interval changed.
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

// stop ends polling and discards the measurement, because reading stops for a while.
func (m *moderation) stop() { m.polling, m.since = false, 0 }

func (m *moderation) measured(now hook.Instant) rate {
	return rate{m.bytes, m.reads, max(now.Sub(m.since), 1)}
}

// consider begins to poll if many small reads come quickly.
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

// review ends polling if it saves nothing, or changes the interval.
func (m *moderation) review(now hook.Instant) (changed bool) {
	r := m.measured(now)
	idle := m.empty > pollWindow/2
	m.begin(now)
	failed := m.trial && r.slower(m.against)
	thin := r.bytes*m.eager.reads < 2*m.eager.bytes*pollWindow // an interval brings less than two reads did before
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

// adjust changes the interval, or ends a trial that did not fail.
func (m *moderation) adjust(now hook.Instant, r rate, failed bool) (changed bool) {
	much := plenty * m.eager.bytes * pollWindow * int(m.interval/shortestInterval) // bytes in pollWindow reads
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

// slower reports whether a rate is clearly lower than another.
func (r rate) slower(than rate) bool {
	return float64(r.bytes)/float64(r.over) < 0.9*float64(than.bytes)/float64(than.over)
}
