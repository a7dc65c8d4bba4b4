package queue

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/sdk/hook"
)

// many publishes messages with rising numbers.
func many(q *Queue, flags Flags, from, to uint64) {
	for id := from; id < to; {
		b := NewBatch()
		for range min(1000, to-id) {
			m := message(id, 0)
			m.Flags = flags
			b.Messages = append(b.Messages, m)
			id++
		}
		q.enqueue(second, b)
	}
}

// However much there is, a purge is one short operation, and takes what is ready
// and nothing else.
func TestAPurgeIsOneOperation(t *testing.T) {
	target := &hook.Target{AtLeastOnce: true}
	q, _, j := durable(t, Config{Profile: &Profile{Kind: Quorum, Levels: 2}}, ttlHooks(hook.ScanAnywhere, target))
	q.host = &relay{targets: 1}
	const n = 60_000
	many(q, Persistent, 0, n)
	for range 20 {
		q.Get(second, nil2(), func(Delivery, int) {})
	}
	q.settleAll(second, Ack, []PendingAck{{Ref: 3}, {Ref: 4}, {Ref: 5}})
	q.settleAll(second, Requeue, []PendingAck{{Ref: 1}, {Ref: 10}})
	q.settleAll(second, Reject, []PendingAck{{Ref: 7}}) // on its way elsewhere
	q.commit(nil)
	before := len(j.entries)
	const left = 20 - 6
	if got := q.Purge(second); got != n-20+2 {
		t.Errorf("purged %d, want %d", got, n-20+2)
	}
	many(q, Persistent, n, n+3)
	q.commit(nil)
	if size := len(j.entries[before].ops); size > 500 {
		t.Errorf("a purge takes %d bytes in the journal", size)
	}
	if s := q.Stats(); s.Ready != 3 || s.Unacked != left || s.Discarded != 1 || s.Purged != n-20+2 {
		t.Errorf("%d ready, %d unacked, %d discarded, %d purged", s.Ready, s.Unacked, s.Discarded, s.Purged)
	}
	for q.next() == atOnce {
		q.freeGarbage()
	}
	q.commit(nil)
	j.check(t, q)

	q.settleAll(second, Requeue, []PendingAck{{Ref: 0}})
	q.settleAll(second, Ack, []PendingAck{{Ref: 2}})
	q.commit(nil)
	q = j.reborn(t, q)
	j.check(t, q)
	var got []uint64
	for q.Get(second, nil2(), func(d Delivery, _ int) { got = append(got, idOf(d.Body)) }) {
	}
	wantIDs(t, "after a restart", got, 0, 6, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, n, n+1, n+2)
	if s := q.Stats(); s.Discarded != 1 {
		t.Errorf("after a restart %d are discarded, want 1", s.Discarded)
	}
}

// A purge of very many messages between others was one operation, which a journal may not take at once.
func TestAPurgeOfManyRunsIsDivided(t *testing.T) {
	q, _, j := durable(t, Config{}, hook.Hooks{})
	const n = 100
	many(q, Persistent, 0, n)
	q.commit(nil)
	before := len(j.entries)
	var r refRuns
	for i := range Ref(n / 2) {
		r.add(2*i, 1)
	}
	r.end()
	q.commitPurged(r.b, 15)
	q.commit(nil)
	if got := len(j.entries) - before; got != 4 {
		t.Errorf("50 runs of at most 15 at a time took %d commits, want 4", got)
	}
	for _, e := range j.entries[before:] {
		if len(e.ops) > opHeader+4+15*runSize {
			t.Errorf("a commit has %d bytes", len(e.ops))
		}
	}
	q = j.reborn(t, q)
	for i := range uint64(n / 2) {
		q.Get(second, nil2(), func(d Delivery, _ int) {
			if id := idOf(d.Body); id != 2*i+1 {
				t.Errorf("message %d is there, want %d", id, 2*i+1)
			}
		})
	}
	if q.ready != 0 {
		t.Errorf("%d messages are left", q.ready)
	}
}

// A queue that was deleted and has a definition nevertheless, because the broker was
// killed, has all of its messages or none.
func TestADeletionIsOneOperation(t *testing.T) {
	q, _, j := durable(t, Config{Profile: &Profile{Levels: 1}}, ttlHooks(hook.ScanAnywhere, nil))
	const n = 60_000
	many(q, Persistent, 0, n)
	for range 20 {
		q.Get(second, nil2(), func(Delivery, int) {})
	}
	q.commit(nil)
	before := len(j.entries)
	if _, err := q.Delete(false, false); err != nil {
		t.Fatal(err)
	}
	q.commit(nil)
	if size := len(j.entries[before].ops); size > 500 {
		t.Errorf("a deletion takes %d bytes in the journal", size)
	}
	if left := j.reborn(t, q).Stats().Ready; left != 0 {
		t.Errorf("%d messages come back", left)
	}
}

// Messages that come too late to be in the deleted queue are confirmed when a
// restart does not find it as it was before.
func TestADeletedQueueConfirmsWhenThatIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &lockedJournal{}
		s := keptIn(t, j, hook.Hooks{}, "q")[0]
		if err := send(s, persist(1)); err != nil {
			t.Fatal(err)
		}
		if err := s.Do(func(q *Queue, _ hook.Instant) { _, _ = q.Delete(false, false) }); err != nil {
			t.Fatal(err)
		}
		if err := send(s, persist(2)); err != nil {
			t.Errorf("got error %v", err)
		}
		broken := errors.New("input/output error")
		j.fail(broken)
		if err := send(s, persist(3)); !errors.Is(err, broken) {
			t.Errorf("got error %v, want %v", err, broken)
		}
	})
}

