package queue

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// toDead is what a relay says that messages entered.
var toDead = &telemetry.Entered{Names: []string{"dead"}}

// relay is a host whose routes lead to as many queues as it says.
type relay struct {
	told
	targets  int
	filters  bool     // the exchange does not admit what it is asked about for the first time
	again    int      // messages that were not
	sent     []*Batch // one for each target
	tracking Tracking
}

func (r *relay) DeadLetter(_ *Config, _ hook.Instant, ds []DeadLetter, t Tracking) {
	r.tracking, r.sent = t, nil
	for i := range ds {
		if ds[i].Admitted {
			r.again++
		} else if r.filters {
			ds[i].Outcome = telemetry.Filtered
			return
		}
	}
	for n := range r.targets {
		to := &Mailbox{broker: testBroker, order: uint64(n) + 1}
		b := NewBatch()
		b.Tracking, b.to = t, to
		for i := range ds {
			ds[i].Admitted, ds[i].Entered, ds[i].Outcome = true, toDead, telemetry.DeadLettered
			if ds[i].Has(to) {
				continue
			}
			b.Messages = append(b.Messages, Message{Seq: ds[i].Seq})
			ds[i].Sent++
		}
		if len(b.Messages) > 0 {
			r.sent = append(r.sent, b)
		}
	}
	t.Expect(len(r.sent), ds)
}

func (r *relay) Deleted(*Mailbox, Deletion) {}

// atLeastOnce returns a queue of one message that is on its way.
func atLeastOnce(t *testing.T, targets int) (*Mailbox, *relay) {
	t.Helper()
	r := &relay{targets: targets}
	s, _ := live(t, ttlHooks(hook.ScanAnywhere, &hook.Target{AtLeastOnce: true}))
	now := second
	s.clock = func() hook.Instant { return now }
	s.queue.host = r
	s.queue.buf = new(turnBuffers)
	s.queue.enqueue(second, batchOf(expiring(1, 0)))
	return s, r
}

func discarded(t *testing.T, s *Mailbox) (n int, dead uint64) {
	t.Helper()
	st := stats(t, s)
	if st.Ready+st.Unacked != 0 {
		t.Fatalf("%d ready, %d unacked", st.Ready, st.Unacked)
	}
	return st.Discarded, st.DeadLettered[hook.ReasonExpired]
}

// settle answers a batch and waits until the queue has heard of it.
func settle(b *Batch, refuse bool) {
	if refuse {
		b.Messages[0].Flags |= Refused
	}
	b.kept.answer(b, nil)
	synctest.Wait()
}

func TestAMessageStaysUntilEveryQueueHasTakenIt(t *testing.T) { synctest.Test(t, stays) }

func stays(t *testing.T) {
	t.Helper()
	s, r := atLeastOnce(t, 2)
	settle(r.sent[0], false)
	if n, _ := discarded(t, s); n != 1 {
		t.Fatalf("%d discarded with one answer of two, want 1", n)
	}
	settle(r.sent[1], false)
	if n, dead := discarded(t, s); n != 0 || dead != 1 {
		t.Errorf("%d discarded, %d dead-lettered; want 0 and 1", n, dead)
	}
	if e := r.left[0].entered; e != toDead {
		t.Errorf("entered %v", e)
	}
}

// A message that a strategy turns away when it comes in was sent on once, arrived or not.
func TestAMessageThatIsTurnedAwayStaysToo(t *testing.T) { synctest.Test(t, turnedAwayStays) }

func turnedAwayStays(t *testing.T) {
	t.Helper()
	r := &relay{targets: 1}
	target := &hook.Target{AtLeastOnce: true}
	s, _ := live(t, hook.Hooks{OnEnqueue: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		vs[1] = hook.Verdict{Action: hook.Route, Reason: hook.ReasonExpired, Target: target, Deadline: second}
	}})
	s.clock = func() hook.Instant { return second }
	q := &s.queue
	q.host, q.buf = r, new(turnBuffers)
	q.enqueue(second, batchOf(message(1, 0), message(2, 0), message(3, 0)))
	q.buf = nil
	if st := stats(t, s); st.Ready != 2 || st.Unacked != 0 || st.Discarded != 1 {
		t.Fatalf("%d ready, %d unacked, %d on their way; want 2, 0, 1", st.Ready, st.Unacked, st.Discarded)
	}
	settle(r.sent[0], false)
	if st := stats(t, s); st.Discarded != 0 || st.DeadLettered[hook.ReasonExpired] != 1 {
		t.Errorf("%d on their way, %d dead-lettered; want 0, 1", st.Discarded, st.DeadLettered[hook.ReasonExpired])
	}
}

// A message that a filter keeps out when it is sent first is not sent again; one that was sent is not asked about again.
func TestFilteredMessagesAreNotSentAgain(t *testing.T) { synctest.Test(t, filteredOnce) }

