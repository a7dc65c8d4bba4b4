package queue

import (
	"slices"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// limited are holdHooks with limits for what is released.
func limited(length, bytes hook.Limit, drop bool) hook.Hooks {
	h := holdHooks()
	h.ReleaseLength, h.ReleaseBytes, h.DropReleased = length, bytes, drop
	return h
}

// A full queue holds messages on. It looks again each second, and as soon as it is empty.
func TestAFullQueueReleasesNothing(t *testing.T) {
	q, _ := passive(t, Config{}, limited(hook.LimitOf(2), 0, false))
	q.enqueue(second, batchOf(heldUntil(1, 0), heldUntil(2, 5), heldUntil(3, 5), heldUntil(4, 6)))
	q.tick(5 * second)
	wantStats(t, q, 2, 2, 0)
	if next := q.next(); next != 6*second {
		t.Errorf("looks again at %d, want a second later", next)
	}
	q.tick(5*second + 1)
	wantStats(t, q, 2, 2, 0)
	q.settleAll(5*second+2, Ack, takeOne(t, q, 5*second+2))
	wantStats(t, q, 1, 2, 0)
	q.tick(6 * second)
	wantStats(t, q, 2, 1, 0)
	for range 2 {
		q.settleAll(6*second+3, Ack, takeOne(t, q, 6*second+3))
	}
	if next := q.next(); next > 6*second+3 {
		t.Errorf("an empty queue looks again at %d", next)
	}
	q.tick(6*second + 4)
	wantStats(t, q, 1, 0, 0)
}

// takeOne gets a message.
func takeOne(t *testing.T, q *Queue, now hook.Instant) (taken []PendingAck) {
	t.Helper()
	if !q.Get(now, &Consumer{Sink: &sink{}}, func(d Delivery, _ int) { taken = []PendingAck{{Ref: d.Ref}} }) {
		t.Fatal("there is no message")
	}
	return taken
}

// What consumers take at once does not count: nothing waits for a second because of them.
func TestReleasesForConsumers(t *testing.T) {
	q, _ := passive(t, Config{}, limited(hook.LimitOf(1), 0, false))
	_, s := consume(t, q, Consumer{}, 100)
	q.enqueue(second, batchOf(heldUntil(1, 5), heldUntil(2, 5), heldUntil(3, 5)))
	q.tick(5 * second)
	wantIDs(t, "all at once", s.take(), 1, 2, 3)
}

// Consumers that acknowledge nothing take messages while others are released, and what is left is moved together.
func TestManyReleasesForAConsumerThatAcknowledgesNothing(t *testing.T) {
	const held = chunkSlots + 8
	q, _ := passive(t, Config{}, limited(hook.LimitOf(1), 0, false))
	for id := range uint64(held) {
		q.enqueue(second, batchOf(heldUntil(id, 5)))
	}
	_, s := consume(t, q, Consumer{NoAck: true}, held)
	for now := 5 * second; q.next() != 0 && q.next() <= now; now++ {
		q.tick(now)
	}
	ids := s.take()
	if len(ids) != held {
		t.Errorf("%d were delivered, want %d", len(ids), held)
	}
	for i, id := range ids {
		if id != uint64(i) {
			t.Fatalf("message %d was delivered in place of %d", id, i)
		}
	}
	wantStats(t, q, 0, 0, 0)
}

func TestReleaseBytes(t *testing.T) {
	q, _ := passive(t, Config{}, limited(0, hook.LimitOf(50), false))
	q.enqueue(second, batchOf(heldUntil(1, 2), heldUntil(2, 2), heldUntil(3, 2)))
	size := int64(len(message(1, 0).Body))
	q.tick(2 * second)
	fit := int(max(50/max(size, 1), 1)) // a message that is larger than the limit gets into an empty queue
	wantStats(t, q, min(fit, 3), 3-min(fit, 3), 0)
}

// A queue that drops what comes when it is full drops what is released, too: for its
// reason, and to its dead-letter exchange.
func TestAFullQueueDropsWhatIsReleased(t *testing.T) {
	target := &hook.Target{Exchange: "dlx"}
	hooks := limited(hook.LimitOf(1), 0, true)
	hooks.OnHead = func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			if vs[i].Action == hook.Drop {
				vs[i].Action, vs[i].Target = hook.Route, target
			}
		}
	}
	q, h := passive(t, Config{}, hooks)
	q.enqueue(second, batchOf(heldUntil(1, 0), heldUntil(2, 5), heldUntil(3, 6)))
	q.tick(5 * second)
	wantStats(t, q, 1, 1, 0)
	if len(h.dead) != 1 || q.Stats().DeadLettered[hook.ReasonMaxLen] != 1 {
		t.Errorf("%d dead letters, counted %v", len(h.dead), q.Stats().DeadLettered)
	}
	q.tick(6 * second)
	wantStats(t, q, 1, 0, 0)
}

