package queue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// lockedJournal is a memoryJournal for queues with turns at the same time.
type lockedJournal struct {
	mu sync.Mutex
	memoryJournal
	err error // why it has failed
}

var _ Journal = (*lockedJournal)(nil)

func (j *lockedJournal) Commit(ops []byte, live []journal.Delta, c journal.Completer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		if c != nil {
			c.Failed(j.err)
		}
		return
	}
	j.memoryJournal.Commit(ops, live, c)
}

func (j *lockedJournal) TryCommit(ops []byte) bool {
	j.Commit(ops, nil, nil)
	return true
}

func (j *lockedJournal) Relocate(ops []byte, live []journal.Delta) { j.Commit(ops, live, nil) }

func (j *lockedJournal) Extent() uint32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.memoryJournal.Extent()
}

func (j *lockedJournal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

func (j *lockedJournal) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.err = err
}

// taken returns the entries there are and forgets them.
func (j *lockedJournal) taken() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := j.entries
	j.entries = nil
	return all
}

// keptIn returns queues that have their messages in a journal.
func keptIn(t *testing.T, j Journal, h hook.Hooks, names ...string) (all []*Mailbox) {
	t.Helper()
	needBubble(t)
	clock := clock.New()
	for i, name := range names {
		profile := &Profile{VHost: "/", Strategy: "test", Settings: func(string) (any, bool) { return nil, false }}
		cfg := &Config{Profile: profile, Name: name, Storage: &Storage{Journal: j, ID: uint64(i + 1), Shard: 3}}
		all = append(all, testBroker.NewMailbox(cfg, chainOf(t, h), &graves{clock: clock, died: map[uint64]hook.Instant{}}, clock))
	}
	return all
}

func emptied(t *testing.T, s *Mailbox) (ids []uint64) {
	t.Helper()
	if err := s.Do(func(q *Queue, now hook.Instant) {
		for q.Get(now, nil2(), func(d Delivery, _ int) { ids = append(ids, idOf(d.Body)) }) {
		}
	}); err != nil {
		t.Fatal(err)
	}
	return ids
}

// fetch hands out a message.
func fetch(t *testing.T, s *Mailbox) (held []PendingAck) {
	t.Helper()
	c := &Consumer{Queue: s}
	if err := s.Do(func(q *Queue, now hook.Instant) {
		q.Get(now, c, func(d Delivery, _ int) { held = []PendingAck{{Ref: d.Ref, Consumer: c}} })
	}); err != nil {
		t.Fatal(err)
	}
	return held
}

// What a transaction does in the queues of one journal is one commit; what follows
// from it comes later.
func TestATransactionIsOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &lockedJournal{}
		h := ttlHooks(hook.ScanAnywhere, &hook.Target{})
		h.Length = hook.LimitOf(2)
		all := keptIn(t, j, h, "a", "b", "c")
		a, b, c := all[0], all[1], all[2]
		a.Publish(batchOf(persist(1), persist(2)))
		acked, rejected := fetch(t, a), fetch(t, a)
		j.taken()

		brief := persist(5)
		brief.Expiration = hook.LimitOf(0)
		refused, err := Transact([]Part{
			{Mailbox: c, Batch: batchOf(persist(3))},
			{Mailbox: a, Batch: batchOf(persist(4)), Settlements: []Settlement{
				{Kind: Ack, Items: acked}, {Kind: Reject, Items: rejected},
			}},
			{Mailbox: b, Batch: batchOf(brief, persist(6), persist(7), persist(8))},
		})
		if refused || err != nil {
			t.Fatalf("got refused %v, error %v", refused, err)
		}
		entries := j.taken()
		first := fmt.Sprint(describe(t, entries[0].ops))
		want := "[1 enqueue 1 discard 1 settle 1 handed 2 enqueue 2 enqueue 2 enqueue 2 enqueue 3 enqueue]"
		if first != want {
			t.Errorf("first commit:\n got %s\nwant %s", first, want)
		}
		for _, e := range entries[1:] {
			for _, op := range describe(t, e.ops) {
				if slices.Contains([]string{"1 settle", "2 settle"}, op) {
					continue // what was rejected, late or too much has left
				}
				t.Errorf("a later commit has %q", op)
			}
		}
		wantIDs(t, "a", emptied(t, a), 4)
		wantIDs(t, "b", emptied(t, b), 7, 8)
		wantIDs(t, "c", emptied(t, c), 3)
		for _, s := range all {
			if err := s.Do(func(q *Queue, _ hook.Instant) { checkSums(t, q) }); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// onlyOneOf are hooks of a queue that drops duplicates, limits its length, and dead-letters what leaves if there is a target.
func onlyOneOf(length int64, target *hook.Target) hook.Hooks {
	h := ttlHooks(hook.ScanAnywhere, target)
	stamp, watch := h.OnEnqueue, onlyOne{map[uint64]bool{}}.Attach(nil)
	h.OnEnqueue = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		stamp(now, ms, vs)
		watch.OnEnqueue(now, ms, vs)
	}
	h.OnGone, h.Length = watch.OnGone, hook.LimitOf(length)
	return h
}

