package queue

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// durable returns a passive queue with a journal in memory.
func durable(t *testing.T, cfg Config, h hook.Hooks) (*Queue, *host, *memoryJournal) {
	t.Helper()
	j := &memoryJournal{}
	cfg.Storage = &Storage{Journal: j, ID: 7, Shard: 1}
	q, hst := passive(t, cfg, h)
	return q, hst, j
}

// reborn returns the queue that a restart makes of the journal. It is filled, and
// not started.
func (j *memoryJournal) reborn(t *testing.T, of *Queue) *Queue {
	t.Helper()
	s := &Mailbox{broker: testBroker, clock: func() hook.Instant { return second }}
	s.config.Store(of.cfg)
	s.config.Store(of.cfg)
	s.queue = Queue{essentials: essentials{cfg: of.cfg, buf: new(turnBuffers)}, host: of.host, mailbox: s, hooks: of.hooks}
	j.used = map[uint32]int64{}
	j.fill(t, s)
	return &s.queue
}

func persist(id uint64) Message {
	m := message(id, 0)
	m.Flags = Persistent
	return m
}

// A message may leave in the turn in which it came. That it left must not be
// written before that it came.
func TestAMessageThatLeavesAtOnceStaysAway(t *testing.T) {
	for _, tc := range []struct {
		name  string
		hooks hook.Hooks
		left  int
	}{
		{"expired", ttlHooks(hook.ScanAnywhere, &hook.Target{}), 0},
		{"dropped", hook.Hooks{Length: hook.LimitOf(1), OnHead: ttlHooks(hook.ScanAnywhere, &hook.Target{}).OnHead}, 1},
	} {
		q, h, j := durable(t, Config{}, tc.hooks)
		b := batchOf(persist(1), persist(2))
		for i := range b.Messages {
			b.Messages[i].Expiration = hook.LimitOf(0)
		}
		q.enqueue(second, b)
		if len(h.dead) != 2-tc.left {
			t.Fatalf("%s: %v died", tc.name, h.dead)
		}
		if after := j.reborn(t, q); after.ready != tc.left {
			t.Errorf("%s: after a restart %d are there, want %d", tc.name, after.ready, tc.left)
		}
	}
}

// What a client published is told from what came in other ways.
func TestWhereMessagesCameFrom(t *testing.T) {
	q, _, j := durable(t, Config{}, hook.Hooks{})
	letter := persist(3)
	letter.Flags |= HasDeathHistory
	q.enqueue(second, batchOf(persist(1), persist(2)))
	q.enqueue(second, batchOf(letter))
	if s := q.Stats(); s.Published != 3 || s.DeadLetters != 1 || s.FromClients() != 2 {
		t.Errorf("got %+v, want 2 from clients and 1 dead letter", s.Counters)
	}
	after := j.reborn(t, q)
	after.enqueue(second, batchOf(persist(4)))
	if s := after.Stats(); s.Published != 4 || s.Restored != 3 || s.FromClients() != 1 {
		t.Errorf("got %+v after a restart, want 3 that were there and 1 from a client", s.Counters)
	}
}

