package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// holdHooks hold messages until so many seconds after the instant 0 as their priority
// says, and expire them.
func holdHooks() hook.Hooks {
	h := ttlHooks(hook.ScanAnywhere, nil)
	stamp := h.OnEnqueue
	h.OnEnqueue = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		stamp(now, ms, vs)
		for i := range ms {
			vs[i].Hold = hook.Instant(ms[i].Priority) * second
		}
	}
	h.DeadlineFromReady = true
	return h
}

// heldUntil returns a persistent message that holdHooks hold.
func heldUntil(id uint64, seconds uint8) Message {
	m := persist(id)
	m.Priority = seconds
	return m
}

func wantStats(t *testing.T, q *Queue, ready, held, unacked int) {
	t.Helper()
	if s := q.Stats(); s.Ready != ready || s.Held != held || s.Unacked != unacked {
		t.Errorf("%d ready, %d held, %d unacknowledged, want %d, %d, %d", s.Ready, s.Held, s.Unacked, ready, held, unacked)
	}
	checkSums(t, q)
}

func TestOthersPassAHeldMessage(t *testing.T) {
	q, _ := passive(t, Config{}, holdHooks())
	q.enqueue(second, batchOf(heldUntil(1, 5), heldUntil(2, 0), heldUntil(3, 4), heldUntil(4, 1)))
	wantStats(t, q, 2, 2, 0)
	_, s := consume(t, q, Consumer{NoAck: true}, 100)
	wantIDs(t, "those that are not held", s.take(), 2, 4)
	q.enqueue(second, batchOf(heldUntil(5, 4)))
	if next := q.next(); next != 4*second {
		t.Errorf("the next tick is at %d, want at the first release", next)
	}
	q.tick(4*second - 1)
	wantIDs(t, "too early", s.take())
	q.tick(4 * second)
	wantIDs(t, "in their places", s.take(), 3, 5)
	q.tick(5 * second)
	wantIDs(t, "the last one", s.take(), 1)
	wantStats(t, q, 0, 0, 0)
	if q.nextRelease() != 0 {
		t.Error("a release is due of a queue that holds nothing")
	}
}

// A consumer that waits for messages without acknowledging them gets no held one.
func TestAHeldMessageIsNotHandedOverDirectly(t *testing.T) {
	q, _ := passive(t, Config{}, holdHooks())
	_, s := consume(t, q, Consumer{NoAck: true}, 100)
	q.enqueue(second, batchOf(heldUntil(1, 0), heldUntil(2, 2), heldUntil(3, 0)))
	wantIDs(t, "at once", s.take(), 1, 3)
	q.tick(2 * second)
	wantIDs(t, "later", s.take(), 2)
}

func TestATTLCountsFromTheRelease(t *testing.T) {
	q, h := passive(t, Config{}, holdHooks())
	m, zero := heldUntil(1, 10), heldUntil(2, 10)
	m.Expiration, zero.Expiration = hook.LimitOf(3000), hook.LimitOf(0)
	q.enqueue(second, batchOf(m, zero))
	q.tick(10 * second)
	wantStats(t, q, 2, 0, 0)
	q.tick(10*second + 1)
	if len(h.left) != 1 || h.left[0].reason != hook.ReasonExpired {
		t.Fatalf("left %v, want the one with TTL 0", h.left)
	}
	q.tick(13*second - 1)
	wantStats(t, q, 1, 0, 0)
	q.tick(13 * second)
	wantStats(t, q, 0, 0, 0)
}

// A deadline that comes before the end of the hold applies, unless the strategy counts
// from the release.
func TestAHeldMessageExpiresAtItsDeadline(t *testing.T) {
	hooks := holdHooks()
	hooks.DeadlineFromReady = false
	q, h := passive(t, Config{}, hooks)
	m := heldUntil(1, 10)
	m.Expiration = hook.LimitOf(2000)
	q.enqueue(second, batchOf(m))
	if next := q.next(); next != 3*second {
		t.Errorf("the next tick is at %d, want at the deadline", next)
	}
	q.tick(3 * second)
	if len(h.left) != 1 || h.left[0].reason != hook.ReasonExpired {
		t.Errorf("left %v, want the message, expired", h.left)
	}
	wantStats(t, q, 0, 0, 0)
}