// In a transaction, a message was dropped as a duplicate of one that the same commit removed: both were lost.
func TestNoDuplicateOfAMessageThatItsTransactionRemoves(t *testing.T) {
	for _, tc := range []struct {
		name    string
		length  int64
		target  *hook.Target
		kinds   []SettleKind // of 1, 2 ..., which are there
		publish []uint64
		want    []uint64
		first   string // commit
		dead    []uint64
	}{
		{name: "acknowledges", length: 9, kinds: []SettleKind{Ack}, publish: []uint64{1, 1}, want: []uint64{1}, first: "[1 enqueue 1 settle 1 handed]"},
		{name: "rejects", length: 9, kinds: []SettleKind{Reject}, publish: []uint64{1, 1}, want: []uint64{1}, first: "[1 enqueue 1 settle 1 handed]"},
		{
			name: "rejects, with an exchange for dead letters", length: 9, target: &hook.Target{}, kinds: []SettleKind{Reject},
			publish: []uint64{1, 1}, want: []uint64{1}, first: "[1 discard 1 enqueue 1 handed]", dead: []uint64{1},
		},
		{name: "pushes out", length: 2, kinds: []SettleKind{Requeue, Requeue}, publish: []uint64{3, 1, 1}, want: []uint64{3, 1}, first: "[1 return 1 return 1 enqueue 1 enqueue 1 settle 1 handed]"},
		{
			name: "pushes out, with an exchange for dead letters", length: 2, target: &hook.Target{}, kinds: []SettleKind{Ack, Requeue},
			publish: []uint64{3, 4, 2}, want: []uint64{4, 2}, first: "[1 return 1 enqueue 1 enqueue 1 discard 1 enqueue 1 settle 1 handed]", dead: []uint64{2, 3},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &lockedJournal{}
				m := keptIn(t, j, onlyOneOf(tc.length, tc.target), "a")[0]
				part := Part{Mailbox: m}
				for i, kind := range tc.kinds {
					m.Publish(batchOf(persist(uint64(i + 1))))
					part.Settlements = append(part.Settlements, Settlement{kind, fetch(t, m)})
				}
				j.taken()
				var ms []Message
				for _, id := range tc.publish {
					ms = append(ms, persist(id))
				}
				part.Batch = batchOf(ms...)
				if refused, err := Transact([]Part{part}); refused || err != nil {
					t.Fatalf("got refused %v, error %v", refused, err)
				}
				entries := j.taken()
				if got := fmt.Sprint(describe(t, entries[0].ops)); got != tc.first {
					t.Errorf("first commit:\n got %s\nwant %s", got, tc.first)
				}
				for _, e := range entries[1:] {
					if got := fmt.Sprint(describe(t, e.ops)); got != "[1 settle]" {
						t.Errorf("a later commit has %s", got)
					}
				}
				wantIDs(t, "left", emptied(t, m), tc.want...)
				if err := m.Do(func(q *Queue, _ hook.Instant) {
					checkSums(t, q)
					died := q.host.(*graves).died
					for _, id := range tc.dead {
						if _, ok := died[id]; !ok {
							t.Errorf("%d was not dead-lettered", id)
						}
					}
					if len(died) != len(tc.dead) {
						t.Errorf("dead-lettered %v, want %v", died, tc.dead)
					}
				}); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// describe names the operations of a commit, each with the number of its queue.
func describe(t *testing.T, ops []byte) (names []string) {
	t.Helper()
	in := reader{b: ops}
	for len(in.b) > 0 && !in.bad {
		kind, id := in.u8(), in.u64()
		in.describe(kind)
		name := map[byte]string{
			opEnqueued: "enqueue", opSettled: "settle", opReturned: "return", opDeadlineSet: "renew", opDelivered: "handed",
			opPurged: "purge", opDeadLettering: "discard", opEnqueuedAlike: "enqueue alike",
		}[kind]
		names = append(names, fmt.Sprintf("%d %s", id, name))
	}
	if in.bad {
		t.Fatalf("malformed operations after %v", names)
	}
	return names
}

// A queue that refuses a message does not undo the rest.
func TestATransactionIsPartlyRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hook.Hooks{OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range vs {
				if ms[i].Size > 8 {
					vs[i].Action = hook.Refuse
				}
			}
		}}
		all := keptIn(t, &lockedJournal{}, h, "a", "b")
		refused, err := Transact([]Part{
			{Mailbox: all[0], Batch: batchOf(message(1, 9), persist(2))}, {Mailbox: all[1], Batch: batchOf(persist(3))},
		})
		if !refused || err != nil {
			t.Errorf("got refused %v, error %v", refused, err)
		}
		wantIDs(t, "a", emptied(t, all[0]), 2)
		wantIDs(t, "b", emptied(t, all[1]), 3)
	})
}

