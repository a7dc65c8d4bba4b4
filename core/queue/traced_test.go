package queue

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// A log as it was written before there were traces and digests.
const oldLog = "0107000000000000000000000000000000000000000000000000ca9a3b000000001600001b00000000000000017805706c61696e0105626c696e64020000" +
	"706c61696e0107000000000000000100000000000000006a536c4603000000ca9a3b000000000a00001c000000f9ffffffffffffff00000000017805737461746502" +
	"0000737461746501070000000000000002000000000000000022e2330e00000000ca9a3b000000000200001a00000000000000017808646561646c696e6502000064" +
	"6561646c696e650107000000000000000300000000000000000000000000000000ca9a3b000000000200001200000000000000017804676f6e65020000676f6e6501" +
	"07000000000000000400000000000000000000000000000000ca9a3b0000000042000012000000000000000178046865616402000068656164040700000000000000" +
	"0100000000000000009e41148d060000faffffffffffffff03070000000000000001000000000000000100020700000000000000010000000300000000000000050700" +
	"000000000000000400000000000000"

func TestOldLogsAreReadable(t *testing.T) {
	ops, err := hex.DecodeString(oldLog)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if _, err := Dump(&text, ops); err != nil {
		t.Fatal(err)
	}
	if want := `queue 7: enqueue 1, 28 bytes, exchange "x", key "state", entered 1970-01-01T00:00:01Z, deadline 1970-01-01T01:00:01Z, returns 0, state
`; !strings.Contains(text.String(), want) {
		t.Errorf("got\n%s", &text)
	}
	q, _, j := durable(t, Config{Profile: &Profile{Kind: Quorum, DeliveryLimit: 9}}, hook.Hooks{Strategy: true, Scan: hook.ScanAnywhere})
	j.entries = []entry{{1, ops}}
	q = j.reborn(t, q)
	var got []string
	f := &q.levels[0]
	for seq, s := f.messageFrom(0); s != nil; seq, s = f.messageFrom(seq + 1) {
		r := q.store.read(*s)
		got = append(got, fmt.Sprintf("%d %s %s state %d digest %d at %v %v due %v, %d returns%s",
			seq, r.key, r.body, r.state, r.digest, r.enqueued, blindKeys(r.bcc), q.at(Ref(seq)).deadline(), s.returns(), s.flags.describe()))
	}
	want := []string{
		"0 plain plain state 0 digest 0 at 1000000000 [blind] due 0, 0 returns, redelivered, dead-lettered, bcc",
		"1 state state state -6 digest 0 at 1000000000 [] due 7203000000000, 1 returns, redelivered, state",
		"2 deadline deadline state 0 digest 0 at 1000000000 [] due 61000000000, 0 returns, redelivered",
		"4 head head state 0 digest 0 at 1000000000 [] due 0, 0 returns, ask at head",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	j.check(t, q)
	q.close()
}

// seen is what deliveries said of messages being traced, by id.
type seen map[uint64]bool

func (s seen) get(q *Queue, now hook.Instant) (held []PendingAck) {
	c := &Consumer{}
	for q.Get(now, c, func(d Delivery, _ int) {
		s[idOf(d.Body)] = d.Traced
		held = append(held, PendingAck{Ref: d.Ref, Consumer: c})
	}) {
		continue
	}
	return held
}

// third checks that every third message is traced.
func (s seen) third(t *testing.T, when string, n int) {
	t.Helper()
	if len(s) != n {
		t.Fatalf("%s: %d messages, want %d", when, len(s), n)
	}
	for id, got := range s {
		if got != (id%3 == 0) {
			t.Fatalf("%s: message %d: traced %t", when, id, got)
		}
	}
}

// Whether a message is traced stays with it for as long as it is there.
func TestTracedStays(t *testing.T) {
	spilling(t, 0)
	q, h, j := durable(t, Config{}, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
	const n = 3000
	for id := range uint64(n) {
		m := patterned(id, 1000)
		m.Flags = Persistent
		if id%3 == 0 {
			m.Flags |= Traced
		}
		q.enqueue(second, batchOf(m))
	}
	s := seen{}
	held := s.get(q, 2*second)
	s.third(t, "handed out", n)
	q.settleAll(2*second, Requeue, held)
	clear(s)
	held = s.get(q, 2*second)
	s.third(t, "requeued", n)

	// Few are left, which are moved to other segments and to another extent of the journal.
	kept := slices.DeleteFunc(slices.Clone(held), func(it PendingAck) bool { return it.Ref%50 != 0 })
	q.settleAll(2*second, Ack, slices.DeleteFunc(held, func(it PendingAck) bool { return it.Ref%50 == 0 }))
	q.settleAll(2*second, Requeue, kept)
	for q.store.sparse() {
		q.endTurn(2 * second)
	}
	q.commit(nil)
	for q.Relocate(j.extent - 1) {
		continue
	}
	clear(s)
	q.settleAll(2*second, Requeue, s.get(q, 2*second))
	s.third(t, "compacted", len(kept))
	q.commit(nil)

	again := j.reborn(t, q)
	clear(s)
	again.settleAll(2*second, Reject, s.get(again, 2*second))
	s.third(t, "after a restart", len(kept))
	if len(h.left) != len(kept) {
		t.Fatalf("told of %d messages, want %d", len(h.left), len(kept))
	}
	for i, l := range h.left {
		if l.traced != (h.dead[i].id%3 == 0) || h.dead[i].traced != l.traced {
			t.Errorf("message %d: told %+v, given up as %+v", h.dead[i].id, l, h.dead[i])
		}
	}
	again.close()
	q.close()
}

// A message that a waiting consumer gets at once is traced, too.
func TestTracedGoesDirectly(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	s := &sink{room: 1}
	c := &Consumer{Sink: &tracedSink{sink: s}, NoAck: true}
	if err := q.AddConsumer(second, c); err != nil {
		t.Fatal(err)
	}
	m := message(1, 8)
	m.Flags = Traced
	q.enqueue(5*second, batchOf(m))
	if got := c.Sink.(*tracedSink).got; len(got) != 1 || !got[0].Traced || got[0].Enqueued != 5*second {
		t.Errorf("got %+v", got)
	}
}

// tracedSink remembers deliveries but for their bytes.
type tracedSink struct {
	*sink
	got []Delivery
}

func (s *tracedSink) Deliver(_ hook.Instant, _ *Consumer, ds []Delivery) int {
	s.got = append(s.got, ds...)
	return len(ds)
}

// What a queue tells of messages that leave.
func TestLeft(t *testing.T) {
	at := func(m Message, key string, flags Flags) Message {
		m.Routing, m.Flags = &RoutingInfo{Exchange: "x", Key: key}, flags
		return m
	}
	nacked := hook.Hooks{Strategy: true, OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			switch string(ms[i].RoutingKey()) {
			case "refuse":
				vs[i].Action = hook.Refuse
			case "drop":
				vs[i] = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonMaxLen, Nack: true, Target: &hook.Target{}}
				guest.SetDigest(&vs[i], 5)
			case "route":
				vs[i] = hook.Verdict{Action: hook.Route, Reason: hook.ReasonMaxLen, Target: &hook.Target{}}
			}
		}
	}}
	for _, tc := range []struct {
		name    string
		hooks   hook.Hooks
		outcome telemetry.Outcome
		do      func(q *Queue)
		want    []leftMessage
		refused int
	}{
		{
			name: "expired", hooks: ttlHooks(hook.ScanAnywhere, nil),
			do: func(q *Queue) {
				q.enqueue(second, batchOf(at(expiring(1, time.Second), "a", Traced), at(expiring(2, time.Second), "b", 0)))
				q.tick(3 * second)
			},
			want: []leftMessage{
				{key: "a", reason: hook.ReasonExpired, enqueued: second, deadline: 2 * second, size: 8, traced: true},
				{key: "b", reason: hook.ReasonExpired, enqueued: second, deadline: 2 * second, size: 8},
			},
		},
		{
			name: "expired and dead-lettered, in a cycle", hooks: ttlHooks(hook.ScanHeads, &hook.Target{}), outcome: telemetry.Cycle,
			do: func(q *Queue) {
				q.enqueue(second, batchOf(at(expiring(1, time.Second), "a", 0)))
				q.tick(3 * second)
			},
			want: []leftMessage{{key: "a", reason: hook.ReasonExpired, outcome: telemetry.Cycle, enqueued: second, deadline: 2 * second, size: 8, target: true}},
		},
		{
			name: "now or not at all", hooks: ttlHooks(hook.ScanAnywhere, nil),
			do:   func(q *Queue) { q.enqueue(second, batchOf(at(expiring(1, 0), "a", Traced))) },
			want: []leftMessage{{key: "a", reason: hook.ReasonExpired, enqueued: second, deadline: second, size: 8, traced: true}},
		},
		{
			name: "rejected", hooks: ttlHooks(hook.ScanAnywhere, &hook.Target{}), outcome: telemetry.NoExchange,
			do: func(q *Queue) {
				q.enqueue(second, batchOf(at(message(1, 8), "a", 0)))
				q.settleAll(2*second, Reject, seen{}.get(q, 2*second))
			},
			want: []leftMessage{{key: "a", reason: hook.ReasonRejected, outcome: telemetry.NoExchange, enqueued: second, size: 8, target: true}},
		},
		{
			name: "too long", hooks: hook.Hooks{Length: hook.LimitOf(1)},
			do:   func(q *Queue) { q.enqueue(second, batchOf(at(message(1, 8), "a", 0), at(message(2, 8), "b", 0))) },
			want: []leftMessage{{key: "a", reason: hook.ReasonMaxLen, enqueued: second, size: 8}},
		},
		{
			name: "returned too often", hooks: ttlHooks(hook.ScanAnywhere, nil),
			do: func(q *Queue) {
				q.enqueue(second, batchOf(at(message(1, 8), "a", 0)))
				q.settleAll(2*second, Return, seen{}.get(q, 2*second))
			},
			want: []leftMessage{{key: "a", reason: hook.ReasonDeliveryLimit, enqueued: second, size: 8}},
		},
		{
			name: "turned away", hooks: nacked, outcome: telemetry.DeadLettered,
			do: func(q *Queue) {
				q.enqueue(second, batchOf(at(message(1, 8), "refuse", Traced), at(message(2, 8), "drop", Traced), at(message(3, 8), "keep", 0), at(message(4, 8), "route", 0)))
			},
			want: []leftMessage{
				{key: "drop", reason: hook.ReasonMaxLen, enqueued: second, size: 8, digest: 5, traced: true},
				{key: "route", reason: hook.ReasonMaxLen, outcome: telemetry.DeadLettered, enqueued: second, size: 8, target: true},
			},
			refused: 1,
		},
		{
			name: "acknowledged, purged and deleted", hooks: ttlHooks(hook.ScanAnywhere, nil),
			do: func(q *Queue) {
				q.enqueue(second, batchOf(message(1, 8), message(2, 8), message(3, 8)))
				q.Get(second, &Consumer{NoAck: true}, func(Delivery, int) {})
				q.Purge(second)
				q.enqueue(second, batchOf(message(4, 8)))
				_, _ = q.Delete(false, false)
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q, h := passive(t, Config{Profile: &Profile{Kind: Quorum}}, tc.hooks)
			h.outcome = tc.outcome
			tc.do(q)
			if !slices.Equal(h.left, tc.want) || h.refused != tc.refused {
				t.Errorf("got %+v and %d refused, want %+v and %d", h.left, h.refused, tc.want, tc.refused)
			}
			checkSums(t, q)
		})
	}
}

