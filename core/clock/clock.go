// Package clock provides the broker's time.
package clock

import (
	"os"
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Clock returns the current time. It never goes back, and it does not follow steps of the wall clock while the broker runs: such a step
// would expire all messages, or none.
type Clock func() hook.Instant

// New returns a clock that starts at the wall clock's time.
func New() Clock {
	start := time.Now()
	base := hook.Instant(Machine())
	return func() hook.Instant { return base + hook.Instant(time.Since(start)) }
}

// Machine returns the time of the machine's clock in nanoseconds since the Unix epoch. That
// clock is adjusted now and then, also backwards. In programs that test machines with
// different clocks, an environment variable sets it ahead.
func Machine() int64 { return time.Now().Add(wrong).UnixNano() }

// Seldom limits log lines of a kind to one per second, for events that strangers can cause at no cost: otherwise they could fill the
// disk. Any goroutine may use it.
type Seldom struct {
	mu      sync.Mutex // guards the fields below
	last    hook.Instant
	skipped int // since then
}

// Next reports whether to log a line, and how many were not logged before it.
func (s *Seldom) Next(now hook.Instant) (should bool, skipped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != 0 && now.Sub(s.last) < time.Second {
		s.skipped++
		return false, 0
	}
	skipped, s.skipped, s.last = s.skipped, 0, now
	return true, skipped
}

// variable is the name of an environment variable that sets how far the clock is ahead of
// the machine's, such as -450ms. Only the linker sets this variable, for programs that test
// machines with different clocks.
var variable string

var wrong = ahead(variable)

func ahead(variable string) time.Duration {
	text := ""
	if variable != "" {
		text = os.Getenv(variable)
	}
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(variable + ": " + err.Error())
	}
	return d
}
