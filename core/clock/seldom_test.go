package clock

import (
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

func TestSeldom(t *testing.T) {
	var s Seldom
	now := hook.Instant(1)
	for i, want := range []struct {
		after   time.Duration
		should  bool
		skipped int
	}{{0, true, 0}, {0, false, 0}, {time.Second - 1, false, 0}, {1, true, 2}, {time.Second, true, 0}} {
		now = now.Add(want.after)
		if should, skipped := s.Next(now); should != want.should || skipped != want.skipped {
			t.Errorf("line %d: %v, %d", i, should, skipped)
		}
	}
}