// Where deadlines count from the release, those that others' code has set are points in
// time all the same.
func TestADeadlineOfOthersCodeDoesNotMoveWithAHold(t *testing.T) {
	for _, digest := range []uint64{0, 7} {
		hooks := holdHooks()
		stamp := hooks.OnEnqueue
		hooks.OnEnqueue = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			stamp(now, ms, vs)
			guest.SetDigest(&vs[0], digest)
		}
		q, _ := passive(t, Config{}, hooks)
		q.attach(second, hostChain(t, hooks))
		m := heldUntil(1, 5)
		m.Expiration = hook.LimitOf(2000)
		q.enqueue(second, batchOf(m))
		entered, moved := 7*second, 10*second
		if digest != 0 {
			entered, moved = 3*second, 3*second
		}
		r := heldRefs(q)[0]
		if got := q.HeldMessage(r).Deadline; got != entered {
			t.Errorf("digest %d: got the deadline %d, want %d", digest, got, entered)
		}
		q.MoveHeld(second, r, 8*second)
		if got := q.HeldMessage(r).Deadline; got != moved {
			t.Errorf("digest %d, moved: got the deadline %d, want %d", digest, got, moved)
		}
	}
}

// A held message that its hooks keep at its deadline is held on, until its own time: the
// hooks may not know that it is held, and the plugin that knows may have failed.
func TestAHeldMessageThatIsKeptAtItsDeadlineIsHeldOn(t *testing.T) {
	for _, tc := range []struct {
		name string
		keep func(now hook.Instant, v *hook.Verdict)
		want hook.Instant // its release
	}{
		{"a later deadline", func(now hook.Instant, v *hook.Verdict) { v.Deadline = now + 100*second }, 10 * second},
		{"no deadline", func(_ hook.Instant, v *hook.Verdict) { v.Deadline = 0 }, 10 * second},
		{"asked again", func(now hook.Instant, v *hook.Verdict) { v.Deadline, v.Again = now+second, true }, 10 * second},
		{"a deadline that is over", func(hook.Instant, *hook.Verdict) {}, 10 * second},
		{"a longer hold", func(now hook.Instant, v *hook.Verdict) { v.Deadline, v.Hold = 0, now+20*second }, 23 * second},
	} {
		hooks := holdHooks()
		hooks.DeadlineFromReady = false
		asked := 0
		hooks.OnHead = func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) {
			asked++
			tc.keep(now, &vs[0])
		}
		q, _, j := durable(t, Config{}, hooks)
		m := heldUntil(1, 10)
		m.Expiration = hook.LimitOf(2000)
		q.enqueue(second, batchOf(m))
		_, s := consume(t, q, Consumer{NoAck: true}, 100)
		q.tick(3 * second)
		wantStats(t, q, 0, 1, 0)
		q.commit(nil)
		restored := j.reborn(t, q)
		wantStats(t, restored, 0, 1, 0)
		if at := restored.nextRelease(); at != tc.want {
			t.Errorf("%s: released at %d after a restart, want %d", tc.name, at, tc.want)
		}
		for now := 3 * second; now < tc.want; now += second / 2 {
			q.tick(now)
			if got := s.take(); asked == 0 || len(got) > 0 {
				t.Fatalf("%s: %d messages are delivered at %d, hooks asked %d times", tc.name, len(got), now, asked)
			}
		}
		q.tick(tc.want)
		wantIDs(t, tc.name, s.take(), 1)
	}
}

