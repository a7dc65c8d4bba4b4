package queue

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/sdk/hook"
)

func waitFor(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// outcome is a source that is told once.
type outcome chan error

func (o outcome) Confirmed(*Batch)         { o <- nil }
func (o outcome) Failed(_ *Batch, e error) { o <- e }

func send(s *Mailbox, ms ...Message) error {
	b, o := batchOf(ms...), make(outcome, 1)
	b.Publisher = o
	s.Publish(b)
	return <-o
}

func TestAQueueStopsWithItsJournal(t *testing.T) { synctest.Test(t, stopsWithItsJournal) }

func stopsWithItsJournal(t *testing.T) {
	t.Helper()
	before := slab.Used()
	broken := errors.New("input/output error")
	j := &lockedJournal{}
	h := ttlHooks(hook.ScanAnywhere, &hook.Target{})
	h.OnIdle = lease(time.Minute).OnIdle
	s := keptIn(t, j, h, "q")[0]
	g := s.queue.host.(*graves)
	brief := expiring(1, time.Second)
	brief.Flags = Persistent
	if err := send(s, persist(0), brief, persist(2), message(3, 0)); err != nil {
		t.Fatal(err)
	}
	served := &sink{room: 1}
	held := &Consumer{Queue: s, Sink: served, Prefetch: 1}
	do := func(fn func(q *Queue, now hook.Instant)) {
		t.Helper()
		if err := s.Do(fn); err != nil {
			t.Fatal(err)
		}
	}
	do(func(q *Queue, now hook.Instant) {
		if err := q.AddConsumer(now, held); err != nil {
			t.Error(err)
		}
	})

	j.fail(broken)
	var stopped *StoppedError
	for _, m := range []Message{persist(4), message(4, 0)} {
		if err := send(s, m); !errors.As(err, &stopped) || !errors.Is(err, broken) {
			t.Errorf("got error %v", err)
		}
	}
	if served.stopped != 1 || len(served.take()) != 1 {
		t.Errorf("the consumer was told %d times", served.stopped)
	}
	s.Settle(Reject, []PendingAck{{Ref: 0, Consumer: held}})
	do(func(q *Queue, now hook.Instant) {
		if err := q.AddConsumer(now, &Consumer{Sink: served}); !errors.As(err, &stopped) || q.Stopped() != stopped {
			t.Errorf("a consumer gets error %v", err)
		}
		if q.Get(now, nil2(), func(Delivery, int) {}) || q.Purge(now) != 0 {
			t.Error("it still holds messages")
		}
		q.Touch(now)
		q.reconfigure(now, q.cfg, chainOf(t, h), false)
	})
	waitFor(time.Hour)
	g.mu.Lock()
	if len(g.died) > 0 {
		t.Errorf("%v died", g.died)
	}
	g.mu.Unlock()
	if st := stats(t, s); st.Ready != 2 || st.Unacked != 1 || st.Lost != 1 || st.Consumers != 0 {
		t.Errorf("%+v", st)
	}
	if got := slab.Used() - before; got != 0 {
		t.Errorf("%d bytes are still held", got)
	}
	do(func(q *Queue, _ hook.Instant) {
		checkSums(t, q)
		if _, err := q.Delete(false, false); err != nil {
			t.Error(err)
		}
		checkSums(t, q)
	})
	if err := s.Do(func(*Queue, hook.Instant) {}); !errors.Is(err, ErrGone) {
		t.Errorf("got error %v, want %v", err, ErrGone)
	}
}

// What a restart does not find is counted when the queue ends.
func TestAnEndCountsWhatIsLost(t *testing.T) {
	for _, tc := range []struct {
		name                    string
		durable                 bool
		lost                    int
		ready, unacked, discard int
	}{
		{"durable", true, 3, 2, 1, 1},
		{"in memory", false, 7, 0, 0, 0},
	} {
		h := ttlHooks(hook.ScanAnywhere, &hook.Target{AtLeastOnce: true})
		q, _ := passive(t, Config{Profile: &Profile{Kind: Quorum}}, h)
		j := &memoryJournal{}
		if tc.durable {
			q.cfg.Storage = &Storage{Journal: j, ID: 1}
		}
		q.host = &relay{targets: 1}
		q.enqueue(second, batchOf(persist(0), persist(1), message(2, 0), message(3, 0), persist(4), persist(5), message(6, 0)))
		for range 4 {
			q.Get(second, nil2(), func(Delivery, int) {})
		}
		q.settleAll(second, Reject, []PendingAck{{Ref: 1}, {Ref: 2}})
		if got := q.End(); got != tc.lost || q.End() != got {
			t.Errorf("%s: %d are lost, want %d", tc.name, got, tc.lost)
		}
		s := q.Stats()
		if s.Ready != tc.ready || s.Unacked != tc.unacked || s.Discarded != tc.discard || s.Lost != uint64(tc.lost) {
			t.Errorf("%s: %+v", tc.name, s)
		}
		if !tc.durable {
			continue
		}
		var redelivered []bool
		q = j.reborn(t, q)
		for q.Get(second, nil2(), func(d Delivery, _ int) { redelivered = append(redelivered, d.Redelivered) }) {
		}
		if len(redelivered) != 3 || !redelivered[0] || redelivered[1] || redelivered[2] {
			t.Errorf("%s: after a restart redelivered is %v", tc.name, redelivered)
		}
	}
}