// What is sent on at least once has left when it has arrived, and not before.
func TestAtLeastOnceIsToldOnArrival(t *testing.T) {
	q, _ := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, &hook.Target{AtLeastOnce: true}))
	r := &relay{targets: 1}
	q.host = r
	q.enqueue(second, batchOf(expiring(1, 0), expiring(2, 0)))
	if len(r.left) > 0 {
		t.Fatalf("told of %+v, which are on their way", r.left)
	}
	r.tracking.kept.messages[0].stays.Store(uint32(FailRefused))
	r.tracking.kept.conclude(q, 3*second, []int{0, 1})
	want := []leftMessage{{
		key: "key", reason: hook.ReasonExpired, outcome: telemetry.DeadLettered, enqueued: second, deadline: second, size: 8,
		underway: 2 * time.Second, target: true, entered: toDead,
	}}
	if !slices.Equal(r.left, want) {
		t.Errorf("got %+v, want %+v", r.left, want)
	}
	checkSums(t, q)
	q.close()
}

// The way to the dead-letter queue, with all the attempts it takes, is not counted as lateness of the expiry.
func TestAttemptsAreNotLateness(t *testing.T) {
	q, _ := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, &hook.Target{AtLeastOnce: true}))
	r := &relay{targets: 1}
	q.host = r
	q.enqueue(second, batchOf(expiring(1, 0)))
	answer := func(now hook.Instant, lost bool) {
		if lost {
			r.tracking.kept.messages[0].stays.Store(uint32(FailRefused))
		}
		r.tracking.kept.conclude(q, now, []int{0})
	}
	answer(2*second, true)
	again := (2 * second).AddMillis(retryMillis)
	q.tick(again)
	answer(again+second, false)
	if len(r.left) != 1 || r.left[0].underway != again.Sub(0) {
		t.Errorf("got %+v, want one under way for %v", r.left, again.Sub(0))
	}
	if n := len(q.discards.messages); n != 0 {
		t.Errorf("%d are remembered that have left", n)
	}
	q.close()
}

