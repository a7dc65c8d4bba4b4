package journal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// A bubble whose test returns while one of its goroutines is asleep panics: each
// test here that ends without Close shows that a shard at rest has none.

func TestWhatArrivesDuringAnAppendIsTheNextEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{hoard: true, gate: make(chan struct{})}
		s, h := open(t, l, Options{}), &history{}
		post(s, h, "first")
		synctest.Wait()
		var want []string
		for i := range 1000 {
			want = append(want, fmt.Sprintf("<%d>", i))
			post(s, h, want[i])
		}
		synctest.Wait()
		if got := h.durable(); got != nil {
			t.Errorf("%v durable before anything was appended", got)
		}
		l.gate <- struct{}{}
		l.gate <- struct{}{}
		synctest.Wait()
		if got, want := l.bodies(), []string{"first", strings.Join(want, "")}; !slices.Equal(got, want) {
			t.Errorf("got entries %.60q, want %.60q", got, want)
		}
		if got, want := h.durable(), append([]string{"first"}, want...); !slices.Equal(got, want) {
			t.Errorf("got %d outcomes, want %d in order", len(got), len(want))
		}
	})
}

// Whatever the sizes and however the appends fall in between, each entry is a
// run of whole commits, and together they are all of them in order.
func TestEntriesHoldWholeCommitsInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{hoard: true, gate: make(chan struct{}, 1000)}
		s, h := open(t, l, Options{Entry: 200}), &history{}
		var want []string
		for i := range 500 {
			want = append(want, fmt.Sprintf("[%d%s]", i, strings.Repeat(".", rng.IntN(300))))
			post(s, h, want[i])
			if rng.IntN(5) == 0 {
				l.gate <- struct{}{}
				synctest.Wait()
			}
		}
		for range 500 {
			l.gate <- struct{}{}
		}
		synctest.Wait()
		if got := h.durable(); !slices.Equal(got, want) {
			t.Errorf("%d commits became durable, want %d in order", len(got), len(want))
		}
		checkWhole(t, l.bodies(), want, 200)
	})
}

func checkWhole(t *testing.T, entries, commits []string, limit int) {
	t.Helper()
	for _, e := range entries {
		whole := 0
		for e != "" && len(commits) > 0 && strings.HasPrefix(e, commits[0]) {
			e, commits = e[len(commits[0]):], commits[1:]
			whole++
		}
		if e != "" {
			t.Fatalf("an entry ends in %q, which is not a whole commit or not the next", e)
		}
		if whole == 0 {
			t.Error("an entry is empty")
		}
	}
	if len(commits) > 0 {
		t.Errorf("%d commits are in no entry", len(commits))
	}
	for _, e := range entries {
		if len(e) > limit && strings.Count(e, "[") > 1 {
			t.Errorf("an entry of %d bytes holds several commits, limit %d", len(e), limit)
		}
	}
}

func TestOperationsAreCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{gate: make(chan struct{}, 2)}
		s := open(t, l, Options{})
		ops, live := []byte("one"), []Delta{{Extent: 1, Bytes: 3}}
		s.Commit(ops, live, nil)
		copy(ops, "two")
		live[0] = Delta{Extent: 9, Bytes: 9}
		l.gate <- struct{}{}
		synctest.Wait()
		if got := l.bodies(); !slices.Equal(got, []string{"one"}) {
			t.Errorf("got %q, want what was committed", got)
		}
	})
}

func TestEmptyCommitsAreBarriersAndNoEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{gate: make(chan struct{}, 2)}
		s, h := open(t, l, Options{}), &history{}
		s.Commit(nil, nil, h.as("before"))
		synctest.Wait()
		post(s, h, "x")
		s.Commit(nil, nil, h.as("after"))
		synctest.Wait()
		if got := h.durable(); !slices.Equal(got, []string{"before"}) {
			t.Errorf("got %q durable with an append in flight, want only what was before it", got)
		}
		l.gate <- struct{}{}
		synctest.Wait()
		if got := h.durable(); !slices.Equal(got, []string{"before", "x", "after"}) || l.appends != 1 {
			t.Errorf("got %q in %d appends", got, l.appends)
		}
	})
}

func TestSyncWaitsForWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{gate: make(chan struct{})}
		s, h := open(t, l, Options{}), &history{}
		post(s, h, "x")
		done := make(chan error)
		go func() { done <- s.Sync() }()
		synctest.Wait()
		select {
		case <-done:
			t.Error("Sync returned before the append did")
		default:
		}
		l.gate <- struct{}{}
		if err := <-done; err != nil || len(h.durable()) != 1 {
			t.Errorf("got %v with %q durable", err, h.durable())
		}
	})
}

func TestAFailedAppendIsTheEnd(t *testing.T) {
	broken := errors.New("the disk is gone")
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{gate: make(chan struct{}, 10), refuse: func(n int) error {
			if n == 2 {
				return broken
			}
			return nil
		}}
		h := &history{}
		var failures []error
		s := open(t, l, Options{Entry: 1, OnFailed: func(err error) {
			failures = append(failures, err)
			h.as("alarm").Failed(err)
		}})
		for _, name := range []string{"a", "b", "c"} {
			post(s, h, name)
		}
		l.gate <- struct{}{}
		l.gate <- struct{}{}
		synctest.Wait()
		post(s, h, "late")
		synctest.Wait()
		checkFailed(t, h.outcomes(), broken)
		if l.appends != 2 || len(failures) != 1 {
			t.Errorf("%d appends and %d alarms, want 2 and 1", l.appends, len(failures))
		}
		if !errors.Is(s.Err(), broken) || !errors.Is(s.Sync(), broken) {
			t.Errorf("Err is %v, Sync %v, want both to say why", s.Err(), s.Sync())
		}
		if err := s.Close(t.Context()); !errors.Is(err, broken) {
			t.Errorf("Close: got %v", err)
		}
	})
}

func checkFailed(t *testing.T, got []outcome, why error) {
	t.Helper()
	var names []string
	for i, o := range got {
		names = append(names, o.name)
		if i > 0 && !errors.Is(o.err, why) {
			t.Errorf("%s: got %v, want %v", o.name, o.err, why)
		}
	}
	if want := []string{"a", "alarm", "b", "c", "late"}; !slices.Equal(names, want) || got[0].err != nil {
		t.Errorf("got %v (the first: %v), want %v and the first durable", names, got[0].err, want)
	}
}

func TestAFailedTrimIsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("the directory is gone")
		l, h := &memLog{}, &history{}
		l.trimmed = func(wlog.Index) error { return broken }
		s := open(t, l, Options{Extent: 10})
		post(s, h, strings.Repeat("x", 10))
		synctest.Wait()
		post(s, h, "late")
		synctest.Wait()
		got := h.outcomes()
		if len(got) != 2 || got[0].err != nil || !errors.Is(got[1].err, broken) {
			t.Errorf("got %v, want one durable and one failed", got)
		}
	})
}

func TestAFullDiskLosesAndReordersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full []bool
		l := &memLog{hoard: true, refuse: func(n int) error {
			if n >= 2 && n <= 6 {
				return fmt.Errorf("segment 7: %w", wlog.ErrFull)
			}
			return nil
		}}
		h := &history{}
		s := open(t, l, Options{Entry: 4, OnFull: func(f bool) { full = append(full, f) }})
		begin := time.Now()
		for i := range 9 {
			post(s, h, fmt.Sprintf("op %d", i))
			synctest.Wait()
		}
		behind := s.CaughtUp()
		if len(h.durable()) != 1 || !s.Stats().Full || behind == nil {
			t.Errorf("%d commits durable on a full disk, want 1; behind: %v", len(h.durable()), behind != nil)
		}
		<-behind
		if got, want := time.Since(begin), 500*time.Millisecond; got != want {
			t.Errorf("five attempts took %v, want %v", got, want)
		}
		synctest.Wait()
		if got := strings.Join(l.bodies(), ""); got != "op 0op 1op 2op 3op 4op 5op 6op 7op 8" {
			t.Errorf("the log holds %q", got)
		}
		if !slices.Equal(full, []bool{true, false}) || s.Stats().Full || len(h.durable()) != 9 {
			t.Errorf("full went %v, %d commits durable", full, len(h.durable()))
		}
	})
}

