package journal

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/fake"
)

// A shard that another owner takes over does not fail: nothing is wrong with it. Its writer says so even if nobody commits anything.
func TestALostShardIsNoFailure(t *testing.T) {
	for _, idle := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			storage, lost := fake.New(), 0
			first := newOwnerOf(t, storage.Engine(), Options{
				OnLost:   func() { lost++ },
				OnFailed: func(err error) { t.Errorf("failed: %v", err) },
			})
			first.enqueue(1, 10)
			if err := first.s.Sync(); err != nil {
				t.Fatal(err)
			}
			second := newOwnerOf(t, storage.Engine(), Options{})
			h := &history{}
			if !idle {
				post(first.s, h, "+7,;")
			}
			synctest.Wait()
			for _, o := range h.outcomes() {
				if !errors.Is(o.err, wlog.ErrNotOwner) || !errors.Is(o.err, wlog.ErrLost) {
					t.Errorf("idle %v: a commit got %v", idle, o.err)
				}
			}
			if err := first.s.Err(); lost != 1 || !errors.Is(err, wlog.ErrNotOwner) {
				t.Errorf("idle %v: told %d times, and the error is %v", idle, lost, err)
			}
			if err := first.s.Close(t.Context()); !errors.Is(err, wlog.ErrNotOwner) {
				t.Errorf("idle %v: closed with %v", idle, err)
			}
			if err := second.s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A writer that is closed waits for no other owner any more.
func TestAClosedWriterLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &memLog{}, Options{OnLost: func() { t.Error("lost") }})
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait() // the bubble ends with no goroutine
	})
}

// An error of the log itself is a failure also where owners change.
func TestALogThatFailsIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("input/output error")
		var failed error
		s := open(t, &memLog{refuse: func(int) error { return broken }}, Options{
			OnLost: func() { t.Error("lost") }, OnFailed: func(err error) { failed = err },
		})
		if err := s.Sync(); err != nil {
			t.Errorf("nothing is to be written: %v", err)
		}
		h := &history{}
		post(s, h, "+1,;")
		synctest.Wait()
		if got := h.outcomes()[0].err; !errors.Is(got, broken) || !errors.Is(failed, broken) || errors.Is(got, wlog.ErrNotOwner) {
			t.Errorf("the commit got %v, and the failure is %v", got, failed)
		}
		if err := s.Close(t.Context()); !errors.Is(err, broken) {
			t.Errorf("closed with %v", err)
		}
	})
}

// timed is a log of a shard whose time is not that of the node.
type timed struct{ *memLog }

func (timed) Offset() time.Duration { return 3 * time.Second }

func TestOffset(t *testing.T) {
	w := &Writer{log: timed{}}
	if got := w.Offset(); got != 3*time.Second {
		t.Errorf("got %v", got)
	}
	if w.log = (&memLog{}); w.Offset() != 0 {
		t.Errorf("got %v of a log that has no time of its own", w.Offset())
	}
}
