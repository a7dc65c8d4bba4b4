package clock

import (
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

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
