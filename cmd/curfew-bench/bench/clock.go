package bench

import "time"

// clock returns instants in nanoseconds since 1970 that never step: the wall clock at the start plus the monotonic time since then. The
// stamps of two generators on one machine can therefore be compared.
type clock struct {
	began time.Time
	wall  int64
}

func newClock() clock {
	now := time.Now()
	return clock{began: now, wall: now.UnixNano()}
}

func (c clock) now() int64 { return c.wall + int64(time.Since(c.began)) }

// nap sleeps until an instant, but at most 100 ms, so that the caller notices the end of the run soon.
func (c clock) nap(p pacer, until int64) error {
	return p.sleep(min(time.Duration(until-c.now()), 100*time.Millisecond))
}

// pacer lets one goroutine sleep.
type pacer interface {
	sleep(d time.Duration) error
	Close() error
}

// schedule returns when messages are to be sent: rate messages per second in even bursts, of a batch each or of the messages of one
// millisecond, whichever is less. For example, a rate of 8000 with a batch of 64 gives a burst of 8 messages every millisecond. A
// generator that falls behind stamps messages with the intended time, so that the latency includes the time for which a broker stalled
// its publishers.
type schedule struct {
	begin int64   // instant
	tick  float64 // nanoseconds
	burst float64 // messages in a tick, on average
	sent  int64
	ticks int64 // ticks that are complete; tick k is due at begin + k*tick, and then (k+1)*burst messages in total are due
}

func newSchedule(begin int64, rate, batch float64) schedule {
	burst := max(1, min(batch, rate/1000))
	return schedule{begin: begin, tick: burst / rate * float64(time.Second), burst: burst}
}

// next returns the instant at which the next message is to be sent.
func (s *schedule) next() int64 { return s.begin + int64(float64(s.ticks)*s.tick) }

// take returns how many messages of the earliest incomplete tick to send, at most most, all intended for the instant at. If none is
// due, n is 0 and at is the instant of the next.
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
