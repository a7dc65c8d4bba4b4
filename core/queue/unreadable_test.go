package queue

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A body that could not be read back from the spill file took the whole process along. Its queue stops, and no other; a
// restart finds what is in its journal.
func TestAQueueStopsWhenItsBodiesCannotBeRead(t *testing.T) {
	for name, use := range map[string]func(q *Queue, now hook.Instant){
		"fetched":  func(q *Queue, now hook.Instant) { q.Get(now, &Consumer{NoAck: true}, func(Delivery, int) {}) },
		"consumed": func(q *Queue, now hook.Instant) { _ = q.AddConsumer(now, &Consumer{Sink: &sink{room: 1000}}) },
		"expired":  func(q *Queue, now hook.Instant) { q.dropFromHead(now, hook.ReasonMaxLen, func() bool { return true }) },
		"purged with one handed out": func(q *Queue, now hook.Instant) {
			if q.stopped == nil {
				q.take(q.at(900), 0)
				q.Purge(now)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { stopsUnreadable(t, use) }) })
	}
}

func stopsUnreadable(t *testing.T, use func(q *Queue, now hook.Instant)) {
	t.Helper()
	const n = 2000
	spilling(t, 0)
	said := 0
	testBroker.spill.failed = func(error) { said++ }
	other, _ := live(t, hook.Hooks{})
	other.Publish(batchOf(message(1, 0)))
	j := &memoryJournal{}
	s, _ := live(t, hook.Hooks{})
	cfg := *s.Config()
	cfg.Storage = &Storage{Journal: j, ID: 7, Shard: 1}
	s.config.Store(&cfg)
	s.queue.cfg = &cfg
	for i := range uint64(n) {
		m := patterned(i, 1024)
		m.Flags = Persistent
		s.Publish(batchOf(m))
	}
	synctest.Wait()
	_ = testBroker.spill.Close()

	for range n { // until it comes to what is on the disk
		if err := s.Do(use); err != nil {
			t.Fatal(err)
		}
	}
	var why *StoppedError
	if err := s.Do(func(q *Queue, _ hook.Instant) { why = q.Stopped() }); err != nil || why == nil {
		t.Fatalf("it is not stopped: %v", err)
	}
	if !errors.Is(why, errUnreadable) || !strings.HasSuffix(why.Error(), "is stopped: message bodies cannot be read back from the disk") {
		t.Errorf("stopped: %v", why)
	}
	if said != 1 {
		t.Errorf("said %d times", said)
	}
	if err := send(s, message(9, 0)); !errors.Is(err, errUnreadable) {
		t.Errorf("published: %v", err)
	}
	if _, err := Transact([]Part{{Mailbox: s, Batch: batchOf(message(9, 0))}}); !errors.Is(err, errUnreadable) {
		t.Errorf("transaction: %v", err)
	}
	if st := stats(t, other); st.Ready != 1 {
		t.Errorf("another queue has %d messages", st.Ready)
	}
	if st := stats(t, s); st.Ready+st.Unacked+st.Discarded > n {
		t.Errorf("it has %d messages", st.Ready)
	}
}

// A transaction is told, and its other queues go on.
func TestATransactionFailsWhenBodiesCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spilling(t, 0)
		s, _ := live(t, hook.Hooks{})
		other, _ := live(t, hook.Hooks{})
		for i := range uint64(2000) {
			s.Publish(batchOf(patterned(i, 1024)))
		}
		var held []PendingAck
		_ = s.Do(func(q *Queue, now hook.Instant) {
			for range 2000 {
				q.Get(now, &Consumer{}, func(d Delivery, _ int) { held = append(held, PendingAck{Ref: d.Ref}) })
			}
		})
		_ = testBroker.spill.Close()
		_, err := Transact([]Part{
			{Mailbox: s, Settlements: []Settlement{{Requeue, held}}}, {Mailbox: other, Batch: batchOf(message(1, 0))},
		})
		if !errors.Is(err, errUnreadable) {
			t.Errorf("got %v", err)
		}
		if st := stats(t, other); st.Ready != 1 {
			t.Errorf("the other queue has %d messages", st.Ready)
		}
	})
}

// unreadableSoon returns a durable queue with n messages, most of which are on a disk that is about to break, and what breaks it.
func unreadableSoon(t *testing.T, h hook.Hooks, n int) (s *Mailbox, cut func()) {
	t.Helper()
	spilling(t, 0)
	s, _ = live(t, h)
	cfg := *s.Config()
	cfg.Storage = &Storage{Journal: &memoryJournal{}, ID: 7, Shard: 1}
	s.config.Store(&cfg)
	s.queue.cfg = &cfg
	for i := range uint64(n) {
		m := patterned(i, 1024)
		m.Flags = Persistent
		s.Publish(batchOf(m))
	}
	synctest.Wait()
	return s, func() { _ = testBroker.spill.Close() }
}

