package pattern

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A name of 255 bytes took 2.4 s to compare with such an expression, and compiling it took 60 MB.
func TestExpressionsOfTooManyStepsAreRefused(t *testing.T) {
	turns := NewTurns(func() hook.Instant { return 0 })
	for _, text := range []string{
		strings.Repeat(".{0,999}", 3), "(.{0,40}){0,25}.{0,999}", strings.Repeat(".{0,999}", 128), "^" + strings.Repeat(".{0,999}", 127),
	} {
		if _, err := turns.Folded("name", text); err == nil || !strings.Contains(err.Error(), "steps, more than 2000") {
			t.Errorf("%.40q: got the error %v", text, err)
		}
	}
	if _, err := turns.Folded("name", "("); err == nil || !strings.HasPrefix(err.Error(), "name: ") {
		t.Errorf("an expression that is none: got %v", err)
	}
	if _, err := turns.Folded("name", strings.Repeat("a", MaxExpression+1)); err == nil || !strings.Contains(err.Error(), "at most 1024") {
		t.Errorf("a long one: got %v", err)
	}
}

func TestFilters(t *testing.T) {
	turns := NewTurns(func() hook.Instant { return 0 })
	for _, tt := range []struct {
		make func() (*Filter, error)
		pass string
		fail string
	}{
		{func() (*Filter, error) { return turns.Folded("name", "^A.*z$") }, "abcZ", "abc"},
		{func() (*Filter, error) { return turns.Folded("name", "orders") }, "my-ORDERS-2", "order"},
		{func() (*Filter, error) { return turns.Expression("name", "^a") }, "ab", "Ab"},
		{func() (*Filter, error) { return Plain(func(s string) bool { return s == "x" }), nil }, "x", "y"},
	} {
		f, err := tt.make()
		if err != nil {
			t.Fatal(err)
		}
		run := f.Begin(nil, MostTime)
		if !run.Passes(tt.pass) || run.Passes(tt.fail) {
			t.Errorf("%q passes: %v, %q passes: %v", tt.pass, run.Passes(tt.pass), tt.fail, run.Passes(tt.fail))
		}
		if err := run.End(); err != nil {
			t.Error(err)
		}
	}
	var none *Filter
	if run := none.Begin(nil, 0); !run.Passes("anything") || run.End() != nil {
		t.Error("without a filter a name does not pass")
	}
}

// slow returns a filter of the greatest cost, whose every name takes a turn, and a clock that a name advances.
func slow(t *testing.T, now *hook.Instant) *Filter {
	t.Helper()
	f, err := NewTurns(func() hook.Instant { *now += hook.Instant(time.Second); return *now }).Folded("name", costly)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// costly takes a turn for each name, and no time: no name has its text.
var costly, long = strings.Repeat("b", 1000), strings.Repeat("a", 300)

// The expression of a client that had left was compared with all names.
func TestTheReaderLeaves(t *testing.T) {
	now := hook.Instant(0)
	done := make(chan struct{})
	run := slow(t, &now).Begin(done, 0)
	for range 2 {
		run.Passes(long)
	}
	close(done)
	for range 2 {
		run.Passes(long)
	}
	if err := run.End(); !errors.Is(err, ErrGone) {
		t.Errorf("got the error %v", err)
	}
	f := slow(t, &now)
	for range cap(f.turns.slots) + 1 { // a run that was not begun holds no turn
		if err := f.Begin(done, 0).End(); !errors.Is(err, ErrGone) {
			t.Errorf("got the error %v of a run that begins later", err)
		}
	}
}

func TestARunTakesNoMoreThanItsTime(t *testing.T) {
	now := hook.Instant(0)
	run := slow(t, &now).Begin(nil, 5*time.Second)
	n := 0
	for ; n < 1000 && run.err == nil; n++ {
		run.Passes(long)
	}
	err := run.End()
	if err == nil || n == 1000 || !strings.Contains(err.Error(), "more than 5s") {
		t.Errorf("after %d names: %v", n, err)
	}
}

// As many runs as have a turn at a time let others have theirs.
func TestRunsTakeTurns(t *testing.T) {
	now := hook.Instant(0)
	f, err := NewTurns(func() hook.Instant { return now }).Folded("name", costly)
	if err != nil {
		t.Fatal(err)
	}
	if want := max(1, runtime.GOMAXPROCS(0)/2); cap(f.turns.slots) != want {
		t.Errorf("%d runs at a time, want %d", cap(f.turns.slots), want)
	}
	var runs []*Run
	for range cap(f.turns.slots) {
		runs = append(runs, f.Begin(nil, 0))
	}
	began := make(chan struct{})
	go func() {
		defer close(began)
		_ = f.Begin(nil, 0).End()
	}()
	for waits := true; waits; {
		runs[0].Passes(long)
		select {
		case <-began:
			waits = false
		default:
			runtime.Gosched()
		}
	}
	for _, r := range runs {
		if err := r.End(); err != nil {
			t.Error(err)
		}
	}
}