// An engine that is about to run out of space takes small entries only.
func TestWhatFitsGoesOnWhileLargeEntriesDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var room atomic.Int64
		room.Store(20)
		l := &memLog{hoard: true, gate: make(chan struct{}, 1000), fits: func(n int) bool { return n <= int(room.Load()) }}
		var full []bool
		h := &history{}
		s := open(t, l, Options{OnFull: func(f bool) { full = append(full, f) }})
		var want []string
		for i := range 40 {
			want = append(want, fmt.Sprintf("settle %d;", i))
			s.Commit(nil, nil, h.as("barrier"))
			post(s, h, want[i])
		}
		want = append(want, strings.Repeat("publish", 10))
		post(s, h, want[40])
		want = append(want, "settle too")
		post(s, h, want[41])
		for range 900 {
			l.gate <- struct{}{}
		}
		synctest.Wait()
		durable := slices.DeleteFunc(h.durable(), func(name string) bool { return name == "barrier" })
		if !slices.Equal(durable, want[:40]) || !slices.Equal(full, []bool{true}) {
			t.Errorf("%d commits durable, want the 40 before the one that does not fit; full went %v", len(durable), full)
		}
		room.Store(1000)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := strings.Join(l.bodies(), ""); got != strings.Join(want, "") {
			t.Errorf("the log holds %q", got)
		}
		if !slices.Equal(full, []bool{true, false}) {
			t.Errorf("full went %v", full)
		}
	})
}

func TestAShardThatFailsWhileFullIsNoLongerFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		l := &memLog{refuse: func(n int) error {
			if n == 1 {
				return wlog.ErrFull
			}
			return wlog.ErrLost
		}}
		s := open(t, l, Options{
			OnFull:   func(full bool) { said = append(said, fmt.Sprint("full ", full)) },
			OnFailed: func(error) { said = append(said, "failed") },
		})
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		s.Commit([]byte("x"), nil, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []string{"full true", "full false", "failed"}; !slices.Equal(said, want) {
			t.Errorf("got %v, want %v", said, want)
		}
		if s.CaughtUp() != nil {
			t.Error("publishers wait for a shard that has failed")
		}
	})
}

func TestBehindWhileTooMuchIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{gate: make(chan struct{}, 20)}
		s := open(t, l, Options{Pending: 100, Entry: 10})
		for range 10 {
			s.Commit(make([]byte, 10), nil, nil)
		}
		if s.CaughtUp() != nil {
			t.Error("behind with as much pending as may be")
		}
		s.Commit(make([]byte, 10), nil, nil)
		for i, behind := 0, s.CaughtUp(); behind != nil; i, behind = i+1, s.CaughtUp() {
			if i > 6 {
				t.Fatal("behind with less than half of what may be pending")
			}
			l.gate <- struct{}{}
			synctest.Wait()
			if i == 5 {
				<-behind
			}
		}
		if got := s.Stats().Pending; got != 50 {
			t.Errorf("caught up with %d bytes pending, want 50: half of what may be", got)
		}
		for range 5 {
			l.gate <- struct{}{}
		}
		synctest.Wait()
	})
}

func TestAShardAtRestFindsOutThatItsLogIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{lost: make(chan struct{})}
		s := open(t, l, Options{})
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		close(l.lost)
		<-s.log.Lost()
		if err := s.Sync(); !errors.Is(err, wlog.ErrLost) || !errors.Is(s.Err(), wlog.ErrLost) {
			t.Errorf("got %v and %v", err, s.Err())
		}
	})
}

func TestCloseWaitsForWhatWasCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{gate: make(chan struct{})}
		s, h := open(t, l, Options{Entry: 1}), &history{}
		post(s, h, "a")
		post(s, h, "b")
		done := make(chan error)
		go func() { done <- s.Close(t.Context()) }()
		synctest.Wait()
		post(s, h, "late")
		if l.closed {
			t.Error("the log was closed with an append in flight")
		}
		l.gate <- struct{}{}
		l.gate <- struct{}{}
		if err := <-done; err != nil || !l.closed {
			t.Errorf("got %v, log closed: %v", err, l.closed)
		}
		got := h.outcomes()
		if len(got) != 3 || got[0].err != nil || got[1].err != nil || !errors.Is(got[2].err, ErrClosed) {
			t.Errorf("got %v, want a and b durable, and late refused", got)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("closed twice: %v", err)
		}
		if !errors.Is(s.Sync(), ErrClosed) {
			t.Error("Sync of a closed shard succeeds")
		}
		synctest.Wait()
	})
}