// Messages that were ready before are no longer new: they come back whatever the limits are.
func TestReturnedMessagesPassTheLimits(t *testing.T) {
	hooks := limited(hook.LimitOf(1), 0, false)
	hooks.OnReturn = func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			vs[i].Hold = now + second
		}
	}
	q, _ := passive(t, Config{}, hooks)
	q.enqueue(second, batchOf(heldUntil(1, 0), heldUntil(2, 0)))
	q.settleAll(2*second, Requeue, takeOne(t, q, second))
	wantStats(t, q, 1, 1, 0)
	q.tick(3 * second)
	wantStats(t, q, 2, 0, 0)
}

// Held messages count for a limit when they are released: then the head leaves.
func TestReleasedMessagesOverflow(t *testing.T) {
	hooks := holdHooks()
	hooks.Length = hook.LimitOf(2)
	q, h := passive(t, Config{}, hooks)
	q.enqueue(second, batchOf(heldUntil(1, 0), heldUntil(2, 0), heldUntil(3, 5), heldUntil(4, 5)))
	wantStats(t, q, 2, 2, 0)
	if len(h.left) > 0 {
		t.Errorf("%v left because of messages that are held", h.left)
	}
	q.tick(5 * second)
	wantStats(t, q, 2, 0, 0)
	if len(h.left) != 2 || h.left[0].reason != hook.ReasonMaxLen || q.nextRef() != ref(0, 2) {
		t.Errorf("left %v, want the head, because of the limit", h.left)
	}
}

// A new TTL counts from the release, too: for what is held, for what was, and after a restart.
func TestRestampingCountsFromTheRelease(t *testing.T) {
	hooks := ttlAndExpiration(hook.ScanAnywhere, hook.LimitOf(1000), true)
	stamp := hooks.OnEnqueue
	hooks.OnEnqueue = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		stamp(now, ms, vs)
		for i := range ms {
			vs[i].Hold = hook.Instant(ms[i].Priority) * second
		}
	}
	hooks.DeadlineFromReady = true
	q, _, j := durable(t, Config{}, hooks)
	q.enqueue(second, batchOf(heldUntil(1, 0), heldUntil(2, 5), heldUntil(3, 50)))
	longer := ttlAndExpiration(hook.ScanAnywhere, hook.LimitOf(20_000), true)
	longer.DeadlineFromReady = true
	want := []hook.Instant{21 * second, 25 * second, 70 * second}
	check := func(what string, q *Queue) {
		t.Helper()
		for i, at := range want {
			if got := q.at(ref(0, uint64(i))).deadline(); got != at {
				t.Errorf("%s: message %d has the deadline %d, want %d", what, i+1, got, at)
			}
		}
	}
	q.reconfigure(second, q.cfg, chainOf(t, longer), false)
	check("while it is held", q)
	q.tick(6 * second) // the second is ready, a second late
	want[1] += second
	check("at its release", q)
	q.reconfigure(6*second, q.cfg, chainOf(t, longer), false)
	check("after its release", q)
	q.commit(nil)
	q = j.reborn(t, q)
	q.reconfigure(6*second, q.cfg, chainOf(t, longer), false)
	check("after a restart", q)
}

// The TTL of a message went on while a full queue held the message beyond its time: the message expired as it was released. A deadline that
// is a point in time passes meanwhile, and the message expires then.
func TestTheTTLOfWhatAFullQueueHoldsOn(t *testing.T) {
	for _, counts := range []bool{true, false} {
		hooks := limited(hook.LimitOf(1), 0, false)
		hooks.DeadlineFromReady = counts
		q, h, j := durable(t, Config{}, hooks)
		m := heldUntil(2, 5)
		m.Expiration = hook.LimitOf(6000)
		q.enqueue(second, batchOf(heldUntil(1, 0), m))
		for now := 5 * second; now < 20*second; now += second {
			if q.tick(now); now == 6*second { // it waits for room
				q.commit(nil)
				q = j.reborn(t, q)
			}
		}
		if !counts {
			if len(h.left) != 1 || h.left[0].reason != hook.ReasonExpired {
				t.Errorf("a point in time: left %v, want the message, expired", h.left)
			}
			continue
		}
		wantStats(t, q, 1, 1, 0)
		q.settleAll(20*second, Ack, takeOne(t, q, 20*second)) // now there is room
		q.tick(20 * second)
		q.commit(nil)
		for what, q := range map[string]*Queue{"": q, "after a restart, ": j.reborn(t, q)} {
			if at := q.at(1).deadline(); at != 26*second {
				t.Errorf("%sits deadline is %d, want 6 s after its release", what, at)
			}
			q.tick(26*second - 1)
			wantStats(t, q, 1, 0, 0)
			q.tick(26 * second)
			wantStats(t, q, 0, 0, 0)
		}
	}
}

