//go:build !race && !invariants

package queue

import (
	"testing"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Batches that leave cost no memory once the queue's room to work in has grown.
func TestTellingAllocatesNothing(t *testing.T) {
	q, _ := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, nil))
	q.host = recording{telemetry.New(telemetry.Options{Events: 10})}
	m := make([]Message, 64)
	for i := range m {
		m[i] = expiring(uint64(i), 0)
	}
	b := &Batch{Messages: m}
	if n := testing.AllocsPerRun(100, func() {
		q.takeIn(second, b.Messages)
		q.afterChange(second)
	}); n > 0 {
		t.Errorf("got %v allocations for 64 messages that expire at once, want none", n)
	}
}