// A queue of messages that a purge dropped is as good as new, although it gives
// their memory back bit by bit.
func TestAPurgedQueueGivesItsMemoryBackInTurns(t *testing.T) {
	before := slab.Used()
	q, _ := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, nil))
	const n = 400_000
	many(q, 0, 0, n)
	if got := q.Purge(second); got != n {
		t.Errorf("purged %d, want %d", got, n)
	}
	turns := 0
	for ; q.next() == atOnce; turns++ {
		many(q, 0, uint64(turns), uint64(turns)+1)
		q.freeGarbage()
	}
	if turns < 5 {
		t.Errorf("it took %d turns", turns)
	}
	_, s := consume(t, q, Consumer{NoAck: true}, n)
	for i, id := range s.take() {
		if id != uint64(i) {
			t.Fatalf("message %d is number %d", id, i)
		}
	}
	q.tick(100 * second)
	q.tick(200 * second)
	if got := slab.Used() - before; got != 0 {
		t.Errorf("%d bytes are still held", got)
	}
	checkSums(t, q)
}

func TestADeletedQueueGivesItsMemoryBackInTurns(t *testing.T) { synctest.Test(t, deletedInTurns) }

func deletedInTurns(t *testing.T) {
	t.Helper()
	before := slab.Used()
	j := &lockedJournal{}
	s := keptIn(t, j, hook.Hooks{}, "q")[0]
	const n = 100_000
	for id := range uint64(n / 1000) {
		b := NewBatch()
		for range 1000 {
			b.Messages = append(b.Messages, persist(id))
		}
		s.Publish(b)
	}
	if err := s.Do(func(q *Queue, _ hook.Instant) {
		if got, err := q.Delete(false, false); got != n || err != nil {
			t.Errorf("deleted %d, error %v", got, err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if slab.Used() == before {
		t.Error("all of it was given back at once")
	}
	for range 100 {
		waitFor(yield)
	}
	if got := slab.Used() - before; got != 0 {
		t.Errorf("%d bytes are still held", got)
	}
	for extent, used := range j.used {
		if used != 0 {
			t.Errorf("%d bytes of extent %d are of use", used, extent)
		}
	}
}

// A queue that was deleted while the memory of what was purged before was still being given back kept the rest of that for
// ever: the timer was stopped, and taken for set.
func TestWhatAPurgedQueueHeldIsGivenBackThoughItIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := slab.Used()
		s, _ := live(t, hook.Hooks{})
		for range 4 * cleanedChunks {
			b := NewBatch()
			for id := range uint64(chunkSlots) {
				b.Messages = append(b.Messages, message(id, 0))
			}
			s.Publish(b)
		}
		_ = s.Do(func(q *Queue, now hook.Instant) { q.Purge(now) })
		_ = s.Do(func(q *Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
		time.Sleep(time.Minute)
		synctest.Wait()
		if kept := slab.Used() - before; kept > 0 {
			t.Errorf("%d bytes are kept", kept)
		}
	})
}

// A queue that is stopped waits for no journal.
func TestAStoppedQueueIsFreedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &lateJournal{}
		s := keptIn(t, j, ttlHooks(hook.ScanAnywhere, nil), "q")[0]
		s.Publish(batchOf(persist(1)))
		if err := s.Do(func(q *Queue, now hook.Instant) { q.Purge(now); q.Abandon() }); err != nil {
			t.Fatal(err)
		}
		waitFor(time.Second)
		if s.queue.garbage != nil {
			t.Error("the memory is not freed")
		}
	})
}

// A deletion took twelve bytes for each message between others that had left. On a full disk that may be more than is reserved, and what
// the queue had kept the disk full for ever. What is on its way to another queue is found here by a crash, so that the gaps stay then.
func TestADeletionTakesNoSpaceForGaps(t *testing.T) {
	for name, sends := range map[string]bool{"gaps": false, "it sends messages": true} {
		t.Run(name, func(t *testing.T) {
			q, _, j := durable(t, Config{Profile: &Profile{Levels: 1}}, ttlHooks(hook.ScanAnywhere, nil))
			const n = 1000
			many(q, Persistent, 0, n)
			var ack []PendingAck
			for i := range n {
				q.Get(second, nil2(), func(d Delivery, _ int) {
					if i%2 == 0 {
						ack = append(ack, PendingAck{Ref: d.Ref})
					}
				})
			}
			q.settleAll(second, Ack, ack)
			q.commit(nil)
			if sends {
				q.mailbox.pendingRemovals().begin()
			}
			before := len(j.entries)
			if _, err := q.Delete(false, false); err != nil {
				t.Fatal(err)
			}
			q.commit(nil)
			if size := len(j.entries[before].ops); size > 100 != sends {
				t.Errorf("a deletion of every other message takes %d bytes", size)
			}
			if s := j.reborn(t, q).Stats(); s.Ready+s.Unacked != 0 {
				t.Errorf("%d messages come back", s.Ready+s.Unacked)
			}
		})
	}
}
