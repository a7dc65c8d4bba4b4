package queue

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/sdk/hook"
)

// scarceEngine is an engine on a disk that loses power. While it is full its logs take only what has at least a purpose.
type scarceEngine struct {
	*seg.Engine
	disk  *crashfs.FS
	least atomic.Int32 // wlog.Purpose
}

type scarceLog struct {
	wlog.Log
	engine *scarceEngine
}

func newScarceEngine(t *testing.T, disk *crashfs.FS) *scarceEngine {
	t.Helper()
	engine, err := seg.New(disk, seg.Options{SegmentSize: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return &scarceEngine{Engine: engine, disk: disk}
}

func (e *scarceEngine) Open(ctx context.Context, shard uint32, fn func(wlog.Index, []byte) error) (wlog.Log, error) {
	l, err := e.Engine.Open(ctx, shard, fn)
	return &scarceLog{l, e}, err
}

// Depth implements [wlog.Log]: entries go through Append.
func (l *scarceLog) Depth() int { return 1 }

func (l *scarceLog) Append(ctx context.Context, entry []byte, p wlog.Purpose) (wlog.Index, error) {
	if int32(p) < l.engine.least.Load() {
		return 0, wlog.ErrFull
	}
	return l.Log.Append(ctx, entry, p)
}

func (e *scarceEngine) keep(least wlog.Purpose) { e.least.Store(int32(least)) }

// open opens a log of the engine, whose operations are passed to fn.
func (e *scarceEngine) open(t *testing.T, fn func(ops []byte)) *journal.Writer {
	t.Helper()
	w, err := journal.Open(t.Context(), e, 1, func(_ uint32, _ wlog.Index, ops []byte) error { fn(ops); return nil }, journal.Options{
		Extent: 50, Slack: 50, Size: wlog.EntrySize,
		Operations: journal.Operations{Without: Without, Records: Records, Marks: Marks},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Recovered(nil)
	return w
}

// losePower returns what the log has that a loss of power leaves.
func (e *scarceEngine) losePower(t *testing.T, w *journal.Writer) (ops []byte) {
	t.Helper()
	disk := e.disk.LosePower()
	_ = w.Close(t.Context())
	_ = e.Close()
	after := newScarceEngine(t, disk)
	w = after.open(t, func(o []byte) { ops = append(ops, o...) })
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
	_ = after.Close()
	return ops
}

// A message was delivered while its commit waited for space. What said so was written before the message was, and no more with it: it
// could be trimmed, and then a crash brought back the message as one that had never been delivered.
func TestAMessageThatWaitsForSpaceStaysRedelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newScarceEngine(t, crashfs.New(1))
		w := e.open(t, func([]byte) {})
		enqueued := func(r Ref) []byte { return append(appendEnqueued(nil, opEnqueued, 7, r, 1, 2, &slot{}, 5), "12345"...) }
		n := int64(len(enqueued(1)))
		w.Commit(enqueued(1), []journal.Delta{{Extent: w.Extent(), Bytes: n}}, nil)
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
		w.SetLowSpace(true)
		e.keep(wlog.Moving)
		w.Commit(enqueued(2), []journal.Delta{{Extent: w.Extent(), Bytes: n}}, nil)
		time.Sleep(time.Second)
		// both are delivered, the first is acknowledged
		w.Commit(appendDelivered(appendSettled(nil, 7, []Ref{1}), 7, 0, 3), []journal.Delta{{Extent: 1, Bytes: -n}}, nil)
		for i := range uint64(3000) { // so that what said so is trimmed
			w.CommitAs(wlog.Settling, appendDelivered(nil, 9, 0, i), nil, nil)
			if i%100 == 0 {
				time.Sleep(time.Second)
			}
		}
		time.Sleep(time.Second)
		if got, want := w.Stats().Pending, n+int64(len(appendDelivered(nil, 7, 0, 3))); got != want {
			t.Errorf("%d bytes wait or are repeated, want %d", got, want)
		}
		e.keep(wlog.Bringing)
		w.SetLowSpace(false)
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
		ops := e.losePower(t, w)
		there, marked := bytes.Contains(ops, enqueued(2)), bytes.Contains(ops, appendDelivered(nil, 7, 0, 3))
		if !there || !marked {
			t.Errorf("the message is there: %v, as one that was delivered: %v", there, marked)
		}
	})
}

func durableOf(t *testing.T, w *journal.Writer, c *courier, cfg Config, id uint64, h hook.Hooks) *Queue {
	t.Helper()
	cfg.Storage = &Storage{Journal: w, ID: id, Shard: 1, Home: w.Home}
	q, _ := passive(t, cfg, h)
	q.host = c
	return q
}

// leaveOnAFullDisk has n durable messages leave a queue for another one. What brings them waits for space.
func leaveOnAFullDisk(t *testing.T, n int, leave parting) (e *scarceEngine, w *journal.Writer, from, to *Queue) {
	t.Helper()
	e = newScarceEngine(t, crashfs.New(1))
	w = e.open(t, func([]byte) {})
	c := &courier{}
	from, to = durableOf(t, w, c, leave.cfg, 7, leave.hooks), durableOf(t, w, c, Config{Name: "to"}, 8, hook.Hooks{})
	for id := range uint64(n) {
		m := persist(id)
		if leave.recurs {
			m.Body = append([]byte{2}, "recurs"...)
		}
		from.enqueue(second, batchOf(m))
	}
	if err := w.Sync(); err != nil {
		t.Fatal(err)
	}
	w.SetLowSpace(true)
	e.keep(wlog.Settling)
	leave.start(from)
	to.mailbox.handle(2*second, &task{kind: taskPublish, batch: c.batches[0]})
	time.Sleep(time.Second)
	return e, w, from, to
}

// Several messages left a queue in one commit, which waited for space. One of them was consumed then, and a crash brought it back in its
// old queue, while the others waited.
func TestWhatIsSettledBeforeItsMoveIsWrittenStaysSettled(t *testing.T) {
	const n = 3
	for name, leave := range partings(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, w, _, to := leaveOnAFullDisk(t, n, leave)
				to.Get(2*second, nil2(), func(d Delivery, _ int) { to.settleAll(2*second, Ack, []PendingAck{{Ref: d.Ref}}) })
				to.commit(nil)
				time.Sleep(time.Second)
				if st := w.Stats(); !st.Full || to.ready != n-1 {
					t.Errorf("before the crash %d messages have arrived and are left, %+v", to.ready, st)
				}
				r := testBroker.NewRestorer()
				if _, err := r.Apply(1, e.losePower(t, w)); err != nil {
					t.Fatal(err)
				}
				for id, want := range map[uint64]int{7: n - 1, 8: 0} {
					if q := r.find(id); q.messages() != want {
						t.Errorf("a restart finds %d messages in queue %d, want %d", q.messages(), id, want)
					}
				}
				r.Discard()
			})
		})
	}
}

