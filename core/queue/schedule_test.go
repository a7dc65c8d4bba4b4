package queue

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/sdk/hook"
)

// diary is a plugin whose exchanges hold messages until the instant that their priority says, in seconds.
type diary struct{ hook.NoHooks }

func (diary) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{Name: "x-diary", Schedule: func(*hook.Exchange) hook.Schedule {
		return hook.Schedule{Inner: "fanout", Plan: func(m *hook.Publishing, p *hook.Plan) error {
			p.Hold = second * hook.Instant(m.Part(hook.PartBody)[0])
			return nil
		}, Released: func(m *hook.Publishing, r *hook.Release) {
			if body := m.Part(hook.PartBody); string(body[1:]) == "recurs" { // every ten seconds
				r.Hold, r.State = r.Due+10*second, r.State+1
			}
		}}
	}}}
}

// scheduling returns the configuration of what an exchange holds.
func scheduling(tb testing.TB) Config {
	tb.Helper()
	return schedulingBy(tb, diary{})
}

func schedulingBy(tb testing.TB, p hook.Plugin) Config {
	tb.Helper()
	c, err := chain.New([]chain.Named{{Name: "diary", Plugin: p}}, chain.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	plans, err := c.NewSchedule(&hook.Exchange{Type: "x-diary"})
	if err != nil {
		tb.Fatal(err)
	}
	return Config{Schedule: &Schedule{Schedule: plans, Target: &hook.Target{Exchange: "x"}}}
}

// What an exchange holds takes little memory, even where there is plenty, and comes back unchanged, in order.
func TestScheduledBodiesLieInTheFile(t *testing.T) {
	spilling(t, 1<<40)
	before := slab.Used()
	q, h := passive(t, scheduling(t), hook.Hooks{})
	const n = 40_000
	for i := range uint64(n) {
		m := patterned(i, 1024)
		m.Body[0] = byte(2 + i%7)
		q.enqueue(second, batchOf(m))
	}
	if held := slab.Used() - before; held > 8<<20 {
		t.Errorf("%d KiB of messages hold %d KiB of memory", n, held>>10)
	}
	if s := q.Stats(); s.Held != n || s.NextRelease != 2*second || q.next() != 2*second {
		t.Errorf("held %d, next %d", s.Held, s.NextRelease)
	}
	for q.next() != 0 && q.next() < 20*second {
		q.tick(20 * second)
	}
	if len(h.dead) != n {
		t.Fatalf("%d were released, want %d", len(h.dead), n)
	}
	seen := map[uint64]bool{}
	for _, d := range h.dead {
		seen[d.id] = true
	}
	if len(seen) != n {
		t.Errorf("%d came back unchanged", len(seen))
	}
	checkSums(t, q)
	q.close()
}

// A turn publishes a bounded number of messages, however many are due.
func TestScheduledTurnsAreBounded(t *testing.T) {
	q, h := passive(t, scheduling(t), hook.Hooks{})
	for range 4 * maxBatch {
		q.enqueue(second, batchOf(Message{Routing: &RoutingInfo{}, Props: []byte{0, 0}, Body: bytes.Repeat([]byte{2}, 8)}))
	}
	q.tick(2 * second)
	if len(h.dead) != maxBatch || q.next() == 0 || q.next() > 2*second {
		t.Errorf("%d were published in a turn, the next is at %d", len(h.dead), q.next())
	}
	q.close()
}

// strict is a diary that has come to refuse everything.
type strict struct{ hook.NoHooks }

func (strict) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{Name: "x-diary", Schedule: func(*hook.Exchange) hook.Schedule {
		return hook.Schedule{Inner: "fanout", Plan: func(_ *hook.Publishing, p *hook.Plan) error {
			p.Hold, p.ID = 50*second, []byte("id")
			return errors.New("the limit was lowered")
		}}
	}}}
}

