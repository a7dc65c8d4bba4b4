package heavy

import (
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestConformance(t *testing.T) {
	hooktest.Run(t, Factory, hooktest.Case{Name: "own", Queue: hooktest.Spec{Settings: map[string]any{"heavy-ttl": int32(500)}}})
}

func TestHeavyMessagesWaitLess(t *testing.T) {
	const now = hook.Instant(1_000_000_000)
	p := hooktest.New(t, Factory, hooktest.Section{"over": 100, "ttl": "2s"})
	for _, tc := range []struct {
		name     string
		settings map[string]any
		size     int
		start    hook.Instant
		want     hook.Instant
	}{
		{name: "light", size: 100},
		{name: "heavy", size: 101, want: now.Add(2 * time.Second)},
		{name: "queue with a time of its own", settings: map[string]any{"heavy-ttl": int32(500)}, size: 101, want: now.Add(500 * time.Millisecond)},
		{name: "due earlier anyway", size: 101, start: now + 1, want: now + 1},
	} {
		h := p.Attach(hooktest.NewQueue(hooktest.Spec{Settings: tc.settings}))
		vs := []hook.Verdict{{Deadline: tc.start}}
		h.OnEnqueue(now, hooktest.Messages(hook.Message{Enqueued: now, Size: tc.size}), vs)
		if vs[0].Deadline != tc.want {
			t.Errorf("%s: got deadline %d, want %d", tc.name, vs[0].Deadline, tc.want)
		}
	}
}