func TestMoveHeld(t *testing.T) {
	q, _, j := durable(t, Config{}, holdHooks())
	m := heldUntil(1, 10)
	m.Expiration = hook.LimitOf(3000)
	q.enqueue(second, batchOf(m, heldUntil(2, 20), heldUntil(3, 30)))
	refs := heldRefs(q)
	for i, until := range []hook.Instant{40 * second, 5 * second} {
		if !q.MoveHeld(second, refs[i], until) {
			t.Fatalf("%v is not held", refs[i])
		}
	}
	if q.MoveHeld(second, 77, second) || q.MoveHeld(second, 1<<60, second) {
		t.Error("moved a message that is not there")
	}
	q.commit(nil)
	after := j.reborn(t, q)
	for _, q := range []*Queue{q, after} {
		if got := heldRefs(q); len(got) != 3 || got[0] != refs[1] || got[1] != refs[2] || got[2] != refs[0] {
			t.Errorf("held %v, want the second, the third, the first of %v", got, refs)
		}
		if at := q.at(refs[0]).deadline(); at != 43*second {
			t.Errorf("deadline %d, want it moved with the hold", at)
		}
	}
	if !q.MoveHeld(2*second, refs[2], 0) {
		t.Fatal("it is not held")
	}
	wantStats(t, q, 1, 2, 0)
	q.commit(nil)
	wantStats(t, j.reborn(t, q), 1, 2, 0)
}

func heldRefs(q *Queue) (refs []Ref) {
	q.HeldFrom(0, 0, func(h *Held) bool {
		refs = append(refs, h.Ref)
		return true
	})
	return refs
}

func TestCancelHeld(t *testing.T) {
	q, h, j := durable(t, Config{}, holdHooks())
	q.enqueue(second, batchOf(heldUntil(1, 10), heldUntil(2, 0), heldUntil(3, 30)))
	refs := heldRefs(q)
	if n := q.CancelHeld(second, refs[0], refs[0], 1, 99); n != 1 {
		t.Errorf("cancelled %d, want 1", n)
	}
	if len(h.left) != 1 || h.left[0].reason != hook.ReasonCancelled {
		t.Errorf("left %v, want one that was cancelled", h.left)
	}
	wantStats(t, q, 1, 1, 0)
	q.commit(nil)
	wantStats(t, j.reborn(t, q), 1, 1, 0)
}

// Messages that come back are held as OnReturn says, which knows how often and how they did.
func TestReturnedMessagesAreHeld(t *testing.T) {
	var asked []hook.Message
	hooks := hook.Hooks{OnReturn: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		asked = append(asked, ms[0])
		vs[0].Hold = now.Add(time.Duration(ms[0].Returns) * time.Second)
		vs[0].Deadline, vs[0].State = 1, 1 // which it may not set
	}}
	q, _, j := durable(t, Config{Profile: &Profile{DeliveryLimit: 10, Kind: Quorum}}, hooks)
	c, s := consume(t, q, Consumer{}, 100)
	q.enqueue(second, batchOf(persist(1)))
	now := second
	for i, kind := range []SettleKind{Requeue, Return, Requeue, Return} {
		if got := s.take(); len(got) != 1 {
			t.Fatalf("round %d: delivered %v", i, got)
		}
		q.settleAll(now, kind, []PendingAck{{Ref: 0, Consumer: c}})
		if m := asked[i]; m.Return != kind.comeback() || int(m.Returns) != i+1 || m.Why != hook.WhyRequeue {
			t.Errorf("round %d: asked about %+v", i, m)
		}
		wantStats(t, q, 0, 1, 0)
		now += hook.Instant(i+1) * second
		q.tick(now - 1)
		wantStats(t, q, 0, 1, 0)
		if i == 2 { // it still knows how often the message came back
			q.commit(nil)
			after := j.reborn(t, q)
			wantStats(t, after, 0, 1, 0)
			if n := after.holding.nacks[0]; n != 2 {
				t.Errorf("%d nacks after a restart, want 2", n)
			}
		}
		q.tick(now)
	}
	if at := q.at(0).deadline(); at != 0 {
		t.Errorf("deadline %d, which only OnRequeue may set", at)
	}
	q.settleAll(now, Ack, []PendingAck{{Ref: 0, Consumer: c}})
	if len(q.holding.nacks) != 0 {
		t.Error("it counts how often a message came back that has left")
	}
	wantStats(t, q, 0, 0, 0)
}