// What is for a queue that is gone counts as done.
func TestATransactionWithAQueueThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &lockedJournal{}
		all := keptIn(t, j, hook.Hooks{}, "a", "b", "c")
		_ = all[1].Do(func(q *Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
		var parts []Part
		for i, s := range all {
			parts = append(parts, Part{Mailbox: s, Batch: batchOf(persist(uint64(i)))})
		}
		if refused, err := Transact(parts); refused || err != nil {
			t.Errorf("got refused %v, error %v", refused, err)
		}
		if n := len(j.taken()); n != 1 {
			t.Errorf("%d commits, want 1", n)
		}
		wantIDs(t, "c", emptied(t, all[2]), 2)
	})
}

// With one queue stopped nothing is done, and with a journal that fails nothing is said to be.
func TestATransactionThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("input/output error")
		sound, bad := &lockedJournal{}, &lockedJournal{}
		a := keptIn(t, sound, hook.Hooks{}, "a")[0]
		b := keptIn(t, bad, hook.Hooks{}, "b")[0]
		bad.fail(broken)
		_, err := Transact([]Part{{Mailbox: a, Batch: batchOf(persist(1))}, {Mailbox: b, Batch: batchOf(persist(1))}})
		var stopped *StoppedError
		if !errors.As(err, &stopped) || !errors.Is(err, broken) || err.Error() != "queue 'b' in vhost '/' is stopped: shard 3 failed" {
			t.Errorf("got error %v", err)
		}
		wantIDs(t, "a", emptied(t, a))

		silent := &deafJournal{lockedJournal{err: broken}}
		c := keptIn(t, silent, hook.Hooks{}, "c")[0]
		if _, err := Transact([]Part{{Mailbox: c, Batch: batchOf(persist(1))}}); !errors.Is(err, broken) || errors.As(err, &stopped) {
			t.Errorf("got error %v, want %v", err, broken)
		}
	})
}

// deafJournal does not know that it has failed before it tries.
type deafJournal struct{ lockedJournal }

func (*deafJournal) Err() error { return nil }

// A message that a transaction rejected, and that waits for others to be dead-lettered before it, was back in its queue after a restart
// once the log had been given back up to the transaction.
func TestARelocatedMessageStaysRejected(t *testing.T) {
	for _, watching := range []bool{false, true} {
		for _, purged := range []bool{false, true} {
			t.Run(fmt.Sprintf("watching %t, purged %t", watching, purged), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { staysRejected(t, watching, purged) })
			})
		}
	}
}

