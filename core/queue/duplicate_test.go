package queue

import (
	"bytes"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// lateJournal makes nothing durable before it is told.
type lateJournal struct {
	mu sync.Mutex // guards the rest
	memoryJournal
	waiting []journal.Completer
}

func (j *lateJournal) Commit(ops []byte, live []journal.Delta, c journal.Completer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.memoryJournal.Commit(ops, live, nil)
	if c == nil {
		return
	}
	j.waiting = append(j.waiting, c)
}

func (j *lateJournal) durable() {
	j.mu.Lock()
	waiting := j.waiting
	j.waiting = nil
	j.mu.Unlock()
	for _, c := range waiting {
		c.Durable()
	}
}

// A duplicate was confirmed before the message that it is one of was on disk. If the broker was killed then, the queue had neither,
// though a publisher that sent its message again after a lost connection had a confirm.
func TestADuplicateIsConfirmedWithItsOriginal(t *testing.T) {
	for _, tt := range []struct {
		name   string
		flags  Flags
		stored bool // the queue is durable
		waits  bool
	}{
		{name: "durable", flags: Persistent, stored: true, waits: true},
		{name: "a transient duplicate", stored: true},
		{name: "a transient queue", flags: Persistent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := &lateJournal{}
			cfg := Config{}
			if tt.stored {
				cfg.Storage = &Storage{Journal: j, ID: 1}
			}
			q, _ := watchedQueue(t, cfg, onlyOne{map[uint64]bool{}})
			confirmed := func(flags Flags) *confirms {
				m, c := message(1, 0), &confirms{}
				m.Flags |= flags
				b := batchOf(m)
				b.Publisher = c
				q.enqueue(second, b)
				return c
			}
			original := confirmed(Persistent)
			if tt.stored && original.n.Load() > 0 {
				t.Fatal("the original is confirmed before it is durable")
			}
			duplicate := confirmed(tt.flags)
			if waits := duplicate.n.Load() == 0; waits != tt.waits {
				t.Errorf("the duplicate waits for its original: %t, want %t", waits, tt.waits)
			}
			if j.durable(); original.n.Load() != 1 || duplicate.n.Load() != 1 {
				t.Errorf("confirmed: %d originals, %d duplicates, want one each", original.n.Load(), duplicate.n.Load())
			}
			if n := q.Stats().Dropped[hook.ReasonDuplicate]; n != 1 {
				t.Errorf("dropped %d duplicates, want 1", n)
			}
		})
	}
}

// A duplicate that came from another queue was removed there before its original was durable. A crash found neither.
func TestADuplicateDoesNotOvertakeItsOriginal(t *testing.T) {
	const from = 9 // the queue that it comes from
	j := &lateJournal{}
	q, _ := watchedQueue(t, Config{Storage: &Storage{Journal: j, ID: 1}}, onlyOne{map[uint64]bool{}})
	q.enqueue(second, batchOf(persist(2)))
	original := batchOf(persist(1))
	original.Publisher = &confirms{}
	q.enqueue(second, original)
	q.Get(second, nil2(), func(Delivery, int) {}) // settles message 2

	r := &DeferredRemoval{
		journal: j, queue: from, parting: []departed{{ref: 5, extent: 1, bytes: -10, alone: true}}, tracker: &pendingRemovals{open: 1},
	}
	r.pending.Store(1)
	duplicate, c := batchOf(persist(1)), &confirms{}
	duplicate.Messages[0].Seq = 1
	duplicate.Publisher, duplicate.Removal = c, r
	q.enqueue(second, duplicate)
	removed := func() (some bool) {
		for _, e := range j.entries {
			some = some || bytes.Contains(e.ops, appendOp(nil, opSettled, from))
		}
		return some
	}
	if c.n.Load() != 0 {
		t.Error("the duplicate is confirmed before its original is durable")
	}
	if removed() {
		t.Error("the duplicate is removed from its old queue before its original is durable")
	}
	if j.durable(); !removed() || c.n.Load() != 1 {
		t.Errorf("when its original is durable, the duplicate is removed from its old queue: %t, and confirmed %d times", removed(), c.n.Load())
	}
}

// A transaction that only brings a duplicate was committed at once.
func TestATransactionWithADuplicateWaitsForItsOriginal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &lateJournal{}
		s := keptIn(t, j, onlyOne{map[uint64]bool{}}.Attach(nil), "q")[0]
		s.Publish(batchOf(persist(1)))
		done := make(chan error, 1)
		go func() {
			_, err := Transact([]Part{{Mailbox: s, Batch: batchOf(persist(1))}})
			done <- err
		}()
		synctest.Wait()
		if len(done) > 0 {
			t.Fatal("it is committed before the original is durable")
		}
		j.durable()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = s.Do(func(q *Queue, _ hook.Instant) {
			if n := q.Stats().Dropped[hook.ReasonDuplicate]; n != 1 {
				t.Errorf("dropped %d duplicates, want 1", n)
			}
		})
	})
}