func TestAHeadHookHoldsForASecondAtLeast(t *testing.T) {
	asked := 0
	q, _ := passive(t, Config{}, hook.Hooks{
		Strategy:  true,
		OnEnqueue: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) { vs[0].AskHead = true },
		OnHead: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			if asked++; asked < 3 {
				vs[0].Hold = now + 1
			}
		},
	})
	_, s := consume(t, q, Consumer{NoAck: true}, 100)
	q.enqueue(second, batchOf(persist(1)))
	for now := second; now < 3*second; now += second {
		wantStats(t, q, 0, 1, 0)
		q.tick(now + second - 1)
		wantIDs(t, "within the second", s.take())
		q.tick(now + second)
	}
	wantIDs(t, "after two holds", s.take(), 1)
}

// Purging takes the ready messages alone, whether few or most of the messages are held.
func TestPurgeLeavesHeldMessages(t *testing.T) {
	for _, held := range []int{1, 20} {
		hooks := holdHooks()
		hooks.DeadlineFromReady = false
		q, _, j := durable(t, Config{}, hooks)
		for i := range held {
			m := heldUntil(uint64(i), 100)
			m.Expiration = hook.LimitOf(50_000)
			q.enqueue(second, batchOf(m))
		}
		q.enqueue(second, batchOf(persist(100), persist(101), persist(102)))
		if n := q.Purge(second); n != 3 {
			t.Errorf("purged %d, want 3", n)
		}
		wantStats(t, q, 0, held, 0)
		q.commit(nil)
		wantStats(t, j.reborn(t, q), 0, held, 0)
		q.tick(52 * second) // the deadline, which comes before the release
		wantStats(t, q, 0, 0, 0)
	}
}

// A held message stays held, with all that the queue knows of it, when its operations are
// written again.
func TestRelocatedMessagesStayHeld(t *testing.T) {
	q, _, j := durable(t, Config{}, holdHooks())
	q.enqueue(second, batchOf(heldUntil(1, 100), heldUntil(2, 0)))
	for range 20 { // a new extent begins
		q.enqueue(second, batchOf(message(9, 0), persist(3)))
	}
	q.commit(nil)
	for q.Relocate(j.extent - 1) {
	}
	j.trim()
	if j.entries[0].extent == 1 {
		t.Fatal("nothing was trimmed")
	}
	after := j.reborn(t, q)
	if got := heldRefs(after); len(got) != 1 || after.HeldMessage(got[0]).Until != 100*second || !after.HeldMessage(got[0]).Unready {
		t.Errorf("held %v, want the first message", got)
	}
}

// A message that was released, delivered, and is there after a restart may be a redelivery;
// one that is still held is none.
func TestRedeliveredAfterARestart(t *testing.T) {
	q, _, j := durable(t, Config{}, holdHooks())
	q.enqueue(0, batchOf(heldUntil(1, 1), heldUntil(2, 50), heldUntil(3, 0)))
	consume(t, q, Consumer{}, 100)
	q.tick(second)
	q.journalDelivered()
	q.commit(nil)
	after := j.reborn(t, q) // at one second
	wantStats(t, after, 2, 1, 0)
	after.tick(50 * second)
	_, s := consume(t, after, Consumer{}, 100)
	for i, want := range []bool{true, false, true} {
		if s.got[i].Redelivered != want {
			t.Errorf("message %d: redelivered %t, want %t", i+1, s.got[i].Redelivered, want)
		}
	}
}

func TestDeletingAQueueCountsItsHeldMessages(t *testing.T) {
	q, _ := passive(t, Config{}, holdHooks())
	q.enqueue(second, batchOf(heldUntil(1, 100)))
	if _, err := q.Delete(false, true); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("if-empty: %v, want %v", err, ErrNotEmpty)
	}
	if _, err := q.Delete(false, false); err != nil {
		t.Fatal(err)
	}
	if s := q.Stats(); s.Deleted != 1 || s.Held != 0 {
		t.Errorf("%+v, want one deleted", s)
	}
}

