//go:build invariants

package chain

import (
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestKeptMessagesAreScribbledOver(t *testing.T) {
	var kept []hook.Message
	keep := func(_ hook.Instant, ms []hook.Message, _ []hook.Verdict) { kept = ms }
	seen := 0
	_, h := attach(t, at(onEnqueue, keep), at(onEnqueue, each(func(m *hook.Message, _ *hook.Verdict) { seen = m.Size })))
	ms := hooktest.Messages(hook.Message{Size: 5})
	h.Enqueue(1, ms, make([]hook.Verdict, 1))
	if kept[0].Size == 5 {
		t.Error("the plugin can still read what it kept")
	}
	if seen != 5 || ms[0].Size != 5 {
		t.Errorf("the next plugin saw size %d, the broker %d, want 5 for both", seen, ms[0].Size)
	}
	defer func() {
		if recover() == nil {
			t.Error("what it kept still has contents")
		}
	}()
	kept[0].Exchange()
}
