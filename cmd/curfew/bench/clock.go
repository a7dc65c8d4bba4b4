package bench

import "time"

// clock gives instants in nanoseconds since 1970 that never step: the wall clock as it was at the start, carried on by the
// monotonic one. Stamps of two generators on one machine can therefore be compared.
type clock struct {
	began time.Time
	wall  int64
}

func newClock() clock {
	now := time.Now()
	return clock{began: now, wall: now.UnixNano()}
}

func (c clock) now() int64 { return c.wall + int64(time.Since(c.began)) }

// nap sleeps until an instant, but no longer than it should take to notice that the run is over.
func (c clock) nap(p pacer, until int64) error {
	return p.sleep(min(time.Duration(until-c.now()), 100*time.Millisecond))
}

// pacer lets one goroutine sleep.
type pacer interface {
	sleep(d time.Duration) error
	Close() error
}

// schedule says when messages are to be sent: rate of them per second in even bursts, of a batch each or of what is due in a
// millisecond, whichever is less. It is the intended schedule: a generator that falls behind stamps messages with the time
// they should have left, so that a broker which stalls its publishers is charged for every message it held up.
type schedule struct {
	begin int64   // instant
	tick  float64 // nanoseconds
	burst float64 // messages in a tick, on average
	sent  int64
	ticks int64 // used up so far; tick k falls on begin + k*tick and brings the total due to (k+1)*burst
}

func newSchedule(begin int64, rate, batch float64) schedule {
	burst := max(1, min(batch, rate/1000))
	return schedule{begin: begin, tick: burst / rate * float64(time.Second), burst: burst}
}

// next is the instant at which the next message is to be sent.
func (s *schedule) next() int64 { return s.begin + int64(float64(s.ticks)*s.tick) }

// take hands out messages of the earliest tick that has come and is not used up: at most most of them, all intended for the
// instant at. It returns 0 when nothing is due.
func (s *schedule) take(now int64, most int64) (n, at int64) {
	for {
		at = s.next()
		if now < at {
			return 0, at
		}
		total := int64(float64(s.ticks+1)*s.burst + 1e-6)
		n = min(total-s.sent, most)
		if s.sent+n >= total {
			s.ticks++
		}
		if n > 0 {
			s.sent += n
			return n, at
		}
	}
}
