package queue

import (
	"errors"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// lookAtAll returns the ids of all messages that a scan sees, and how many parts it took.
func lookAtAll(t *testing.T, q *Queue, s *Scan) (ids []uint64, parts int) {
	t.Helper()
	for done := false; !done; parts++ {
		done = s.Next(q, func(m *Stored) bool {
			if err := m.Load(); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, idOf(m.Body))
			return true
		})
	}
	return ids, parts
}

// Looking into a queue whose messages are on the disk leaves them there, and changes nothing that can be seen.
func TestScanLeavesSpilledBodiesOnTheDisk(t *testing.T) {
	spilling(t, 1<<20)
	q, h := passive(t, Config{}, hook.Hooks{})
	const n = 10_000
	for i := range uint64(n) {
		q.enqueue(second, batchOf(patterned(i, 1024)))
	}
	for range 3 { // what is being written is on the disk then
		q.endTurn(second)
	}
	before, resident, cached := q.Stats(), q.store.residentBytes, len(q.store.loaded)
	ids, parts := lookAtAll(t, q, NewScan(q))
	if len(ids) != n || !slices.IsSorted(ids) || ids[n-1] != n-1 {
		t.Errorf("%d messages were seen", len(ids))
	}
	if least := n * 1024 / segmentSize / 2; parts < least {
		t.Errorf("%d parts, want at least %d", parts, least)
	}
	if q.Stats() != before || q.store.residentBytes != resident || len(q.store.loaded) != cached || len(h.left) != 0 {
		t.Errorf("%+v and %d bytes in memory, before %+v and %d", q.Stats(), q.store.residentBytes, before, resident)
	}
	for i := range uint64(n) {
		q.Get(second, &Consumer{NoAck: true}, func(d Delivery, _ int) {
			if idOf(d.Body) != i {
				t.Fatalf("got %d, want %d", idOf(d.Body), i)
			}
		})
	}
	q.close()
}

// A page that cannot be read is an error of whoever looks, not the end of the queue.
func TestScanOfUnreadablePages(t *testing.T) {
	spilling(t, 1<<20)
	q, _ := passive(t, Config{}, hook.Hooks{})
	for i := range uint64(5000) {
		q.enqueue(second, batchOf(patterned(i, 1024)))
	}
	for range 3 {
		q.endTurn(second)
	}
	if testBroker.spill.InUse() == 0 {
		t.Fatal("nothing was spilled")
	}
	_ = testBroker.spill.Close()
	var failed error
	for s, done := NewScan(q), false; !done && failed == nil; {
		done = s.Next(q, func(m *Stored) bool {
			failed = m.Load()
			return failed == nil
		})
	}
	if !errors.Is(failed, errUnreadable) || q.stopped != nil {
		t.Errorf("%v, stopped: %v", failed, q.stopped)
	}
	q.close()
}

// A scan shows where each message is, whatever happens between two parts.
func TestScanStates(t *testing.T) {
	q, _ := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, nil))
	for i := range uint64(6) {
		m := message(i, 8)
		m.Expiration = hook.LimitOf(int64(1000 * (i + 1)))
		q.enqueue(second, batchOf(m))
	}
	q.Get(second, nil2(), func(Delivery, int) {})
	q.hold(q.at(3), 9*second)
	states := map[uint64]MessageState{}
	s := NewScan(q)
	for done := false; !done; {
		done = s.Next(q, func(m *Stored) bool {
			states[uint64(m.Ref)] = m.State
			if at := 2*second + hook.Instant(m.Ref)*second; m.Deadline != at || (m.Hold != 0) != (m.Ref == 3) {
				t.Errorf("%v: deadline %v, hold %v", m.Ref, m.Deadline, m.Hold)
			}
			return false // one at a time
		})
		if len(states) == 2 {
			q.Purge(second)
			q.enqueue(second, batchOf(message(9, 8)))
		}
	}
	if len(states) != 3 || states[0] != MessageUnacked || states[1] != MessageReady || states[3] != MessageHeld {
		t.Error(states)
	}
	var seen []Ref
	if left := s.LookAt(q, []Ref{3, 1, 0, 77}, func(m *Stored) { seen = append(seen, m.Ref) }); len(left) != 0 || !slices.Equal(seen, []Ref{3, 0}) {
		t.Errorf("%v, %v are left", seen, left)
	}
}

// What enters a queue behind a scan does not make it endless; it may begin behind any message, also one that has left.
func TestScanEnds(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	for i := range uint64(10) {
		q.enqueue(second, batchOf(message(i, 8)))
	}
	s := NewScan(q)
	s.After(4)
	n := 0
	for done := false; !done; n++ {
		done = s.Next(q, func(*Stored) bool { return false })
		q.enqueue(second, batchOf(message(99, 8)))
	}
	if n != 5 {
		t.Errorf("%d messages were seen, want 5", n)
	}
	for _, beyond := range []Ref{1 << 40, 1<<56 - 1, 1<<64 - 1, ref(3, 0)} {
		s := NewScan(q)
		s.After(beyond)
		for parts := 0; !s.Next(q, func(m *Stored) bool { return m.Ref < beyond }); parts++ {
			if parts > 20 {
				t.Fatalf("after %d: it does not end", beyond)
			}
		}
	}
}