// A message that was accepted, and is refused when it gets to where it is held, was routed at once: in a transaction limits may be
// lowered before the commit. A list did not show its identity.
func TestPlanThatIsRefusedByNow(t *testing.T) {
	q, h := passive(t, schedulingBy(t, strict{}), hook.Hooks{})
	for range 2 {
		q.enqueue(second, batchOf(Message{Routing: &RoutingInfo{}, Props: []byte{0, 0}, Body: []byte("12345678")}))
	}
	q.tick(49 * second)
	if len(h.dead) != 0 || q.Stats().Held != 1 || q.Stats().Dropped[hook.ReasonCancelled] != 1 {
		t.Errorf("%d were published, %+v", len(h.dead), q.Stats())
	}
	if m := q.HeldByID([]byte("id")); m == nil || string(q.ScheduleID(m)) != "id" {
		t.Errorf("the identity is lost: %+v", m)
	}
	q.tick(50 * second)
	if len(h.dead) != 1 {
		t.Errorf("%d were published when it was due", len(h.dead))
	}
	q.close()
}

// Of messages with one identity that were due when they came, all in one turn, only the last was released.
func TestDueMessagesDoNotReplaceOneAnother(t *testing.T) {
	q, h := passive(t, schedulingBy(t, planner{}), hook.Hooks{})
	send := func(xs ...plannedMessage) {
		b := NewBatch()
		for i := range xs {
			m := message(xs[i].id, 0)
			m.Body = plannedBody(&xs[i])
			b.Messages = append(b.Messages, m)
		}
		q.enqueue(second, b)
	}
	send(plannedMessage{id: 1, identity: 1}, plannedMessage{id: 2, identity: 1}, plannedMessage{id: 3, identity: 1, flags: plannedCancels})
	send(plannedMessage{id: 4, identity: 1})
	q.tick(second)
	if got := len(h.dead); got != 3 || q.Stats().Dropped[hook.ReasonCancelled] != 0 {
		t.Errorf("%d of 3 were released, %d cancelled", got, q.Stats().Dropped[hook.ReasonCancelled])
	}
	q.close()
}

// A message that is to be routed at once by its schedule, and has an identity, was not held as its publisher wanted.
func TestScheduledMessagesWait(t *testing.T) {
	q, h := passive(t, scheduling(t), hook.Hooks{})
	for wait, body := range map[Wait]byte{WaitUntil(20 * second): 0, WaitFor(30 * time.Second): 1, WaitUntil(10 * second): 15} {
		q.enqueue(second, batchOf(Message{Routing: &RoutingInfo{}, Props: []byte{0, 0}, Body: []byte{body, 0, 0, 0, 0, 0, 0, 0}, Wait: wait}))
	}
	for i, at := range []hook.Instant{15, 20, 31} {
		if q.tick(at*second - 1); len(h.dead) != i {
			t.Errorf("%d were published before %d s", len(h.dead), at)
		}
		if q.tick(at * second); len(h.dead) != i+1 {
			t.Errorf("%d were published at %d s", len(h.dead), at)
		}
	}
	q.close()
}

// Moving a message to the past publishes it, and cancelling it does not.
func TestScheduledMessagesAreMoved(t *testing.T) {
	q, h := passive(t, scheduling(t), hook.Hooks{})
	for i := range byte(3) {
		q.enqueue(second, batchOf(Message{Routing: &RoutingInfo{}, Props: []byte{0, 0}, Body: []byte{50, i, 0, 0, 0, 0, 0, 0}}))
	}
	var refs []Ref
	q.HeldFrom(0, 0, func(m *Held) bool { refs = append(refs, m.Ref); return true })
	if !q.MoveHeld(second, refs[1], 0) || !q.MoveHeld(second, refs[0], 60*second) || q.CancelHeld(second, refs[2], refs[1]) != 1 {
		t.Error("a message is not held")
	}
	if len(h.dead) != 1 || q.Stats().Held != 1 || q.Stats().NextRelease != 60*second {
		t.Errorf("%d were published, %+v", len(h.dead), q.Stats())
	}
	if s := q.Stats(); s.DeadLettered[hook.ReasonReleased] != 1 || s.Dropped[hook.ReasonCancelled] != 1 || s.Published != 3 {
		t.Errorf("counted %+v", s.Counters)
	}
	q.close()
}