// The digest is where the strategy's own bytes are, and goes where they go.
func TestDigestsStay(t *testing.T) {
	const digest = 0xfedc_ba98_7654_3210
	hooks := hook.Hooks{
		Strategy: true, Scan: hook.ScanAnywhere,
		OnEnqueue: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				vs[i].Deadline = now.AddMillis(ms[i].Expiration.N())
				if ms[i].Priority == 1 {
					guest.SetDigest(&vs[i], digest)
				}
			}
		},
		OnHead: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				if ms[i].Why == hook.WhyDue {
					vs[i] = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired}
				}
			}
		},
		OnRequeue: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms { // gives the others one
				vs[i].Deadline, vs[i].State = ms[i].Deadline.AddMillis(1000), ms[i].State+3
				if guest.MessageDigest(&ms[i]) == 0 {
					guest.SetDigest(&vs[i], 1)
				}
			}
		},
	}
	q, h, j := durable(t, Config{}, hooks)
	q.attach(second, hostChain(t, hooks))
	mine, other := expiring(1, time.Minute), expiring(2, time.Minute)
	mine.Priority, mine.Flags, other.Flags = 1, Persistent, Persistent
	q.enqueue(second, batchOf(mine, other))
	if a, b := q.levels[0].slot(0), q.levels[0].slot(1); a.length != b.length+8 {
		t.Errorf("records of %d and %d bytes: a message without a digest has no room for one", a.length, b.length)
	}
	q.commit(nil)
	q = j.reborn(t, q)
	q.settleAll(2*second, Requeue, seen{}.get(q, 2*second))
	q.commit(nil)
	j.check(t, q)

	var text strings.Builder
	for _, e := range j.entries {
		if _, err := Dump(&text, e.ops); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		"enqueue 0, 29 bytes", "returns 0, policy fedcba9876543210\n", "deadline 1970-01-01T00:01:01Z, returns 0\n",
		"renew 0, deadline 1970-01-01T00:01:02Z, state 3, policy fedcba9876543210\n", "state 3, policy 0000000000000001\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &text)
		}
	}
	q = j.reborn(t, q)
	q.tick(100 * second)
	var got []uint64
	for _, l := range h.left {
		got = append(got, l.digest)
	}
	if !slices.Equal(got, []uint64{digest, 1}) {
		t.Errorf("told of the digests %x", got)
	}
	q.close()
}

