package telemetry

import (
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

func TestRemembered(t *testing.T) {
	r := newRing(3, 0)
	if n, most, since := r.Remembered(); n != 0 || most != 3 || since != 0 {
		t.Errorf("an empty ring: got %d of %d since %d", n, most, since)
	}
	r.notice(1, &Notice{Kind: AlarmRaised, Name: "memory"})
	for at := hook.Instant(10); at < 15; at++ {
		r.removed(&QueueRef{Queue: "q"}, at, []Removal{{Reason: hook.ReasonExpired}})
	}
	if n, most, since := r.Remembered(); n != 3 || most != 3 || since != 12 {
		t.Errorf("after five events of messages: got %d of %d since %d, want 3 of 3 since 12", n, most, since)
	}
}