func TestCloseDoesNotWaitForEver(t *testing.T) {
	t.Run("for an append", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, h := open(t, &memLog{gate: make(chan struct{})}, Options{}), &history{}
			post(s, h, "a")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if got := h.outcomes(); len(got) != 1 || got[0].err == nil {
				t.Errorf("got %v, want a failure", got)
			}
		})
	})
	t.Run("for space", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := &memLog{refuse: func(int) error { return wlog.ErrFull }}
			s, h := open(t, l, Options{}), &history{}
			post(s, h, "a")
			synctest.Wait()
			if err := s.Close(t.Context()); !errors.Is(err, wlog.ErrFull) {
				t.Errorf("got %v", err)
			}
			if got := h.outcomes(); len(got) != 1 || !errors.Is(got[0].err, wlog.ErrFull) {
				t.Errorf("got %v, want a failure", got)
			}
		})
	})
}

func TestACommitThatFitsNoEntryIsRefusedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := open(t, &memLog{}, Options{}), &history{}
		s.most = 100
		s.Commit(make([]byte, 101), []Delta{{Extent: 1, Bytes: 101}}, h.as("huge"))
		post(s, h, "small")
		synctest.Wait()
		got := h.outcomes()
		if len(got) != 2 || !errors.Is(got[0].err, wlog.ErrTooLarge) || got[1].err != nil {
			t.Errorf("got %v", got)
		}
		if live := s.Stats().Live; live != 0 {
			t.Errorf("%d bytes live, want none", live)
		}
	})
}

func TestIdleShardsHoldLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{gate: make(chan struct{}, 100), forget: true}
		s := open(t, l, Options{Entry: 50_000})
		for range 20 {
			s.Commit(make([]byte, 40_000), nil, nil)
		}
		s.Commit(make([]byte, 1_000_000), nil, nil)
		for range 21 {
			l.gate <- struct{}{}
		}
		synctest.Wait()
		held := 0
		for _, b := range s.queue.spare {
			held += cap(b.entry)
		}
		if held == 0 || held > 2*50_000 {
			t.Errorf("%d bytes are held in %d batches, want two entries' worth at most", held, len(s.queue.spare))
		}
	})
}

// Completers may commit: a message that is confirmed in one queue may make
// another queue write.
func TestCompletersMayCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{hoard: true}
		s := open(t, l, Options{})
		s.Commit([]byte("1"), nil, &relay{s: s, left: 4})
		synctest.Wait()
		if got := strings.Join(l.bodies(), ""); got != "1xxxx" {
			t.Errorf("got %q", got)
		}
	})
}

type relay struct {
	s    *Writer
	left int
}

func (r *relay) Failed(error) {}
func (r *relay) Durable() {
	if r.left--; r.left >= 0 {
		r.s.Commit([]byte("x"), nil, r)
	}
}

// Many goroutines at once, for the race detector: each sees its own commits
// become durable in its order.
func TestConcurrentCommits(t *testing.T) {
	l := &memLog{}
	s := open(t, l, Options{Entry: 512, Extent: 1024, Pending: 2048})
	var wg sync.WaitGroup
	histories := make([]history, 8)
	for i := range histories {
		wg.Go(func() {
			for n := range 500 {
				if behind := s.CaughtUp(); behind != nil {
					<-behind
				}
				ops := fmt.Sprintf("%d/%d ", i, n)
				e := s.Extent()
				s.Commit([]byte(ops), []Delta{{Extent: e, Bytes: int64(len(ops))}}, histories[i].as(ops))
				s.Commit(nil, []Delta{{Extent: e, Bytes: -int64(len(ops))}}, nil)
			}
		})
	}
	wg.Wait()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range histories {
		for n, o := range histories[i].all {
			if want := fmt.Sprintf("%d/%d ", i, n); o.name != want || o.err != nil {
				t.Fatalf("got %v, want %q durable", o, want)
			}
		}
		if n := len(histories[i].all); n != 500 {
			t.Errorf("%d outcomes, want 500", n)
		}
	}
	if st := s.Stats(); st.Live != 0 || st.Pending != 0 || st.LogBytes > 2048 {
		t.Errorf("left: %+v", st)
	}
}

func post(s *Writer, h *history, ops string) { s.Commit([]byte(ops), nil, h.as(ops)) }
