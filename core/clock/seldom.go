package clock

import (
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Seldom lets one log line of a kind through each second, for what strangers can cause at no cost: a line for each would let them fill the
// disk. Any goroutine may use it.
type Seldom struct {
	mu      sync.Mutex // guards what follows
	last    hook.Instant
	skipped int // since then
}

// Next reports whether to log a line, and how many before it were not logged.
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