func filteredOnce(t *testing.T) {
	t.Helper()
	s, r := atLeastOnce(t, 1)
	settle(r.sent[0], true)
	q := &s.queue
	r.filters = true
	q.buf = new(turnBuffers)
	q.tick(second.AddMillis(retryMillis))
	q.buf = nil
	if n, _ := discarded(t, s); n != 1 || r.again != 1 {
		t.Fatalf("%d discarded, %d sent again; want 1 and 1", n, r.again)
	}
	settle(r.sent[0], false)
	if n, dead := discarded(t, s); n != 0 || dead != 1 {
		t.Fatalf("%d discarded, %d dead-lettered; want 0 and 1", n, dead)
	}
	q.buf = new(turnBuffers)
	q.enqueue(second, batchOf(expiring(2, 0)))
	q.buf = nil
	if n, dead := discarded(t, s); n != 0 || dead != 2 {
		t.Errorf("a filtered message: %d discarded, %d gone; want 0 and 2", n, dead)
	}
}

func TestAMessageThatDidNotArriveIsSentAgain(t *testing.T) { synctest.Test(t, sentAgain) }

func sentAgain(t *testing.T) {
	t.Helper()
	for _, tc := range []struct {
		name    string
		targets int
	}{{"refused", 1}, {"no route", 0}} {
		s, r := atLeastOnce(t, tc.targets)
		for _, b := range r.sent {
			settle(b, true)
		}
		q := &s.queue
		if n, dead := discarded(t, s); n != 1 || dead != 0 {
			t.Fatalf("%s: %d discarded, %d dead-lettered; want 1 and 0", tc.name, n, dead)
		}
		want := second.AddMillis(retryMillis)
		if q.next() != want {
			t.Fatalf("%s: next at %v, want %v", tc.name, q.next(), want)
		}
		r.targets, r.sent = 1, nil
		q.buf = new(turnBuffers)
		q.tick(want)
		q.buf = nil
		settle(r.sent[0], false)
		if n, dead := discarded(t, s); n != 0 || dead != 1 {
			t.Errorf("%s: sent again, %d discarded, %d dead-lettered; want 0 and 1", tc.name, n, dead)
		}
	}
}

// While others waited for room, a message that died later was sent at once: those that are to arrive at least once overtook one
// another.
func TestForwardedMessagesDoNotOvertakeThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ownTraffic(t)
		g := &graveyard{}
		s, _ := live(t, ttlHooks(hook.ScanAnywhere, &hook.Target{AtLeastOnce: true}))
		s.queue.host = g
		testBroker.underway.bytes.Add(trafficLimit) // of others
		_ = s.Do(func(q *Queue, now hook.Instant) {
			var held []PendingAck
			for id := range uint64(2 * maxBatch) {
				q.enqueue(now, batchOf(message(id, 4096)))
				q.Get(now, &Consumer{}, func(d Delivery, _ int) { held = append(held, PendingAck{Ref: d.Ref}) })
			}
			q.settleAll(now, Reject, held[:3])
			testBroker.underway.bytes.Add(-departBytes) // too little for those who wait to be told
			q.settleAll(now, Reject, held[3:])
			testBroker.underway.bytes.Add(departBytes)
		})
		testBroker.underway.remove(trafficLimit)
		for range 20 {
			g.land()
		}
		if len(g.ids) != 2*maxBatch || !slices.IsSorted(g.ids) || testBroker.underway.bytes.Load() != 0 {
			t.Errorf("sent %d: %v", len(g.ids), g.ids)
		}
	})
}

// One of two queues refused a message again and again, and the other one got a copy each time.
func TestAQueueThatHasAMessageDoesNotGetItAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := atLeastOnce(t, 3)
		q, now := &s.queue, second
		again := func() {
			now = now.AddMillis(retryMillis)
			q.buf = new(turnBuffers)
			q.tick(now)
			q.buf = nil
		}
		settle(r.sent[0], false)
		settle(r.sent[1], true)
		settle(r.sent[2], true)
		for refuses := range 2 {
			if again(); len(r.sent) != 2-refuses {
				t.Fatalf("sent to %d queues, want the %d that have refused it", len(r.sent), 2-refuses)
			}
			settle(r.sent[0], false)
			if refuses == 0 {
				settle(r.sent[1], true)
			}
		}
		if n, dead := discarded(t, s); n != 0 || dead != 1 || len(q.partly) != 0 {
			t.Errorf("%d discarded, %d dead-lettered, %d remembered; want 0, 1, 0", n, dead, len(q.partly))
		}
	})
}

// The queue that refuses a message is unbound: all that are left have it.
func TestAMessageLeavesWhenTheQueueThatRefusedItIsUnbound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := atLeastOnce(t, 2)
		settle(r.sent[0], false)
		settle(r.sent[1], true)
		q := &s.queue
		r.targets = 1
		q.buf = new(turnBuffers)
		q.tick(second.AddMillis(retryMillis))
		q.buf = nil
		if n, dead := discarded(t, s); n != 0 || dead != 1 || len(r.sent) != 0 {
			t.Errorf("%d discarded, %d dead-lettered, sent to %d queues; want 0, 1, 0", n, dead, len(r.sent))
		}
	})
}
