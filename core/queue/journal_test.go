package queue

import (
	"errors"
	"testing"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// memoryJournal is a journal that makes everything durable at once and begins a
// new extent now and then.
type memoryJournal struct {
	entries []entry
	extent  uint32
	used    map[uint32]int64
	records int // live ones
	full    bool
}

type entry struct {
	extent uint32
	ops    []byte
}

var _ Journal = (*memoryJournal)(nil)

func (j *memoryJournal) Commit(ops []byte, live []journal.Delta, c journal.Completer) {
	if len(ops) > 0 {
		if len(j.entries)%10 == 0 {
			j.extent++
		}
		j.entries = append(j.entries, entry{j.extent, append([]byte(nil), ops...)})
	}
	j.account(live)
	if c != nil {
		c.Durable()
	}
}

func (j *memoryJournal) Relocate(ops []byte, live []journal.Delta) { j.Commit(ops, live, nil) }

func (j *memoryJournal) TryCommit(ops []byte) bool {
	if !j.full {
		j.Commit(ops, nil, nil)
	}
	return !j.full
}

func (j *memoryJournal) Err() error { return nil }

func (j *memoryJournal) Extent() uint32 {
	if j.extent == 0 {
		j.extent = 1
	}
	return j.extent
}

func (j *memoryJournal) account(ds []journal.Delta) {
	if j.used == nil {
		j.used = map[uint32]int64{}
	}
	for _, d := range ds {
		j.used[d.Extent] += d.Bytes
		j.records += int(d.Records)
	}
}

// trim drops the oldest entries up to the first extent that is of use.
func (j *memoryJournal) trim() {
	first := j.extent
	for extent, bytes := range j.used {
		if bytes > 0 {
			first = min(first, extent)
		}
	}
	for len(j.entries) > 0 && j.entries[0].extent < first {
		j.entries = j.entries[1:]
	}
}

// check fails unless what is of use in the journal is what the queue holds.
func (j *memoryJournal) check(t *testing.T, q *Queue) {
	t.Helper()
	var used, want int64
	for e, n := range j.used {
		if n < 0 {
			t.Fatalf("extent %d: %d bytes are of use", e, n)
		}
		used += n
	}
	if q.contents == nil {
		return
	}
	for l := range q.levels {
		for _, c := range q.levels[l].chunks {
			for i := range c.slots {
				if s := &c.slots[i]; !s.is(stateFree) {
					want += weight(s) - c.savedBy(i)
				}
			}
		}
	}
	if used != want {
		t.Fatalf("%d bytes of the journal are of use, want %d", used, want)
	}
}

// A message that goes to several queues, one of which cannot take it, as its journal has failed, stays in the journal it is in: it
// was taken out when the other queues had theirs later, and after a restart the one that failed never got it.
func TestDeferredRemovalOfWhatDidNotArrive(t *testing.T) {
	lost := errors.New("input/output error")
	for name, outcomes := range map[string][]error{
		"the first fails":  {lost, nil, nil},
		"the second fails": {nil, lost, nil},
		"the last fails":   {nil, nil, lost},
		"all fail":         {lost, lost, lost},
		"all arrive":       {nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			want, entries := error(nil), 1
			for _, err := range outcomes {
				if err != nil {
					want, entries = err, 0
				}
			}
			j, d := &memoryJournal{}, &pendingRemovals{}
			d.begin()
			r := &DeferredRemoval{journal: j, queue: 7, parting: []departed{{ref: 1}}, tracker: d}
			r.expect(len(outcomes), nil)
			for i, err := range outcomes {
				if i == 2 && err == nil && want != nil && r.joins(j) {
					t.Error("it is recorded with the last batch")
				}
				b := NewBatch()
				b.Removal = r
				b.complete(err)
			}
			if len(j.entries) != entries || d.open != 0 || !errors.Is(d.failed, want) {
				t.Errorf("%d entries, %d open, failed: %v; want %d, 0, %v", len(j.entries), d.open, d.failed, entries, want)
			}
		})
	}
}

// Who requeued for ever on a full disk filled the memory with what was to be written of it. What is given up of that says how often
// messages came back; those who get them again after a restart are told so all the same.
func TestRequeuesOnAFullDisk(t *testing.T) {
	q, _, j := durable(t, Config{}, hook.Hooks{})
	q.enqueue(second, batchOf(persist(1), persist(2)))
	j.full = true
	for range 100 {
		for range 2 {
			q.Get(second, nil2(), func(Delivery, int) {})
		}
		q.settleAll(second, Requeue, []PendingAck{{Ref: 0}, {Ref: 1}})
		q.commit(nil)
	}
	if len(j.entries) != 1 {
		t.Errorf("%d entries were written, want 1", len(j.entries))
	}
	for range 2 {
		q.Get(second, nil2(), func(Delivery, int) {})
	}
	q.settleAll(second, Ack, []PendingAck{{Ref: 1}})
	q.commit(nil)
	after := j.reborn(t, q)
	after.Get(second, nil2(), func(d Delivery, _ int) {
		if !d.Redelivered {
			t.Error("the message is not redelivered after a restart")
		}
	})
	if after.unacked != 1 || after.ready != 0 {
		t.Errorf("%d messages are unacknowledged and %d ready, want 1 and 0", after.unacked, after.ready)
	}
}

// Retries on a full disk filled the memory, too: each wait was to be written, although the next one made it void.
func TestRetriesOnAFullDisk(t *testing.T) {
	for _, kind := range []SettleKind{Requeue, Return} {
		wait := func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) { vs[0].Hold = now.AddMillis(10) }
		q, _, j := durable(t, Config{}, hook.Hooks{OnReturn: wait})
		q.enqueue(second, batchOf(persist(1)))
		j.full = true
		now := second
		for range 100 {
			q.Get(now, nil2(), func(Delivery, int) {})
			q.settleAll(now, kind, []PendingAck{{Ref: 0}})
			q.commit(nil)
			if held := q.held(); held != 1 {
				t.Fatalf("%d messages are held, want 1", held)
			}
			now = now.AddMillis(10)
			q.tick(now)
			q.commit(nil)
		}
		if len(j.entries) != 1 {
			t.Errorf("%d entries were written, want 1", len(j.entries))
		}
		j.full = false
		q.Get(now, nil2(), func(Delivery, int) {})
		q.settleAll(now, kind, []PendingAck{{Ref: 0}})
		q.commit(nil)
		if after := j.reborn(t, q); after.held() != 1 || after.HeldMessage(0).Until != now.AddMillis(10) {
			t.Errorf("after a restart %d messages are held: %+v", after.held(), after.HeldMessage(0))
		}
	}
}
