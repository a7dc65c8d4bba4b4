package queue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// faultGraves is a host that counts the panics of its queues.
type faultGraves struct {
	*graves
	faults []string
}

func (g *faultGraves) Faulted(from *Config, v any, stack []byte) {
	g.faults = append(g.faults, fmt.Sprint(from.Name, ": ", v))
	if !strings.Contains(string(stack), "core/queue") {
		panic("a stack that says nothing")
	}
}

// damages are what no code of a queue expects.
var damages = map[string]func(q *Queue){
	"no levels":   func(q *Queue) { q.levels = q.levels[:0] },
	"no segments": func(q *Queue) { q.store.segments = nil },
	"no chunks": func(q *Queue) {
		for l := range q.levels {
			q.levels[l].chunks = nil
		}
	},
}

// unnoticed are damages that do not matter to what a test does.
var unnoticed = map[string][]string{
	"published": {"no segments", "no chunks"}, "in a transaction": {"no segments", "no chunks"}, "purged": {"no levels", "no segments", "no chunks"},
	"settled": {"no chunks"}, "due": {"no chunks"},
}

// A panic in a queue's turn ended the broker or, if a request to the management API ran the turn, left the queue and the virtual host
// locked. It stops the queue, and its messages are there after a restart.
func TestAPanicStopsTheQueueAlone(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, s *Mailbox){
		"published": func(_ *testing.T, s *Mailbox) { _ = send(s, persist(9)) },
		"settled":   func(_ *testing.T, s *Mailbox) { s.Settle(Requeue, []PendingAck{{Ref: 0}}) },
		"fetched": func(_ *testing.T, s *Mailbox) {
			_ = s.Do(func(q *Queue, now hook.Instant) { q.Get(now, &Consumer{}, func(Delivery, int) {}) })
		},
		"consumed": func(_ *testing.T, s *Mailbox) {
			_ = s.Do(func(q *Queue, now hook.Instant) { _ = q.AddConsumer(now, &Consumer{Queue: s, Sink: &sink{room: 100}}) })
		},
		"purged": func(_ *testing.T, s *Mailbox) { _ = s.Do(func(q *Queue, now hook.Instant) { q.Purge(now) }) },
		"looked at": func(_ *testing.T, s *Mailbox) {
			_ = s.Look(func(q *Queue) { q.Head(); panic("a fault of the caller") })
		},
		"given another policy": func(t *testing.T, s *Mailbox) {
			t.Helper()
			h := ttlAndExpiration(hook.ScanHeads, hook.LimitOf(500), true)
			h.Length = hook.LimitOf(1)
			if err := s.Reconfigure(s.Config(), chainOf(t, h), true); err != nil {
				t.Error(err)
			}
		},
		"due": func(*testing.T, *Mailbox) { waitFor(time.Hour) },
		"in a transaction": func(t *testing.T, s *Mailbox) {
			t.Helper()
			if _, err := Transact([]Part{{Mailbox: s, Batch: batchOf(persist(9)), Settlements: []Settlement{{Ack, []PendingAck{{Ref: 0}}}}}}); err == nil {
				t.Error("the transaction was carried out")
			}
		},
	} {
		for damage, do := range damages {
			if slices.Contains(unnoticed[name], damage) {
				continue
			}
			t.Run(name+"/"+damage, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ownTraffic(t)
					stopsAlone(t, do, func(s *Mailbox) { run(t, s) })
				})
			})
		}
	}
}

func stopsAlone(t *testing.T, damage func(q *Queue), run func(s *Mailbox)) {
	t.Helper()
	j := &lockedJournal{}
	both := keptIn(t, j, ttlHooks(hook.ScanAnywhere, &hook.Target{}), "q", "other")
	s, other := both[0], both[1]
	g := &faultGraves{graves: s.queue.host.(*graves)}
	s.queue.host = g
	brief := expiring(2, time.Minute)
	brief.Flags = Persistent
	if err := errors.Join(send(s, persist(0), persist(1), brief), send(other, persist(7))); err != nil {
		t.Fatal(err)
	}
	served := &sink{room: 1}
	_ = s.Do(func(q *Queue, now hook.Instant) {
		if err := q.AddConsumer(now, &Consumer{Queue: s, Sink: served, Prefetch: 1}); err != nil {
			t.Error(err)
		}
	})
	_ = s.Look(func(*Queue) { damage(&s.queue) }) // on a turn: the timer's may be the next
	run(s)

	var stopped *StoppedError
	if err := send(s, persist(8)); !errors.As(err, &stopped) || stopped.Error() != "queue 'q' in vhost '/' is stopped: an error in the broker" {
		t.Fatalf("published to it: %v", err)
	}
	if len(g.faults) == 0 || !strings.HasPrefix(g.faults[0], "q: ") {
		t.Errorf("reported: %q", g.faults)
	}
	if served.stopped != 1 {
		t.Errorf("its consumer was told %d times", served.stopped)
	}
	waitFor(time.Hour) // no timer is left that goes on
	reported := len(g.faults)
	if stats(t, s); len(g.faults) != reported {
		t.Errorf("a stopped queue panics: %q", g.faults)
	}
	if st := stats(t, other); st.Ready != 1 {
		t.Errorf("another queue has %d messages", st.Ready)
	}
	if _, err := Transact([]Part{{Mailbox: other, Batch: batchOf(persist(8))}}); err != nil {
		t.Errorf("a transaction with another queue: %v", err)
	}
	if again := j.reborn(t, &s.queue); again.Stats().Published < 3 {
		t.Errorf("a restart finds %d messages", again.Stats().Published)
	}
	_ = s.Do(func(q *Queue, _ hook.Instant) {
		if _, err := q.Delete(false, false); err != nil {
			t.Error(err)
		}
	})
	if err := s.Do(func(*Queue, hook.Instant) {}); !errors.Is(err, ErrGone) {
		t.Errorf("deleted: %v", err)
	}
}