// What a queue had noted of a batch when it had to stop was taken for another's, which has no journal and waited for one: its
// publisher was never told, and with dead letters the process ended.
func TestWhatAStoppedQueueWasDoingIsNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2000
		s, cut := unreadableSoon(t, hook.Hooks{Length: hook.LimitOf(n)}, n)
		other, _ := live(t, hook.Hooks{})
		cut()
		var err error
		for i := uint64(n); err == nil && i < 2*n; i++ { // until what is dropped lies on the disk
			m := patterned(i, 1024)
			m.Flags = Persistent
			err = send(s, m)
		}
		if !errors.Is(err, errUnreadable) {
			t.Fatalf("published: %v", err)
		}
		for range 8 {
			b, o := batchOf(message(1, 0)), make(outcome, 1)
			b.Publisher = o
			other.Publish(b)
			synctest.Wait()
			select {
			case err := <-o:
				if err != nil {
					t.Errorf("another queue's publisher: %v", err)
				}
			default:
				t.Fatal("another queue's publisher is told nothing")
			}
		}
	})
}

// A queue that had to stop while it sent dead letters left its part of what may be under way behind: after some of them nothing
// was dead-lettered any more.
func TestAStoppedQueueLeavesNothingUnderWay(t *testing.T) {
	for name, target := range map[string]*hook.Target{"at most once": {}, "at least once": {AtLeastOnce: true}} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { leavesNothingUnderWay(t, target) }) })
	}
}

func leavesNothingUnderWay(t *testing.T, target *hook.Target) {
	t.Helper()
	ownTraffic(t)
	testBroker.underway.bytes.Add(trafficLimit) // of others
	const n = 2000
	s, cut := unreadableSoon(t, ttlHooks(hook.ScanAnywhere, target), n)
	g := &graveyard{}
	_ = s.Do(func(q *Queue, now hook.Instant) {
		q.host = g
		var held []PendingAck
		for range n {
			q.Get(now, &Consumer{}, func(d Delivery, _ int) { held = append(held, PendingAck{Ref: d.Ref}) })
		}
		q.settleAll(now, Reject, held)
	})
	cut()
	testBroker.underway.remove(trafficLimit)
	for range 10 {
		g.land()
	}
	var why *StoppedError
	if err := s.Do(func(q *Queue, _ hook.Instant) { why = q.Stopped() }); err != nil || why == nil {
		t.Fatalf("it is not stopped: %v", err)
	}
	if n := testBroker.underway.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are under way", n)
	}
}

// What an exchange holds, and could not be read back when the broker started, was counted as lost, some 18 quintillion times.
func TestARestoredQueueWhoseBodiesCannotBeRead(t *testing.T) {
	spilling(t, 0)
	testBroker.spill.failed = func(error) {}
	j := &memoryJournal{}
	cfg := scheduling(t)
	cfg.Storage = &Storage{Journal: j, ID: 7, Shard: 1}
	q, _ := passive(t, cfg, hook.Hooks{})
	const n = 2000
	for i := range uint64(n) {
		m := patterned(i, 1024)
		m.Body[0] = 100
		q.enqueue(second, batchOf(m))
	}
	q.commit(nil)
	r := testBroker.NewRestorer()
	r.Declare(7, Holding)
	for _, e := range j.entries {
		if _, err := r.Apply(e.extent, e.ops); err != nil {
			t.Fatal(err)
		}
	}
	_ = testBroker.spill.Close()
	s := &Mailbox{broker: testBroker, clock: q.mailbox.clock}
	s.config.Store(q.cfg)
	s.queue = Queue{essentials: essentials{cfg: q.cfg}, host: q.host, mailbox: s, hooks: q.hooks}
	r.Fill([]*Mailbox{s})
	st := s.queue.Stats()
	if why := s.queue.Stopped(); !errors.Is(why, errUnreadable) || st.Held != n || st.Published != n || st.Lost != 0 {
		t.Errorf("stopped: %v; held %d, published %d, lost %d", why, st.Held, st.Published, st.Lost)
	}
	q.close()
}

// A message that could not be read as it was to be relocated was let go of by the journal, without a copy: a restart would not have found it.
func TestWhatCannotBeRelocatedStaysInTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2000
		s, cut := unreadableSoon(t, hook.Hooks{}, n)
		testBroker.spill.failed = func(error) {}
		j := s.Config().Storage.Journal.(*memoryJournal)
		used := func() (bytes int64) {
			for _, b := range j.used {
				bytes += b
			}
			return bytes
		}
		before, upTo, rounds := used(), j.extent, 0
		cut()
		var why *StoppedError
		for ; why == nil && rounds < n; rounds++ {
			if err := s.Do(func(q *Queue, _ hook.Instant) {
				if why = q.stopped; why == nil {
					q.Relocate(upTo)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		if !errors.Is(why, errUnreadable) || rounds < 2 {
			t.Fatalf("after %d rounds it is stopped: %v", rounds, why)
		}
		if got := used(); got != before {
			t.Errorf("%d bytes of the journal are used, want %d", got, before)
		}
	})
}
