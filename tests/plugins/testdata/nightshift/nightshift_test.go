package nightshift

import (
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestConformance(t *testing.T) {
	hooktest.Run(t, Factory, hooktest.Case{
		Name: "with a ttl", Queue: hooktest.Spec{Strategy: strategy, Settings: map[string]any{"nightshift-ttl": int64(500)}},
	})
}

func TestNobodyExpiresAtNight(t *testing.T) {
	at := func(hour, minute int) hook.Instant {
		return hook.Instant(time.Date(2026, 11, 22, hour, minute, 0, 0, time.UTC).UnixNano())
	}
	p := hooktest.New(t, Factory, hooktest.Section{"from": "22h", "to": "6h"})
	h := p.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: strategy, Settings: map[string]any{"nightshift-ttl": int64(60_000)}}))
	for _, tc := range []struct {
		name          string
		enqueued, due hook.Instant
	}{
		{"by day", at(12, 0), at(12, 1)},
		{"the last minute", at(21, 58), at(21, 59)},
		{"at nightfall", at(21, 59), at(30, 0)},
		{"after midnight", at(1, 0), at(6, 0)},
		{"at dawn", at(5, 59), at(6, 0)},
	} {
		vs := make([]hook.Verdict, 1)
		h.OnEnqueue(tc.enqueued, hooktest.Messages(hook.Message{Enqueued: tc.enqueued}), vs)
		if vs[0].Deadline != tc.due {
			t.Errorf("%s: got %s, want %s", tc.name, vs[0].Deadline.Time(), tc.due.Time())
		}
	}
}
