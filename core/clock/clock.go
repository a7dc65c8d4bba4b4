// Package clock provides the broker's time.
package clock

import (
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