// A message that waits for its arrival elsewhere is out of reach of consumers
// after a restart, too, also when it was moved meanwhile, and is sent again at
// once.
func TestADiscardStaysOneAfterARestart(t *testing.T) {
	for _, move := range []bool{false, true} {
		target := &hook.Target{AtLeastOnce: true}
		h := ttlHooks(hook.ScanAnywhere, target)
		q, _, j := durable(t, Config{Profile: &Profile{Kind: Quorum}}, h)
		r := &relay{targets: 1}
		q.host = r
		q.enqueue(second, batchOf(persist(1), persist(2)))
		q.Get(second, nil2(), func(Delivery, int) {})
		q.settleAll(second, Reject, []PendingAck{{Ref: 0}})
		q.commit(nil)
		if move {
			for range 20 { // a new extent begins
				q.enqueue(second, batchOf(message(9, 0), persist(3)))
			}
			for q.Relocate(j.extent - 1) {
			}
			j.trim()
			if j.entries[0].extent == 1 {
				t.Fatal("nothing was trimmed")
			}
		}

		q = j.reborn(t, q)
		if s := q.Stats(); s.Discarded != 1 || s.Unacked != 0 {
			t.Fatalf("%d discarded, %d unacked; want 1 and 0", s.Discarded, s.Unacked)
		}
		q.Get(second, nil2(), func(d Delivery, _ int) {
			if idOf(d.Body) != 2 {
				t.Errorf("got message %d, want 2", idOf(d.Body))
			}
		})
		r.sent = nil
		if q.next() > second {
			t.Fatalf("next at %v", q.next())
		}
		q.tick(second)
		if len(r.sent) != 1 || len(r.sent[0].Messages) != 1 {
			t.Fatalf("%d batches were sent", len(r.sent))
		}
		r.tracking.kept.conclude(q, second, []int{0})
		q.commit(nil)
		if s := q.Stats(); s.Discarded != 0 || s.DeadLettered[hook.ReasonRejected] != 1 {
			t.Errorf("%d discarded, %d dead-lettered", s.Discarded, s.DeadLettered[hook.ReasonRejected])
		}
		checkSums(t, q)
		if s := j.reborn(t, q).Stats(); s.Discarded != 0 {
			t.Errorf("after it arrived and another restart, %d are discarded", s.Discarded)
		}
	}
}

// What was on its way when the broker was killed is older than what fell due since.
func TestDiscardsGoFirstAfterARestart(t *testing.T) {
	q, _, j := durable(t, Config{Profile: &Profile{Kind: Quorum}}, ttlHooks(hook.ScanAnywhere, &hook.Target{AtLeastOnce: true}))
	q.host = &relay{targets: 1}
	const n, died = 5 * maxBatch, 3 * maxBatch
	for id := range uint64(n) {
		m := expiring(id, time.Second)
		if id >= died {
			m = expiring(id, time.Minute)
		}
		m.Flags = Persistent
		q.enqueue(second, batchOf(m))
	}
	for now := 3 * second; q.Stats().Discarded < died; {
		q.tick(now)
	}
	q.commit(nil)

	q = j.reborn(t, q)
	order := &procession{}
	q.host = order
	for now := 100 * second; len(order.ids) < n; {
		q.afterChange(now)
	}
	for i, id := range order.ids {
		if id != uint64(i) {
			t.Fatalf("message %d went as number %d", id, i)
		}
	}
}

// procession is a host that notes in which order messages die.
type procession struct {
	relay
	ids []uint64
}

func (p *procession) DeadLetter(from *Config, now hook.Instant, ds []DeadLetter, t Tracking) {
	for i := range ds {
		p.ids = append(p.ids, idOf(ds[i].Body))
	}
	p.targets = 1
	p.relay.DeadLetter(from, now, ds, t)
}

