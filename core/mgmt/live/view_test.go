package live

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/clock"
)

// Readers with the same key share a state, which is made once a second.
func TestReadersShareAView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vs := NewViews(clock.New())
		var begun, made atomic.Int64
		spec := Spec{Key: "k", Begin: func() func() (object, error) {
			begun.Add(1)
			return func() (object, error) {
				time.Sleep(100 * time.Millisecond) // the others wait
				return object{{"n", made.Add(1)}}, nil
			}
		}}
		var readers sync.WaitGroup
		for range 10 {
			readers.Go(func() {
				v := vs.open(&spec)
				defer vs.close(v)
				seen := uint64(0)
				for i := range 5 {
					number, kind, data, err := v.since(seen)
					if err != nil || number != uint64(i+1) || kind != map[bool]string{true: "state", false: "change"}[i == 0] {
						t.Errorf("reader %d: got %d %s %s %v", i, number, kind, data, err)
					}
					seen = number
					time.Sleep(period - time.Duration(vs.clock())%period)
				}
			})
		}
		readers.Wait()
		if begun.Load() != 1 || made.Load() != 5 {
			t.Errorf("begun %d times, made %d times", begun.Load(), made.Load())
		}
	})
}

// A reader that has missed a state gets a whole one; so does a reader of a view that was forgotten meanwhile.
func TestReadersComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vs := NewViews(clock.New())
		n := 0
		spec := Spec{Key: "k", Begin: func() func() (object, error) {
			return func() (object, error) { n++; return object{{"n", n}, {"same", "x"}}, nil }
		}}
		v := vs.open(&spec)
		number, _, _, _ := v.since(0)
		id := v.id(number)
		time.Sleep(period)
		if _, kind, data, _ := v.since(v.seen(id)); kind != "change" || string(data) != `{"n":2}` {
			t.Errorf("a second later: got %s %s", kind, data)
		}
		time.Sleep(period)
		if _, kind, _, _ := v.since(v.seen(id)); kind != "state" {
			t.Errorf("two seconds later: got %s", kind)
		}
		for _, other := range []string{"", "-", "x-1", v.born, v.born + "-x"} {
			if v.seen(other) != 0 {
				t.Errorf("%q is the id of a state", other)
			}
		}
		vs.close(v)
		time.Sleep(2 * idle)
		vs.open(&Spec{Key: "other", Begin: spec.Begin})
		if len(vs.all) != 1 {
			t.Errorf("%d views are remembered", len(vs.all))
		}
	})
}

// A view without readers is forgotten without another request, however long it takes until there is one.
func TestViewsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vs := NewViews(clock.New())
		spec := func(key string) *Spec {
			return &Spec{Key: key, Begin: func() func() (object, error) { return func() (object, error) { return object{{"n", 1}}, nil } }}
		}
		remembered := func(want int) {
			t.Helper()
			synctest.Wait()
			vs.mu.Lock()
			defer vs.mu.Unlock()
			if len(vs.all) != want {
				t.Errorf("%d views are remembered, want %d", len(vs.all), want)
			}
		}
		read := vs.open(spec("read"))
		for _, key := range []string{"a", "b"} {
			if _, err := vs.Once(spec(key)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(idle / 2)
		}
		remembered(2) // the second was read later than the first
		time.Sleep(idle)
		remembered(1)
		vs.close(read)
		time.Sleep(2 * idle)
		remembered(0)
	})
}

func TestAViewEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vs := NewViews(clock.New())
		gone := error(nil)
		spec := Spec{Key: "k", Begin: func() func() (object, error) { return func() (object, error) { return object{{"n", 1}}, gone } }}
		v := vs.open(&spec)
		if _, _, _, err := v.since(0); err != nil {
			t.Fatal(err)
		}
		gone = errors.New("gone")
		time.Sleep(period)
		if _, _, _, err := v.since(1); !errors.Is(err, gone) {
			t.Errorf("got %v", err)
		}
		gone = nil
		if body, err := vs.Once(&spec); err != nil || string(body) != `{"n":1}` {
			t.Errorf("asked again: got %s %v", body, err)
		}
	})
}
