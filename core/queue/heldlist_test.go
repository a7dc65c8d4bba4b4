package queue

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A release is reported once, with the end of the hold if that is why.
func TestReleasesAreReported(t *testing.T) {
	q, h := passive(t, Config{}, holdHooks())
	q.enqueue(second, batchOf(heldUntil(1, 3), heldUntil(2, 5), heldUntil(3, 9), heldUntil(4, 0)))
	refs := heldRefs(q)
	q.tick(3*second + 7)
	if !q.MoveHeld(4*second, refs[1], 0) || !q.MoveHeld(4*second, refs[2], 6*second) {
		t.Fatal("a message is not held")
	}
	q.tick(7 * second)
	var held []hook.Instant
	for _, l := range h.released {
		if l.Reason != hook.ReasonReleased || l.Outcome != telemetry.Ready || l.Target != nil || l.Enqueued != second || l.Size != 8 {
			t.Errorf("reported %+v", l)
		}
		held = append(held, l.Held)
	}
	if want := []hook.Instant{3 * second, 0, 6 * second}; !reflect.DeepEqual(held, want) {
		t.Errorf("holds ended at %v, want %v: 0 on request", held, want)
	}
	if len(h.left) != 0 {
		t.Errorf("%v left", h.left)
	}
	wantStats(t, q, 4, 0, 0)
}

// What is cancelled together is reported together, and none of it twice.
func TestCancelsAreReported(t *testing.T) {
	q, h := passive(t, Config{}, holdHooks())
	q.enqueue(second, batchOf(heldUntil(1, 3), heldUntil(2, 5), heldUntil(3, 9)))
	refs := heldRefs(q)
	if n := q.CancelHeld(second, refs[2], refs[0], refs[2]); n != 2 {
		t.Errorf("cancelled %d, want 2", n)
	}
	if len(h.left) != 2 || h.left[0].reason != hook.ReasonCancelled {
		t.Errorf("reported %v", h.left)
	}
	wantStats(t, q, 0, 1, 0)
	if next := q.Stats().NextRelease; next != 5*second {
		t.Errorf("the next release is at %d, want 5 s", next)
	}
}

func TestHeldDue(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	q, _ := passive(t, Config{}, hook.Hooks{
		OnEnqueue: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				vs[i].Hold = now.AddMillis(1 + rng.Int64N(1<<rng.IntN(24)))
			}
		},
	})
	if got := heldDue(q, second); got != (DueHistogram{}) {
		t.Errorf("a queue that holds nothing has %+v", got)
	}
	for i := range uint64(5000) {
		q.enqueue(second, batchOf(message(i, 8)))
	}
	for _, now := range []hook.Instant{0, second, 30 * second, 3000 * second, 1 << 50} {
		var want DueHistogram
		q.HeldFrom(0, 0, func(h *Held) bool {
			want.Add(now, h.Until, 1)
			return true
		})
		if got := heldDue(q, now); got != want {
			t.Errorf("from %d: got %+v, want %+v", now, got, want)
		}
	}
}

func heldDue(q *Queue, now hook.Instant) DueHistogram {
	var s DueSurvey
	surveyed(&s, q, now, surveyPart)
	return s.Held.Histogram()
}

// Listing held messages loads no spilled segment: they lie all over the file.
func TestListingHeldMessagesLoadsNothing(t *testing.T) {
	spilling(t, 0)
	q, _ := passive(t, Config{}, hook.Hooks{
		OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				vs[i].Hold = hook.Instant(1+ms[i].Size) * 1000 * second
				vs[i].State = int64(ms[i].Size % 2)
			}
		},
	})
	props := [][]byte{{0, 0}, propsOf(30), propsOf(300)}
	for i := range uint64(6000) {
		m := patterned(i, 100+int(i*7919%3000))
		m.Props = props[i/3%3]
		q.enqueue(second, batchOf(m))
	}
	q.store.releaseSpilled()
	resident, loaded, n, shared := q.store.residentBytes, len(q.store.loaded), 0, 0
	q.HeldFrom(0, 0, func(h *Held) bool {
		s := q.at(h.Ref).slot()
		if g := q.store.at(s.segment); g.buf == nil && s.flags&alike != 0 {
			shared++
		}
		n++
		return true
	})
	if n != 6000 || shared < 100 || q.store.residentBytes != resident || len(q.store.loaded) != loaded {
		t.Fatalf("%d messages, %d with properties elsewhere in the file; memory went from %d to %d", n, shared, resident, q.store.residentBytes)
	}
	checkGlances(t, q)
	q.close()
}