func staysRejected(t *testing.T, watching, purged bool) {
	t.Helper()
	ownTraffic(t)
	q, _, j := durable(t, Config{}, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
	testBroker.underway.bytes.Store(trafficLimit)
	q.enqueue(second, batchOf(persist(1), persist(2)))
	m := &participant{Queue: q, part: &Part{Settlements: []Settlement{{Kind: Reject, Items: takeOne(t, q, second)}}}}
	if q.buf.committing = watching; watching {
		m.settleNow(second)
	} else {
		m.settleLater(second)
	}
	q.buf.committing = false
	q.commit(nil)
	m.goOn(second)
	q.departing.send(q, second) // in vain
	if s := q.Stats(); s.Discarded != 1 {
		t.Fatalf("%d wait to leave, want 1", s.Discarded)
	}
	if purged {
		q.Purge(second)
	}
	for range 20 { // a new extent begins
		q.enqueue(second, batchOf(message(9, 0), persist(3)))
	}
	for q.Relocate(j.extent - 1) {
	}
	if j.trim(); j.entries[0].extent == 2 {
		t.Fatal("nothing was trimmed")
	}
	if s := j.reborn(t, q).Stats(); s.Discarded != 1 {
		t.Errorf("after a restart %d wait to leave, and %d are ready", s.Discarded, s.Ready)
	}
	testBroker.underway.bytes.Store(0)
	testBroker.underway.next()
	handleAll(q.mailbox)
	if s := q.Stats(); s.Discarded != 0 || len(q.promised) > 0 {
		t.Errorf("%d wait to leave, of %d it is known that they were rejected", s.Discarded, len(q.promised))
	}
}

func TestATransactionHasToFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := keptIn(t, &smallJournal{}, hook.Hooks{}, "a", "b")
		other := keptIn(t, &lockedJournal{}, hook.Hooks{}, "c")[0]
		parts := func(size int) *transaction {
			return &transaction{parts: []Part{
				{Mailbox: all[0], Batch: batchOf(message(1, size))},
				{Mailbox: all[1], Batch: batchOf(message(1, size))},
				{Mailbox: other, Batch: batchOf(message(1, size))},
			}}
		}
		if err := parts(1000).check(); err != nil {
			t.Errorf("got error %v", err)
		}
		const text = "transaction too large: 4362 bytes or more in shard 3, which takes 3000 at a time"
		if err := parts(2000).check(); !errors.Is(err, ErrTooLarge) || err.Error() != text {
			t.Errorf("got error %v, want %s", err, text)
		}
	})
}

// smallJournal takes few bytes at a time.
type smallJournal struct{ lockedJournal }

func (*smallJournal) MaxCommit() int { return 3000 }

// Transactions of many clients over any queues do not wait for one another for
// ever, and whoever sees something of one sees all of it.
func TestTransactionsAreSeenWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, each, queues = 6, 200, 5
		all := keptIn(t, &lockedJournal{}, ttlHooks(hook.ScanAnywhere, nil), "a", "b", "c", "d", "e")
		var wg sync.WaitGroup
		for n := range clients {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(n), 1))
				for i := range each {
					transactSome(t, rng, all, uint64(n*each+i))
				}
			})
		}
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(99, 1))
			for range each {
				i := rng.IntN(queues - 1)
				first := published(t, all[i])
				if second := published(t, all[queues-1]); second < first {
					t.Errorf("queue %d has had %d messages, and the last one only %d", i, first, second)
				}
			}
		})
		wg.Wait()
	})
}

// transactSome publishes a message to the last queue and some of the others.
func transactSome(t *testing.T, rng *rand.Rand, all []*Mailbox, id uint64) {
	t.Helper()
	parts := []Part{{Mailbox: all[len(all)-1], Batch: batchOf(persist(id))}}
	for _, s := range all[:len(all)-1] {
		if rng.IntN(2) == 0 {
			parts = append(parts, Part{Mailbox: s, Batch: batchOf(persist(id)), Settlements: []Settlement{{Items: fetch(t, s)}}})
		}
	}
	rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	if _, err := Transact(parts); err != nil {
		t.Error(err)
	}
}

// published is how many messages a queue has taken in.
func published(t *testing.T, s *Mailbox) uint64 {
	t.Helper()
	return stats(t, s).Published
}
