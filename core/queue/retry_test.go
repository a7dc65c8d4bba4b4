package queue

import (
	"testing"

	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A consumer with a prefetch of 1 that gave a message back gets it again when it has
// waited, also as the single active one.
func TestReturnedMessagesAreDeliveredAgain(t *testing.T) {
	for _, single := range []bool{false, true} {
		hooks := holdHooks()
		hooks.OnReturn = func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) {
			for i := range vs {
				vs[i].Hold = now + second
			}
		}
		q, _ := passive(t, Config{Profile: &Profile{SingleActive: single}}, hooks)
		c, s := consume(t, q, Consumer{Prefetch: 1}, 100)
		q.enqueue(second, batchOf(heldUntil(1, 0), heldUntil(2, 0)))
		wantIDs(t, "first", s.take(), 1)
		q.settleAll(2*second, Requeue, []PendingAck{{Ref: ref(0, 0), Consumer: c}})
		wantIDs(t, "the next", s.take(), 2)
		q.settleAll(2*second, Ack, []PendingAck{{Ref: ref(0, 1), Consumer: c}})
		q.tick(3*second - 1)
		wantIDs(t, "too early", s.take())
		q.tick(3 * second)
		wantIDs(t, "again", s.take(), 1)
	}
}

// A TTL that ends while a message waits for another delivery ends the wait. The only message of a queue stayed for the whole
// wait, if its deadline was in the sorted run.
func TestAReturnedMessageExpiresWhileItWaits(t *testing.T) {
	hooks := ttlAndExpiration(hook.ScanAnywhere, hook.LimitOf(3000), false)
	hooks.DeadlineFromReady = true
	hooks.OnReturn = func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			vs[i].Hold = now + 3600*second
		}
	}
	q, h := passive(t, Config{}, hooks)
	q.enqueue(second, batchOf(message(1, 10)))
	q.settleAll(2*second, Requeue, takeOne(t, q, second))
	wantStats(t, q, 0, 1, 0)
	if next := q.next(); next != 4*second {
		t.Errorf("the next tick is at %d, want at the deadline", next)
	}
	q.tick(4 * second)
	wantStats(t, q, 0, 0, 0)
	if len(h.dead) != 1 {
		t.Errorf("%d dead letters", len(h.dead))
	}
}

// Nacks that held no message were forgotten by a restart, and the next retry waited as if it were the first.
func TestCountsOfComebacksAreThereAfterARestart(t *testing.T) {
	var returns uint32
	hooks := hook.Hooks{OnReturn: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		if returns = ms[0].Returns; ms[0].Return == hook.ReturnFailed {
			vs[0].Hold = now + second
		}
	}}
	q, _, j := durable(t, Config{Profile: &Profile{DeliveryLimit: 100, Kind: Quorum}}, hooks)
	q.enqueue(second, batchOf(persist(1)))
	now := second
	for i, kind := range []SettleKind{Requeue, Requeue, Return, Requeue, LeaseEnd, Requeue, Requeue, Return} {
		q.settleAll(now, kind, takeOne(t, q, now))
		if returns != uint32(i+1) {
			t.Fatalf("settlement %d: the message came back %d times", i+1, returns)
		}
		now += second
		q.tick(now)
		q.commit(nil)
		if i%2 == 0 {
			q.Relocate(j.extent)
		}
		q = j.reborn(t, q)
		q.tick(now)
	}
	q.Get(now, nil2(), func(d Delivery, _ int) {
		if n, _ := parts.Header(headers(d.Props), "x-delivery-count"); n != int64(3) || !d.Redelivered {
			t.Errorf("x-delivery-count %v, redelivered %t, want 3, true", n, d.Redelivered)
		}
	})
}

// A message that came back past its deadline, and that hooks kept, was not redelivered, and a restart forgot its failure.
func TestAMessageThatHooksKeepComesBack(t *testing.T) {
	hooks := ttlHooks(hook.ScanLazy, nil)
	hooks.OnHead = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		if ms[0].Why == hook.WhyDue {
			vs[0] = hook.Verdict{Deadline: now + 100*second}
		}
	}
	for _, kind := range []SettleKind{Requeue, Return} {
		q, _, j := durable(t, Config{Profile: &Profile{DeliveryLimit: 10, Kind: Quorum}}, hooks)
		m := persist(1)
		m.Expiration = hook.LimitOf(1000)
		q.enqueue(second, batchOf(m))
		q.settleAll(5*second, kind, takeOne(t, q, second))
		q.commit(nil)
		for what, q := range map[string]*Queue{"": q, "after a restart, ": j.reborn(t, q)} {
			s := q.at(0).slot()
			if want := uint16(kind / Return); s.flags&redelivered == 0 || s.returns() != want || !s.is(stateReady) {
				t.Errorf("%skind %d: %x, %d returns, want it redelivered, %d", what, kind, s.flags, s.returns(), want)
			}
		}
	}
}

// A queue without retries writes as much for a nack as before.
func TestWhatANackWrites(t *testing.T) {
	count := func(hook.Instant, []hook.Message, []hook.Verdict) {}
	for _, tc := range []struct {
		name  string
		hooks hook.Hooks
		want  int
	}{
		{"without retries", hook.Hooks{}, opHeader + 8 + 2},
		{"with retries", hook.Hooks{OnReturn: count}, opHeader + 8 + 2 + opHeader + 8 + 8 + 1 + 2},
	} {
		q, _, j := durable(t, Config{}, tc.hooks)
		q.enqueue(second, batchOf(persist(1)))
		q.settleAll(second, Requeue, takeOne(t, q, second))
		q.commit(nil) // says how far messages were delivered, too
		n := len(j.entries)
		q.settleAll(second, Requeue, takeOne(t, q, second))
		q.commit(nil)
		if got := len(j.entries[n].ops); len(j.entries) != n+1 || got != tc.want {
			t.Errorf("%s: %d bytes in %d entries, want %d in one", tc.name, got, len(j.entries)-n, tc.want)
		}
		j.full = true
		for range 10 {
			q.settleAll(second, Requeue, takeOne(t, q, second))
			q.commit(nil)
		}
		if len(j.entries) != n+1 {
			t.Errorf("%s: %d entries were written to a full disk", tc.name, len(j.entries)-n-1)
		}
	}
}