// A restart released all that was held beyond the end of its time, past the queue's limits. What had been released before the restart
// stays ready, also where there was no limit then.
func TestARestartKeepsLimitsOfReleases(t *testing.T) {
	for _, drop := range []bool{false, true} {
		for _, released := range []int{0, 2, 5} { // before
			hooks := limited(0, 0, drop)
			q, _, j := durable(t, Config{}, hooks)
			for id := range uint64(10) {
				q.enqueue(0, batchOf(heldUntil(id+1, 1)))
			}
			for _, r := range heldRefs(q)[:released] {
				q.MoveHeld(0, r, 0)
			}
			q.commit(nil)
			q.hooks = chainOf(t, limited(hook.LimitOf(2), 0, drop)).Attach((*pluginView)(q), &q.cfg.Hooks)
			again := j.reborn(t, q) // at 1 s
			again.tick(second)
			q.tick(second)
			a, b := q.Stats(), again.Stats()
			if a.Ready != max(2, released) || a.Ready != b.Ready || a.Held != b.Held || a.DeadLettered != b.DeadLettered || a.Dropped != b.Dropped {
				t.Errorf("drop %t, %d released before: without a restart %d ready, %d held; with one %d ready, %d held",
					drop, released, a.Ready, a.Held, b.Ready, b.Held)
			}
			again.commit(nil)
			wantStats(t, j.reborn(t, again), b.Ready, b.Held, 0)
		}
	}
}

// releasedBatch is messages that an exchange held until now.
func releasedBatch(ms ...Message) *Batch {
	for i := range ms {
		ms[i].Released = true
	}
	return batchOf(ms...)
}

// A full queue that refuses what is published lost what an exchange released into it, which was confirmed when it was published.
func TestAFullQueueLosesNothingThatAnExchangeReleases(t *testing.T) {
	hooks := limited(hook.LimitOf(2), 0, false)
	var q *Queue
	hooks.OnEnqueue = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) { // as the plugin maxlength
		ready := q.ready
		for i := range ms {
			if vs[i].Hold > now {
				continue
			}
			if ready++; ready > 2 {
				vs[i] = hook.Verdict{Action: hook.Refuse}
			}
		}
	}
	q, _, j := durable(t, Config{}, hooks)
	q.enqueue(second, releasedBatch(heldUntil(1, 0)))
	wantStats(t, q, 1, 0, 0)
	q.enqueue(second, releasedBatch(heldUntil(2, 0), heldUntil(3, 0), heldUntil(4, 0)))
	q.tick(second + 1)
	wantStats(t, q, 2, 2, 0)
	q.settleAll(second+2, Ack, takeOne(t, q, second+2))
	q.enqueue(second+2, releasedBatch(heldUntil(5, 0))) // there is room, and others wait for it
	q.commit(nil)
	for _, q := range []*Queue{q, j.reborn(t, q)} {
		var got []uint64
		for now := 2 * second; q.messages() > 0; now += second {
			q.tick(now)
			for _, d := range takeOne(t, q, now) {
				got = append(got, idOf(q.store.read(*q.at(d.Ref).slot()).body))
				q.settleAll(now, Ack, []PendingAck{d})
			}
			if now > 20*second {
				t.Fatalf("%d messages are left, %v came", q.messages(), got)
			}
		}
		if !slices.Equal(got, []uint64{2, 3, 4, 5}) {
			t.Errorf("got %v", got)
		}
		if n := q.Stats().Refused; n != 0 {
			t.Errorf("%d were refused", n)
		}
	}
}

// A plugin may refuse for other reasons, such as a policy that failed: then the message enters a second later.
func TestARefusalOfWhatAnExchangeReleases(t *testing.T) {
	hooks := holdHooks()
	hooks.OnEnqueue = func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			vs[i].Action = hook.Refuse
		}
	}
	q, _ := passive(t, Config{}, hooks)
	q.enqueue(second, releasedBatch(heldUntil(1, 0)))
	wantStats(t, q, 0, 1, 0)
	q.tick(2 * second)
	wantStats(t, q, 1, 0, 0)
}

// What an exchange released into a queue with little room overtook what it had released at the same instant, which waited: there was
// room for the later ones alone.
func TestReleasedMessagesWaitInOrder(t *testing.T) {
	q, _ := passive(t, Config{}, limited(hook.LimitOf(2), 0, false))
	q.enqueue(second, releasedBatch(heldUntil(1, 0)))
	q.enqueue(second, releasedBatch(heldUntil(2, 0), heldUntil(3, 0))) // both wait: there is room for one
	q.enqueue(second, releasedBatch(heldUntil(4, 0)))
	var got []uint64
	for now := second + 1; q.messages() > 0 && now < 20*second; now += second {
		q.tick(now)
		for q.ready > 0 {
			for _, d := range takeOne(t, q, now) {
				got = append(got, idOf(q.store.read(*q.at(d.Ref).slot()).body))
				q.settleAll(now, Ack, []PendingAck{d})
			}
		}
	}
	if !slices.Equal(got, []uint64{1, 2, 3, 4}) {
		t.Errorf("got %v", got)
	}
}
