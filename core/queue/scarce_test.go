package queue

import (
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

// scarceEngine is an engine on a disk that loses power, and that another process has filled but for some entries.
type scarceEngine struct {
	*seg.Engine
	disk *crashfs.FS
	left atomic.Int32 // entries for which there is space
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
	e := &scarceEngine{Engine: engine, disk: disk}
	e.left.Store(1000)
	return e
}

func (e *scarceEngine) Open(ctx context.Context, shard uint32, fn func(wlog.Index, []byte) error) (wlog.Log, error) {
	l, err := e.Engine.Open(ctx, shard, fn)
	return &scarceLog{l, e}, err
}

// Depth implements [wlog.Log]: entries go through Append.
func (l *scarceLog) Depth() int { return 1 }

func (l *scarceLog) Append(ctx context.Context, entry []byte, p wlog.Purpose) (wlog.Index, error) {
	if l.engine.left.Load() <= 0 {
		return 0, wlog.ErrFull
	}
	l.engine.left.Add(-1)
	return l.Log.Append(ctx, entry, p)
}

// open opens a log of the engine, whose operations are passed to fn.
func (e *scarceEngine) open(t *testing.T, fn func(ops []byte)) *journal.Writer {
	t.Helper()
	w, err := journal.Open(t.Context(), e, 1, func(_ uint32, _ wlog.Index, ops []byte) error { fn(ops); return nil }, journal.Options{
		Extent: 50, Slack: 50, Size: wlog.EntrySize,
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

func durableOf(t *testing.T, w *journal.Writer, c *courier, cfg Config, id uint64, h hook.Hooks) *Queue {
	t.Helper()
	cfg.Storage = &Storage{Journal: w, ID: id, Shard: 1}
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
	e.left.Store(0)
	leave.start(from)
	to.mailbox.handle(2*second, &task{kind: taskPublish, batch: c.batches[0]})
	time.Sleep(time.Second)
	return e, w, from, to
}

// A message entered a queue by dead-lettering that dead-letters its first one then, for its length. Its removal from the old queue was
// no part of the commit that brought it: on a full disk it was written before that, and a crash lost the message.
func TestWhatPushesOthersOutIsRemovedWithItsArrival(t *testing.T) {
	const n = 3
	watches := hook.Hooks{OnEnqueue: func(hook.Instant, []hook.Message, []hook.Verdict) {}, OnGone: func([]hook.Message) {}} // they enter one by one
	for _, hooks := range []hook.Hooks{{}, watches} {
		for name, leave := range partings(t) {
			for left := range int32(4) {
				pushOut(t, fmt.Sprintf("%s, watched: %t, %d entries", name, hooks.OnGone != nil, left), n, left, leave, hooks)
			}
		}
	}
}

func pushOut(t *testing.T, name string, n int, left int32, leave parting, h hook.Hooks) {
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
			e.left.Store(left)
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
