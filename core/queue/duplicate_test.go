package queue

import (
	"testing"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// lateJournal makes nothing durable before it is told.
type lateJournal struct {
	memoryJournal
	waiting []journal.Completer
}

func (j *lateJournal) Commit(ops []byte, live []journal.Delta, c journal.Completer) {
	j.memoryJournal.Commit(ops, live, nil)
	if c != nil {
		j.waiting = append(j.waiting, c)
	}
}

func (j *lateJournal) CommitAs(_ wlog.Purpose, ops []byte, live []journal.Delta, c journal.Completer) {
	j.Commit(ops, live, c)
}

func (j *lateJournal) durable() {
	waiting := j.waiting
	j.waiting = nil
	for _, c := range waiting {
		c.Durable()
	}
}

// live returns how many bytes are.
func (j *lateJournal) live() (bytes int64) {
	for _, n := range j.used {
		bytes += n
	}
	return bytes
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