// What is decided about a message that is traced is told, with the message.
func TestDecisionsAreTold(t *testing.T) {
	said := func(_ hook.Instant, ms []hook.Message, _ []hook.Verdict) {
		for i := range ms {
			guest.Decided(&ms[i], &guest.Decision{Policy: "p"})
		}
	}
	q, h := passive(t, Config{}, hook.Hooks{Strategy: true, OnEnqueue: said, OnHead: said, OnRequeue: said})
	a, b := message(1, 8), message(2, 8)
	a.Routing, a.Flags = &RoutingInfo{Key: "a"}, Traced
	q.enqueue(second, batchOf(b, a))
	held := seen{}.get(q, second)
	q.settleAll(second, Requeue, held)
	q.settleAll(second, Reject, seen{}.get(q, second))
	if want := []string{"p a", "p a", "p a"}; !slices.Equal(h.decided, want) {
		t.Errorf("got %q, want %q", h.decided, want)
	}
}

// How a queue ends says how much went with it.
func TestTheEndOfAQueueIsToldInFull(t *testing.T) {
	hooks := ttlHooks(hook.ScanAnywhere, &hook.Target{})
	hooks.OnIdle = func(now hook.Instant, idle time.Duration, v *hook.Verdict) {
		*v = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonQueueExpired, DeadLetter: true}
		if idle < 10*time.Second {
			*v = hook.Verdict{Deadline: now.Add(10*time.Second - idle)}
		}
	}
	q, h := passive(t, Config{}, hooks)
	publish(q, second, 1, 2, 3)
	q.Get(2*second, &Consumer{}, func(Delivery, int) {})
	q.tick(13 * second)
	want := Deletion{Reason: DeletedExpired, At: 13 * second, LastUse: 2 * second, Lease: 12 * second, Messages: 1, DeadLettered: 2}
	if len(h.gone) != 1 || h.gone[0] != want || h.gone[0].Idle() != 11*time.Second {
		t.Errorf("got %+v, want %+v", h.gone, want)
	}
	if len(h.left) != 2 || h.left[0].reason != hook.ReasonQueueExpired {
		t.Errorf("told of %+v", h.left)
	}
}

// guestHost is a strategy that is a host of others' code, so that its hooks may set digests.
type guestHost struct{ fixed }

func (guestHost) OnChange(func(string, bool)) {}

func hostChain(t *testing.T, h hook.Hooks) *chain.Chain {
	t.Helper()
	c, err := chain.New([]chain.Named{{Name: "host", Plugin: guestHost{fixed{h}}}}, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