// A queue that panics while it is deleted is gone all the same.
func TestAQueueThatPanicsCanBeDeleted(t *testing.T) {
	for damage, do := range damages {
		t.Run(damage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := keptIn(t, &lockedJournal{}, hook.Hooks{}, "q")[0]
				if err := send(s, persist(0), message(1, 0)); err != nil {
					t.Fatal(err)
				}
				served := &sink{}
				_ = s.Do(func(q *Queue, now hook.Instant) {
					_ = q.AddConsumer(now, &Consumer{Queue: s, Sink: served, Prefetch: 1})
				})
				do(&s.queue)
				_ = s.Do(func(q *Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
				if err := s.Do(func(*Queue, hook.Instant) {}); !errors.Is(err, ErrGone) {
					t.Errorf("deleted: %v", err)
				}
				if served.cancelled != 1 {
					t.Errorf("its consumer was cancelled %d times", served.cancelled)
				}
			})
		})
	}
}

// What panics while it is restored stops that queue, not the start, and its journal stays as it is.
func TestAPanicWhileRestoringStopsTheQueueAlone(t *testing.T) {
	for name, when := range map[string]func(r *Restorer, step int){
		"applied": func(r *Restorer, step int) {
			if step == 1 {
				r.queues[1].levels[0].chunks[0].positions = []uint16{} // which makes it a sparse one
			}
		},
		"filled": func(r *Restorer, step int) {
			if step == 2 {
				r.queues[1].store.segments = nil
			}
		},
		"taken over": func(r *Restorer, step int) {
			if step == 2 {
				r.queues[1].levels[0].first, r.queues[1].levels[0].chunks[0].bodies = 1, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { restoresTheOthers(t, when) })
		})
	}
}

func restoresTheOthers(t *testing.T, interfere func(r *Restorer, step int)) {
	t.Helper()
	j := &lockedJournal{}
	both := keptIn(t, j, ttlHooks(hook.ScanAnywhere, &hook.Target{}), "q", "other")
	for id := range uint64(3) {
		if err := errors.Join(send(both[0], persist(id)), send(both[1], persist(10+id))); err != nil {
			t.Fatal(err)
		}
	}
	r := testBroker.NewRestorer()
	for i, e := range j.entries {
		if i == 2 {
			interfere(r, 1)
		}
		ops := e.ops
		if i == 2 { // an operation about a message that is not where the index says
			ops = append(appendReturned(nil, 1, ref(0, 1), 1), ops...)
		}
		if _, err := r.Apply(e.extent, ops); err != nil {
			t.Fatal(err)
		}
	}
	interfere(r, 2)
	var restored []*Mailbox
	g := &faultGraves{graves: both[0].queue.host.(*graves)}
	for _, m := range both {
		again := testBroker.NewPausedMailbox(m.Config(), chainOf(t, hook.Hooks{}), g, m.clock)
		restored = append(restored, again)
	}
	j.used = map[uint32]int64{}
	r.Fill(restored)
	r.Start()
	if st := stats(t, restored[1]); st.Ready != 3 {
		t.Errorf("another queue has %d messages", st.Ready)
	}
	var why *StoppedError
	_ = restored[0].Do(func(q *Queue, _ hook.Instant) {
		why = q.Stopped()
		checkSums(t, q)
	})
	if why == nil || !strings.HasSuffix(why.Error(), "is stopped: an error in the broker") || len(g.faults) != 1 {
		t.Errorf("stopped: %v; reported %q", why, g.faults)
	}
	for _, e := range j.entries {
		if j.used[e.extent] <= 0 {
			t.Errorf("extent %d is not of use", e.extent)
		}
	}
	j.trim()
	whole := testBroker.NewRestorer()
	for _, e := range j.entries {
		if _, err := whole.Apply(e.extent, e.ops); err != nil {
			t.Fatal(err)
		}
	}
	if n := whole.queues[1].messages(); n != 3 {
		t.Errorf("the next start finds %d of its messages", n)
	}
	whole.Discard()
}

