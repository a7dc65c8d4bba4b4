package journal

import (
	"bytes"
	"errors"
	"slices"
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

// Definitions and messages share a log. When there is only space for what frees some, definitions still get in.
func TestCommitsOfOneLogHaveDifferentPurposes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{}
		s, h := open(t, l, Options{}), &history{}
		l.keep(wlog.Moving)
		s.Commit([]byte("+1,;"), []Delta{{1, 4}}, h.as("message"))
		synctest.Wait()
		s.CommitAs(wlog.Moving, []byte("+2,;"), []Delta{{1, 4}}, h.as("definition"))
		time.Sleep(time.Second)
		if got := h.durable(); len(got) != 1 || got[0] != "definition" {
			t.Errorf("durable are %v", got)
		}
		l.keep(wlog.Bringing)
		time.Sleep(time.Second)
		if err := s.Close(t.Context()); err != nil || len(h.durable()) != 2 {
			t.Errorf("durable are %v, %v", h.durable(), err)
		}
	})
}

// On a full log a small definition was written before a larger one, which it may undo or need; and who waited for the first, by counting
// how many were written, was told that it was durable.
func TestDefinitionsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, shared := range []bool{false, true} {
			o := Options{Operations: operations, Purpose: wlog.Moving}
			if shared {
				o.Purpose = wlog.Bringing
			}
			l := &memLog{}
			s, h := open(t, l, o), &history{}
			l.limit(0)
			l.keep(wlog.Moving)
			s.Commit([]byte("+1,;"), nil, h.as("before"))
			synctest.Wait()
			large := bytes.Repeat([]byte("+2,;"), 100)
			s.CommitAs(wlog.Moving, large, []Delta{{s.Extent(), int64(len(large))}}, h.as("large"))
			s.CommitAs(wlog.Moving, []byte("-2;"), nil, h.as("small"))
			l.limit(len(large) / 2)
			time.Sleep(time.Minute)
			if got := h.durable(); slices.Contains(got, "small") {
				t.Errorf("shared %t: durable are %v", shared, got)
			}
			l.limit(2 * len(large))
			l.keep(wlog.Bringing)
			if err := s.Sync(); err != nil {
				t.Error(err)
			}
			if got := h.durable(); len(got) != 3 || slices.Index(got, "large") > slices.Index(got, "small") {
				t.Errorf("shared %t: durable are %v", shared, got)
			}
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

// smallEngine takes entries of a few bytes.
type smallEngine struct {
	memEngine
	most int
}

func (e smallEngine) MaxEntry() int { return e.most }

// What waits for space is written with all that overtook it, in one entry: on a full disk, entries got too large for an engine that
// takes only so many bytes, which ended the log.
func TestAnEntryWithWhatOvertookItFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, large = 1600, 1500
		l, h := &memLog{hoard: true}, &history{}
		s, err := Open(t.Context(), smallEngine{memEngine{l}, most}, 1, func(uint32, wlog.Index, []byte) error { return nil }, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s.Recovered(nil)
		if s.MaxCommit() != large {
			t.Fatalf("commits may have %d bytes, want %d", s.MaxCommit(), large)
		}
		l.keep(wlog.Settling)
		s.Commit(append(bytes.Repeat([]byte{' '}, large-4), "+1,;"...), []Delta{{1, large}}, h.as("large"))
		s.Commit(make([]byte, large+1), nil, h.as("too large"))
		for range 100 {
			s.Commit([]byte("-9;"), []Delta{{1, -1}}, h.as("settled"))
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
		if got := len(h.durable()); got == 0 || got > 40 {
			t.Errorf("%d settlements overtook, want some, of at most 100 bytes", got)
		}
		l.keep(wlog.Bringing)
		time.Sleep(time.Second)
		if got := h.durable(); len(got) != 101 {
			t.Errorf("%d commits are durable, want 101; %v", len(got), s.Err())
		}
		for _, e := range l.bodies() {
			if len(e) > most {
				t.Errorf("an entry of %d bytes", len(e))
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Messages that move, such as dead letters, took up all that may overtake what waits for space: acknowledgements waited behind them, and
// with them the space that they make.
func TestMovesLeaveSettlementsTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 1600
		l, h := &memLog{hoard: true}, &history{}
		s, err := Open(t.Context(), smallEngine{memEngine{l}, most}, 1, func(uint32, wlog.Index, []byte) error { return nil }, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s.Recovered(nil)
		s.Commit([]byte("+1,;"), []Delta{{1, 1000}}, h.as("first"))
		synctest.Wait()
		l.keep(wlog.Moving)
		s.Commit([]byte("+2,;"), []Delta{{1, 4}}, h.as("waits"))
		for range 100 {
			s.Commit([]byte("-8;+9,;"), []Delta{{1, 4}, {1, -4}}, h.as("move"))
		}
		time.Sleep(10 * time.Second)
		for range 5 {
			s.Commit([]byte("-1;"), []Delta{{1, -100}}, h.as("settled"))
		}
		time.Sleep(10 * time.Second)
		count := map[string]int{}
		for _, name := range h.durable() {
			count[name]++
		}
		if count["move"] == 0 || count["settled"] != 5 {
			t.Errorf("durable are %v, want some moves and all 5 settlements", count)
		}
		l.keep(wlog.Bringing)
		time.Sleep(time.Second)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