// A queue that ends released what it held before it dead-lettered that, as many as a turn may: if it was used meanwhile, consumers
// got messages long before their time.
func TestAQueueThatIsUsedHoldsWhatItHeld(t *testing.T) {
	hooks := farewell(&hook.Target{})
	hooks.OnEnqueue = holdHooks().OnEnqueue
	q, h := passive(t, Config{}, hooks)
	for i := range 500 {
		q.enqueue(second, batchOf(persist(uint64(i))))
		q.enqueue(second, batchOf(heldUntil(uint64(i), 100)))
	}
	for n := 0; q.ready > 0 || q.Stats().Held == 500; n++ {
		if n > 100_000 {
			t.Fatalf("the queue does not end: %+v, %d depart, in line %t", q.Stats(), len(q.departing.list), q.mailbox.inLine)
		}
		q.tick(2 * second)
		if len(h.released) > 0 {
			t.Fatalf("%d were released early", len(h.released))
		}
	}
	wantStats(t, q, 0, 500-maxBatch, 0)
	q.Touch(2 * second)
	q.tick(2 * second)
	wantStats(t, q, 0, 500-maxBatch, 0)
}

// What was known of purged messages that had come back stayed in memory, as long as the queue held another one.
func TestPurgeForgetsWhatCameBack(t *testing.T) {
	hooks := holdHooks()
	hooks.OnReturn = func(hook.Instant, []hook.Message, []hook.Verdict) {}
	q, _, _ := durable(t, Config{}, hooks)
	q.enqueue(second, batchOf(heldUntil(1, 100), persist(2), persist(3), persist(4)))
	q.settleAll(second, Requeue, takeOne(t, q, second))
	if n := len(q.holding.nacks); n != 1 {
		t.Fatalf("%d came back, want 1", n)
	}
	q.Purge(second)
	wantStats(t, q, 0, 1, 0)
	if n := len(q.holding.nacks); n != 0 {
		t.Errorf("%d are known of that are gone", n)
	}
}

// A held message was never delivered. It was redelivered after a restart, if it had been relocated and messages behind it were
// delivered.
func TestRelocatedMessagesAreNoRedeliveries(t *testing.T) {
	q, _, j := durable(t, Config{}, holdHooks())
	q.enqueue(second, batchOf(heldUntil(1, 100), heldUntil(2, 0)))
	for range 20 { // a new extent begins
		q.settleAll(second, Ack, takeOne(t, q, second))
		q.enqueue(second, batchOf(persist(3)))
		q.commit(nil)
	}
	for q.Relocate(j.extent - 1) {
	}
	j.trim()
	q.Purge(second)
	q.commit(nil)
	after := j.reborn(t, q)
	after.tick(100 * second)
	_, s := consume(t, after, Consumer{}, 100)
	if len(s.got) != 1 || s.got[0].Redelivered {
		t.Errorf("got %+v, want the first message, for the first time", s.got)
	}
}

// A message that was held when it was relocated, and delivered later, is redelivered after a restart: what the journal said of deliveries
// may have been trimmed with the original.
func TestRelocatedMessagesAreRedelivered(t *testing.T) {
	q, _, j := durable(t, Config{}, holdHooks())
	q.enqueue(second, batchOf(heldUntil(1, 2), heldUntil(2, 0)))
	q.settleAll(second, Ack, takeOne(t, q, second))
	for range 20 { // a new extent begins
		q.enqueue(second, batchOf(persist(3)))
	}
	for q.Relocate(j.extent - 1) {
	}
	j.trim()
	q.Purge(second)
	q.tick(2 * second)
	takeOne(t, q, 2*second)
	q.Flush()
	after := j.reborn(t, q)
	_, s := consume(t, after, Consumer{}, 100)
	if len(s.got) != 1 || !s.got[0].Redelivered {
		t.Errorf("got %+v, want the first message, again", s.got)
	}
}