// A message entered a queue by dead-lettering that dead-letters its first one then, for its length. Its removal from the old queue was
// no part of the commit that brought it: on a full disk it was written before that, and a crash lost the message.
func TestWhatPushesOthersOutIsRemovedWithItsArrival(t *testing.T) {
	const n = 3
	watches := hook.Hooks{OnEnqueue: func(hook.Instant, []hook.Message, []hook.Verdict) {}, OnGone: func([]hook.Message) {}} // they enter one by one
	for _, hooks := range []hook.Hooks{{}, watches} {
		for name, leave := range partings(t) {
			for _, least := range []wlog.Purpose{wlog.Moving, wlog.Settling} {
				pushOut(t, fmt.Sprintf("%s, watched: %t, least purpose: %d", name, hooks.OnGone != nil, least), n, least, leave, hooks)
			}
		}
	}
}

func pushOut(t *testing.T, name string, n int, least wlog.Purpose, leave parting, h hook.Hooks) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := newScarceEngine(t, crashfs.New(1))
			w, c := e.open(t, func([]byte) {}), &courier{}
			from := durableOf(t, w, c, leave.cfg, 7, leave.hooks)
			h.Length = hook.LimitOf(1)
			h.OnHead = func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
				for i := range vs {
					vs[i] = hook.Verdict{Action: hook.Route, Reason: hook.ReasonMaxLen, Target: &hook.Target{Exchange: "x"}}
				}
			}
			to := durableOf(t, w, c, Config{Name: "to"}, 8, h)
			for id := range n {
				from.enqueue(second, batchOf(persist(uint64(id))))
			}
			if err := w.Sync(); err != nil {
				t.Fatal(err)
			}
			e.keep(least)
			leave.start(from)
			to.mailbox.handle(2*second, &task{kind: taskPublish, batch: c.batches[0]})
			time.Sleep(time.Second)
			if len(c.batches) < 2 {
				t.Errorf("before the crash: %d batches, %+v", len(c.batches), w.Stats())
			}
			r := testBroker.NewRestorer()
			if _, err := r.Apply(1, e.losePower(t, w)); err != nil {
				t.Fatal(err)
			}
			found := 0
			for id := range uint64(2) {
				q := r.find(7 + id)
				found += q.messages()
			}
			if found != n {
				t.Errorf("a restart finds %d messages in both queues, of %d", found, n)
			}
			r.Discard()
			for _, b := range c.batches[1:] {
				b.release()
			}
		})
	})
}
