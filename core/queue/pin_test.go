package queue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A stopped queue kept its part of the journal for ever, also after it was deleted. What it lets go of is exactly what it has there, wherever its turn
// broke off: too little keeps the log from being trimmed, too much is another queue's.
func TestAStoppedQueueLetsGoOfWhatItHasInTheJournal(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, s *Mailbox){
		"acknowledged": func(t *testing.T, s *Mailbox) {
			t.Helper()
			for range 10 {
				s.Settle(Ack, fetch(t, s))
			}
		},
		"rejected": func(t *testing.T, s *Mailbox) {
			t.Helper()
			var all []PendingAck
			for range 10 {
				all = append(all, fetch(t, s)...)
			}
			s.Settle(Reject, all)
		},
		"fetched": func(_ *testing.T, s *Mailbox) {
			_ = s.Do(func(q *Queue, now hook.Instant) {
				for range 10 {
					q.Get(now, &Consumer{NoAck: true}, func(Delivery, int) {})
				}
			})
		},
		"published": func(_ *testing.T, s *Mailbox) {
			_ = s.Do(func(q *Queue, now hook.Instant) {
				if q.stopped == nil {
					q.enqueue(now, batchOf(persist(30), persist(31)))
					panic("a fault")
				}
			})
		},
		"purged":                     purge,
		"purged with one handed out": func(t *testing.T, s *Mailbox) { t.Helper(); fetch(t, s); purge(t, s) },
		"purged with many handed out": func(t *testing.T, s *Mailbox) {
			t.Helper()
			for range 12 {
				fetch(t, s)
			}
			purge(t, s)
		},
		"due": func(*testing.T, *Mailbox) { waitFor(time.Hour) },
	} {
		for target, to := range map[string]*hook.Target{"dropped": nil, "dead-lettered": {}, "at least once": {AtLeastOnce: true}} {
			for first := range 6 {
				t.Run(name+"/"+target, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						ownTraffic(t)
						letsGo(t, to, first, func(s *Mailbox) { run(t, s) })
					})
				})
			}
		}
	}
}

func purge(_ *testing.T, s *Mailbox) {
	_ = s.Do(func(q *Queue, now hook.Instant) {
		if q.stopped == nil {
			q.Purge(now)
		}
	})
}

// letsGo has a queue break off as a message leaves, before which so many others did.
func letsGo(t *testing.T, to *hook.Target, before int, run func(s *Mailbox)) {
	t.Helper()
	h, armed, damage := ttlHooks(hook.ScanAnywhere, to), false, func() {}
	enqueue := h.OnEnqueue
	h.OnEnqueue = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		enqueue(now, ms, vs)
		for i := range vs {
			vs[i].Watch = true
		}
	}
	h.OnGone = func(ms []hook.Message) {
		if before -= len(ms); armed && before < 0 && len(ms) > 0 {
			damage() // plugins' own panics are not the queue's
		}
	}
	j := &lockedJournal{}
	both := keptIn(t, j, h, "q", "other")
	s, other := both[0], both[1]
	damage = func() { s.queue.store.segments = nil }
	g := &graveyard{}
	s.queue.host = g
	if err := send(other, persist(7)); err != nil {
		t.Fatal(err)
	}
	want := j.sum()
	for id := range uint64(20) {
		m := expiring(id, time.Minute)
		m.Flags = Persistent
		if err := send(s, m); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.Look(func(*Queue) { armed = true }) // on a turn: the timer's may be the next
	run(s)
	synctest.Wait()
	var why *StoppedError
	_ = s.Do(func(q *Queue, _ hook.Instant) {
		armed = false
		if why = q.stopped; why == nil {
			q.stop(&panicError{value: "after all"})
		}
		if lost := q.count.Lost; lost > 20 {
			t.Errorf("%d messages were lost", lost)
		}
	})
	g.land()
	g.land()
	_ = s.Do(func(q *Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
	s.LetGo(func() error { return nil })
	synctest.Wait()
	if got := j.sum(); got != want {
		t.Errorf("%d bytes of the journal are used, want %d; stopped by what it did: %v", got, want, why != nil)
	}
	if j.records != 1 {
		t.Errorf("space is kept for the ends of %d messages, and there is 1; stopped by what it did: %v", j.records, why != nil)
	}
	for extent, bytes := range j.used {
		if bytes < 0 {
			t.Errorf("extent %d has %d bytes", extent, bytes)
		}
	}
}

func (j *lockedJournal) sum() (bytes int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, n := range j.used {
		bytes += n
	}
	return bytes
}