// The redrive of a queue that could not even free what it held ran for ever for all who asked, and kept its targets in use.
func TestTheRedriveOfAQueueThatPanicsEnds(t *testing.T) {
	y := newJourney(t, 10)
	ended := 0
	y.redrive.ended = func(hook.Instant, *RedriveStatus) { ended++ }
	y.from.levels[0].chunks[0].positions = []uint16{} // which makes it a sparse one
	y.from.stop(errors.New("input/output error"))
	if s := y.redrive.Status(); s.State != RedriveFailed || s.Ended == 0 || ended != 1 {
		t.Errorf("it ended %d times: %+v", ended, s)
	}
	(&task{kind: taskAnswered, transfer: y.host.batches[0].kept}).decline(y.from, second)
	y.host.batches[0].release()
}

// breaking is a host of a queue whose bodies cannot be read while a message is refused.
type breaking struct{ *courier }

func (breaking) Refused(*Config, int) { panic(unreadable{errUnreadable}) }

// A turn that broke off while what it refused was to stay where it is left a buffer to the next transaction, which then lost what a full
// queue was to dead-letter.
func TestABrokenTurnLeavesNoRuleBehind(t *testing.T) {
	y := newJourney(t, 10)
	y.to.host = breaking{y.host}
	y.to.mailbox.handle(second, &task{kind: taskPublish, batch: y.host.batches[0]})
	if y.to.stopped == nil {
		t.Fatal("the turn did not break off")
	}
	q, h := passive(t, Config{}, hook.Hooks{OnEnqueue: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		vs[0] = hook.Verdict{Action: hook.Route, Reason: hook.ReasonMaxLen, Target: &hook.Target{}, Nack: true}
	}})
	q.buf = y.to.buf
	ms := []Message{message(1, 8)}
	q.takeInTurn(second, ms) // as a transaction does
	if len(h.dead) != 1 || ms[0].Flags&Refused == 0 {
		t.Errorf("dead-lettered: %v; flags %b", h.dead, ms[0].Flags)
	}
}

// clumsy is a host that cannot publish dead letters.
type clumsy struct{ *faultGraves }

func (clumsy) DeadLetter(*Config, hook.Instant, []DeadLetter, Tracking) { panic("a fault of the host") }

// Who deleted a queue that had panicked while it sent dead letters waited for ever: for these to arrive.
func TestAQueueThatPanicsAwaitsNoDeadLetters(t *testing.T) {
	for name, leave := range map[string]func(s *Mailbox, held []PendingAck){ // an error: it comes back with the next start
		"rejected": func(s *Mailbox, held []PendingAck) { s.Settle(Reject, held) },
		"redriven": func(s *Mailbox, held []PendingAck) {
			s.Settle(Requeue, held)
			_ = s.Do(func(q *Queue, now hook.Instant) {
				_, _ = q.StartRedrive(now, RedriveOptions{Choose: func(*Stored) (*RedriveTarget, RedriveFailure) {
					return &RedriveTarget{}, NotChosen
				}})
				q.redrive.goOn(q, now)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ownTraffic(t)
				s := keptIn(t, &lockedJournal{}, ttlHooks(hook.ScanAnywhere, &hook.Target{}), "q")[0]
				g := &faultGraves{graves: s.queue.host.(*graves)}
				s.queue.host = clumsy{g}
				if err := send(s, persist(0)); err != nil {
					t.Fatal(err)
				}
				leave(s, fetch(t, s))
				if len(g.faults) != 1 {
					t.Fatalf("reported: %q", g.faults)
				}
				_ = s.Do(func(q *Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
				var failed error
				if s.AfterDeadLetters(func(err error) { failed = err }) {
					synctest.Wait()
				}
				if open, _ := s.underway(); open > 0 || (failed != nil) != (name == "rejected") {
					t.Errorf("it still sends %d; error %v", open, failed)
				}
			})
		})
	}
}

// rude is a journal that panics when it has committed something.
type rude struct{ lockedJournal }

func (j *rude) Commit(ops []byte, live []journal.Delta, c journal.Completer) {
	j.lockedJournal.Commit(ops, live, c)
	if len(ops) > 0 {
		panic("a fault of the journal")
	}
}

// A change whose commit was durable when its turn panicked held up the queue, and who had made it, for ever.
func TestAPanicAfterAChangeIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keptIn(t, &rude{}, hook.Hooks{}, "q")[0]
		s.queue.host = &faultGraves{graves: s.queue.host.(*graves)}
		_ = s.Change(t.Context(), func(q *Queue, now hook.Instant) { q.takeInTurn(now, []Message{persist(0)}) })
		if why := s.queue.Stopped(); why == nil || !why.panicked() {
			t.Errorf("stopped: %v", why)
		}
	})
}
