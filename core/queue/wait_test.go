package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

func heldTimes(q *Queue) (at []hook.Instant) {
	q.HeldFrom(0, 0, func(m *Held) bool { at = append(at, m.Until); return true })
	return at
}

func waiting(id uint64, w Wait) Message {
	m := message(id, 100)
	m.Wait = w
	return m
}

// What a publisher asks for counts whether the queue has hooks or not, and whatever they say.
func TestPublishersWaits(t *testing.T) {
	keep := func(hook.Instant, []hook.Message, []hook.Verdict) {}
	for _, tc := range []struct {
		name      string
		onEnqueue func(hook.Instant, []hook.Message, []hook.Verdict)
		want      []hook.Instant
	}{
		{"no hooks", nil, []hook.Instant{3 * second, 6 * second}},
		{"hooks that leave it", keep, []hook.Instant{3 * second, 6 * second}},
		{"hooks that hold longer", func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) {
			for i := range vs {
				vs[i].Hold = max(vs[i].Hold, now.Add(2*time.Second))
			}
		}, []hook.Instant{3 * second, 3 * second, 3 * second, 6 * second}},
		{"hooks that forget it", func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) { clear(vs) }, []hook.Instant{3 * second, 6 * second}},
		{"hooks that panic", func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) { clear(vs); panic("oh") }, []hook.Instant{3 * second, 6 * second}},
	} {
		q, _ := passive(t, Config{}, hook.Hooks{OnEnqueue: tc.onEnqueue})
		q.enqueue(second, batchOf(waiting(1, 0), waiting(2, WaitUntil(6*second)), waiting(3, WaitFor(2*time.Second)), waiting(4, WaitUntil(second))))
		if got := heldTimes(q); !slices.Equal(got, tc.want) {
			t.Errorf("%s: held until %d, want %d", tc.name, got, tc.want)
		}
		checkSums(t, q)
	}
}