// tellArrived tells a queue which of its releases have arrived, which they do on another queue's turn.
func tellArrived(q *Queue) {
	for _, t := range q.mailbox.inbox {
		q.arrived(t.arrived)
	}
	q.mailbox.inbox = nil
}

// What recurs is journalled when the released copy has arrived elsewhere. If the message was moved before that, a restart released it
// when it would have been without.
func TestAMoveOvertakesWhatRecurs(t *testing.T) {
	cfg, j, c := scheduling(t), &memoryJournal{}, &courier{}
	cfg.Storage = &Storage{Journal: j, ID: 7, Shard: 1}
	q, _ := passive(t, cfg, hook.Hooks{})
	to, _ := passive(t, Config{Name: "to", Storage: &Storage{Journal: j, ID: 8, Shard: 1}}, hook.Hooks{})
	q.host = c
	arrive := func() {
		for _, b := range c.batches {
			to.enqueue(second, b)
		}
		c.batches = nil
		to.commit(nil)
		tellArrived(q)
	}
	want := func(what string, now, restarted hook.Instant) {
		t.Helper()
		q.commit(nil)
		if next := q.nextRelease(); next != now {
			t.Errorf("%s: the next release is at %d, want %d", what, next/second, now/second)
		}
		if next := j.reborn(t, q).nextRelease(); next != restarted {
			t.Errorf("%s: after a restart the next release is at %d, want %d", what, next/second, restarted/second)
		}
	}
	m := persist(1)
	m.Body = []byte("\x05recurs")
	q.enqueue(second, batchOf(m))
	q.tick(5 * second)
	want("under way", 15*second, 5*second)
	if !q.MoveHeld(6*second, heldRefs(q)[0], 100*second) {
		t.Fatal("it is not held")
	}
	want("moved", 100*second, 100*second)
	arrive()
	want("arrived", 100*second, 100*second)
	for n := range hook.Instant(3) {
		q.tick((100 + 10*n) * second)
		want("under way again", (110+10*n)*second, (100+10*n)*second)
		arrive()
		want("arrived again", (110+10*n)*second, (110+10*n)*second)
		for q.Relocate(j.extent - uint32(n)%2) {
		}
		j.trim()
		want("relocated", (110+10*n)*second, (110+10*n)*second)
	}
}

// What an exchange holds seemed to be nothing once it had stopped, so an auto-delete exchange was deleted with its last binding, and
// with the messages that a restart would have found.
func TestAStoppedExchangeStillHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &lockedJournal{}
		cfg := scheduling(t)
		cfg.Profile, cfg.Name, cfg.Storage = &Profile{Settings: func(string) (any, bool) { return nil, false }}, "x", &Storage{Journal: j, ID: 1}
		s := testBroker.NewMailbox(&cfg, chainOf(t, hook.Hooks{}), &host{}, func() hook.Instant { return second })
		m := message(1, 8)
		m.Body[0] = 100
		if err := send(s, m, m); err != nil {
			t.Fatal(err)
		}
		j.fail(errors.New("input/output error"))
		_ = s.Do(func(*Queue, hook.Instant) {})
		if n := cfg.Schedule.Held(); n != 2 || stats(t, s).Held != 2 {
			t.Errorf("%d are held, %+v", n, stats(t, s))
		}
		_ = s.Do(func(q *Queue, _ hook.Instant) { q.close() })
		if n := cfg.Schedule.Held(); n != 0 {
			t.Errorf("%d are held by what is deleted", n)
		}
	})
}