// FuzzOperations reads what passed a journal's checksums and is none of ours.
func FuzzOperations(f *testing.F) {
	h := ttlHooks(hook.ScanAnywhere, &hook.Target{AtLeastOnce: true})
	j := &memoryJournal{}
	q := &Queue{mailbox: &Mailbox{broker: testBroker}, essentials: essentials{cfg: &Config{Profile: &Profile{Levels: 1}, Storage: &Storage{Journal: j, ID: 7}}, buf: new(turnBuffers)}, host: &relay{targets: 1}}
	q.attach(second, chainOf(f, h))
	cc := &RoutingInfo{Exchange: "x", Key: "k", BCC: []string{"blind"}}
	q.enqueue(second, batchOf(persist(1), persist(2), persist(3), Message{Routing: cc, Props: noProps, Body: []byte("x"), Flags: Persistent}))
	q.Get(second, nil2(), func(Delivery, int) {})
	q.Get(second, nil2(), func(Delivery, int) {})
	q.settleAll(second, Ack, []PendingAck{{Ref: 0}})
	q.settleAll(second, Reject, []PendingAck{{Ref: 1}})
	q.commit(nil)
	like := persist(4)
	like.Props = bytes.Repeat([]byte{0}, worthSharing)
	q.enqueue(second, batchOf(like, like))
	q.commit(nil)
	q.Purge(second)
	q.commit(nil)
	var whole []byte
	for _, e := range j.entries {
		f.Add(e.ops)
		whole = append(whole, e.ops...)
	}
	f.Add(whole)
	renewed := appendDeadlineSet(appendReturned(slices.Clip(whole), 7, 2, 3), 7, 2, second, strategyData{state: -1}, hasState)
	f.Add(appendHeld(slices.Clip(whole), 7, 2, 5*second, heldUnready, 3))
	f.Add(appendDeadlineSet(renewed, 7, 2, second, strategyData{digest: 9}, hasDigest))
	f.Fuzz(func(t *testing.T, ops []byte) {
		s := &Mailbox{broker: testBroker}
		s.config.Store(q.cfg)
		s.queue = Queue{essentials: essentials{cfg: q.cfg}, host: q.host, mailbox: s, hooks: q.hooks}
		s.clock = func() hook.Instant { return second }
		r := testBroker.NewRestorer()
		defer r.Discard()
		_, _ = Dump(io.Discard, ops) // it may make no sense
		if _, err := r.Apply(1, ops); err != nil || far(r) {
			return
		}
		if n, st := r.Fill([]*Mailbox{s}), s.queue.Stats(); n != st.Ready+st.Held+st.Discarded || st.Unacked != 0 {
			t.Errorf("%d messages, %+v", n, st)
		}
		s.queue.buf = new(turnBuffers)
		_, _ = s.queue.Delete(false, false)
		for s.queue.garbage != nil {
			s.queue.freeGarbage()
		}
	})
}

// far reports whether messages are so far apart that the room between them would
// not fit in memory. No log can say so: it would have had to hold what was there.
func far(r *Restorer) bool {
	for _, q := range r.queues {
		for l := range q.levels {
			if q.levels[l].next > 1<<24 {
				return true
			}
		}
	}
	return false
}

// A deadline that nobody acted on was moved by a second and written to the journal, for ever.
func TestADeadlineThatNobodyActsOnIsNotWritten(t *testing.T) {
	ignore := func(hook.Instant, []hook.Message, []hook.Verdict) {}
	for _, tc := range []struct {
		name  string
		head  func(hook.Instant, []hook.Message, []hook.Verdict)
		asked bool
	}{
		{"no hook looks at due messages", nil, false},
		{"a hook leaves them", ignore, true},
		{"a hook wants to be asked again", func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) {
			vs[0].Again, vs[0].Deadline = true, now+second/10
		}, true},
	} {
		hooks, asked := ttlHooks(hook.ScanAnywhere, nil), 0
		hooks.OnHead = tc.head
		if tc.head != nil {
			hooks.OnHead = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
				asked++
				tc.head(now, ms, vs)
			}
		}
		q, _, j := durable(t, Config{}, hooks)
		m := expiring(1, time.Second)
		m.Flags = Persistent
		q.enqueue(second, batchOf(m))
		written := len(j.entries)
		for now := 2 * second; now <= 60*second; now += second / 10 {
			q.tick(now)
			q.commit(nil)
		}
		if n := len(j.entries) - written; n > 0 {
			t.Errorf("%s: %d entries in a minute", tc.name, n)
		}
		if (asked > 0) != tc.asked || (q.next() != 0) != tc.asked {
			t.Errorf("%s: asked %d times, again at %v", tc.name, asked, q.next())
		}
		if at := j.reborn(t, q).at(0).deadline(); at != 2*second {
			t.Errorf("%s: after a restart it is due at %v", tc.name, at)
		}
	}
}