// checkGlances compares what is shown of held messages with their records.
func checkGlances(t *testing.T, q *Queue) {
	t.Helper()
	for _, ref := range heldRefs(q) {
		s := *q.at(ref).slot()
		got := q.store.readAlone(s)
		want := q.store.read(s)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("message %d: got %.100v, want %.100v", ref, got, want)
		}
		q.store.releaseSpilled()
	}
}

// propsOf returns properties of so many bytes: a message-id.
func propsOf(size int) []byte {
	id := make([]byte, min(size-3, 255))
	return append([]byte{0, 0x80, byte(len(id))}, id...)
}

// The held messages of a deleted queue were still live in the journal if it held nothing else.
func TestDeletingAQueueOfHeldMessagesIsJournalled(t *testing.T) {
	q, _, j := durable(t, Config{}, holdHooks())
	q.enqueue(second, batchOf(heldUntil(1, 100), heldUntil(2, 100)))
	if _, err := q.Delete(false, false); err != nil {
		t.Fatal(err)
	}
	q.commit(nil)
	if s := j.reborn(t, q).Stats(); s.Held != 0 {
		t.Errorf("%d messages came back", s.Held)
	}
}

// pendingJournal is a journal whose commits become durable, or fail, when the test says so.
type pendingJournal struct {
	lockedJournal
	waiting []journal.Completer
}

func (j *pendingJournal) Commit(ops []byte, live []journal.Delta, c journal.Completer) {
	j.lockedJournal.Commit(ops, live, nil)
	if c != nil {
		j.waiting = append(j.waiting, c)
	}
}

func TestAChangeReturnsWhenItIsDurable(t *testing.T) {
	failed := errors.New("the disk is gone")
	for _, tc := range []struct {
		name    string
		durable bool
		end     func(j *pendingJournal)
		want    error
	}{
		{"in memory", false, nil, nil},
		{"durable", true, func(j *pendingJournal) { j.waiting[0].Durable() }, nil},
		{"failed", true, func(j *pendingJournal) { j.waiting[0].Failed(failed) }, failed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &pendingJournal{}
				cfg := &Config{Name: "q", Profile: &Profile{Strategy: "test", Settings: func(string) (any, bool) { return nil, false }}}
				if tc.durable {
					cfg.Storage = &Storage{Journal: j, ID: 1}
				}
				m := testBroker.NewMailbox(cfg, chainOf(t, holdHooks()), &host{}, clock.New())
				got, done := errors.New("none"), false
				go func() {
					got = m.Change(t.Context(), func(q *Queue, _ hook.Instant) { q.Touch(second) })
					done = true
				}()
				synctest.Wait()
				if tc.end != nil {
					if done {
						t.Fatal("it did not wait")
					}
					tc.end(j)
					synctest.Wait()
				}
				if !done || !errors.Is(got, tc.want) {
					t.Errorf("returned: %t, %v; want %v", done, got, tc.want)
				}
				_ = m.Do(func(q *Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
				if err := m.Change(t.Context(), func(*Queue, hook.Instant) {}); !errors.Is(err, ErrGone) {
					t.Errorf("of a deleted queue: %v", err)
				}
				time.Sleep(time.Hour) // timers end
			})
		})
	}
}

func TestAStoppedQueueIsNotChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := &Config{Name: "q", Profile: &Profile{Strategy: "test", Settings: func(string) (any, bool) { return nil, false }}}
		m := testBroker.NewMailbox(cfg, chainOf(t, holdHooks()), &host{}, clock.New())
		_ = m.Do(func(q *Queue, _ hook.Instant) { q.End() })
		err := m.Change(t.Context(), func(*Queue, hook.Instant) { t.Error("it was changed") })
		if _, ok := errors.AsType[*StoppedError](err); !ok {
			t.Errorf("got %v", err)
		}
	})
}
