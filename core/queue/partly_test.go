package queue

import (
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A purge forgot which queues have a message that a consumer had meanwhile: when it was sent again, they got it twice.
func TestAPurgeForgetsNothingOfWhatStays(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	q.enqueue(second, batchOf(message(1, 0), message(2, 0), message(3, 0)))
	to := &hook.Target{Key: "k", HasKey: true}
	q.noteHave(ref(0, 0), to, []uint64{5})
	q.noteHave(ref(0, 1), to, []uint64{6})
	q.noteReturn(2*second, ref(0, 0), second)
	q.noteReturn(2*second, ref(0, 1), second)
	q.Get(second, &Consumer{}, func(Delivery, int) {})
	if n := q.Purge(second); n != 2 {
		t.Fatalf("%d were purged", n)
	}
	if have := q.have(ref(0, 0), to); len(have) != 1 || !q.overstayed(ref(0, 0)) {
		t.Errorf("it is in %v; overstayed: %t", have, q.overstayed(ref(0, 0)))
	}
	if len(q.partly) != 1 || len(q.overstays) != 1 {
		t.Errorf("%d and %d are remembered, want 1", len(q.partly), len(q.overstays))
	}
	q.close()
}
