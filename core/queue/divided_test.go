package queue

import (
	"bytes"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// answered is a publisher that is told of one batch.
type answered struct{ confirmed, failed atomic.Int32 }

func (a *answered) Confirmed(*Batch)     { a.confirmed.Add(1) }
func (a *answered) Failed(*Batch, error) { a.failed.Add(1) }

// pushingOut is a queue of one message. What it pushes out is dead-lettered, but for numbers of at least the given one, which are dropped.
func pushingOut(drops uint64, watched bool) (h hook.Hooks) {
	if watched { // they enter one by one
		h.OnEnqueue, h.OnGone = func(hook.Instant, []hook.Message, []hook.Verdict) {}, func([]hook.Message) {}
	}
	h.Length = hook.LimitOf(1)
	h.OnHead = func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			if idOf(ms[i].Part(hook.PartBody)) < drops {
				vs[i] = hook.Verdict{Action: hook.Route, Reason: hook.ReasonMaxLen, Target: &hook.Target{Exchange: "x"}}
			}
		}
	}
	return h
}

// A batch pushed out messages, of which some were dead-lettered and others dropped. It had several commits then. What settled overtook what
// brought the messages, which waited for space, and the batch was confirmed with it: a crash lost what was confirmed.
func TestABatchIsConfirmedWhenAllItsCommitsAreDurable(t *testing.T) {
	for _, watched := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := newScarceEngine(t, crashfs.New(1))
			w, c, a := e.open(t, func([]byte) {}), &courier{}, &answered{}
			q := durableOf(t, w, c, Config{}, 7, pushingOut(1, watched))
			q.enqueue(second, batchOf(persist(0)))
			if err := w.Sync(); err != nil {
				t.Fatal(err)
			}
			e.keep(wlog.Settling)
			b := batchOf(persist(1), persist(2), persist(3))
			b.Publisher = a
			q.mailbox.handle(2*second, &task{kind: taskPublish, batch: b})
			time.Sleep(time.Second)
			confirmed := a.confirmed.Load()
			e.keep(wlog.Bringing)
			time.Sleep(time.Second)
			if confirmed != 0 || a.confirmed.Load() != 1 || a.failed.Load() != 0 {
				t.Errorf("watched: %t: the batch was confirmed %d times while it waited for space, %d times altogether", watched, confirmed, a.confirmed.Load())
			}
			e.losePower(t, w)
			for _, b := range c.batches {
				b.release()
			}
		})
	}
}

// everywhere is a courier whose dead letters go to two queues.
type everywhere struct{ courier }

func (f *everywhere) DeadLetter(_ *Config, _ hook.Instant, ds []DeadLetter, t Tracking) {
	for n := range 2 {
		b := NewBatch()
		b.Tracking, b.to = t, &Mailbox{broker: testBroker, order: uint64(n) + 1}
		for i := range ds {
			b.Messages = append(b.Messages, Message{
				Routing: origin, Props: bytes.Clone(ds[i].Props), Body: bytes.Clone(ds[i].Body), Seq: ds[i].Seq, Flags: ds[i].Flags,
			})
		}
		f.batches = append(f.batches, b)
	}
	for i := range ds {
		ds[i].Sent, ds[i].Outcome = 2, telemetry.DeadLettered
	}
	t.Expect(2, ds)
}

// Messages went to two queues. In the last one they entered one by one, and pushed others out: so they had a commit each. The last commit
// removed all of them from their old queue, and overtook the others, which waited for space: a crash lost these in that queue.
func TestWhatGoesToSeveralQueuesIsRemovedWhenAllOfItIsThere(t *testing.T) {
	const n = 3
	for name, leave := range partings(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newScarceEngine(t, crashfs.New(1))
				w, f := e.open(t, func([]byte) {}), &everywhere{}
				durable := func(cfg Config, id uint64, h hook.Hooks) *Queue {
					q := durableOf(t, w, nil, cfg, id, h)
					q.host = f
					return q
				}
				from, first := durable(leave.cfg, 7, leave.hooks), durable(Config{Name: "first"}, 8, hook.Hooks{})
				last := durable(Config{Name: "last"}, 9, pushingOut(n, true))
				for id := range uint64(n) {
					from.enqueue(second, batchOf(persist(id)))
				}
				leave.start(from)
				first.mailbox.handle(2*second, &task{kind: taskPublish, batch: f.batches[0]})
				if err := w.Sync(); err != nil {
					t.Fatal(err)
				}
				e.keep(wlog.Moving)
				last.mailbox.handle(2*second, &task{kind: taskPublish, batch: f.batches[1]})
				time.Sleep(time.Second)
				r := testBroker.NewRestorer()
				if _, err := r.Apply(1, e.losePower(t, w)); err != nil {
					t.Fatal(err)
				}
				found := map[uint64]int{}
				for _, id := range []uint64{7, 9} {
					if q := r.find(id); q != nil {
						found[id] = q.messages()
					}
				}
				if found[7]+found[9] < n {
					t.Errorf("a restart finds %d messages in the old queue and %d in the last new one, of %d", found[7], found[9], n)
				}
				r.Discard()
				for _, b := range f.batches[2:] {
					b.release()
				}
			})
		})
	}
}
