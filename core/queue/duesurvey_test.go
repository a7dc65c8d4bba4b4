package queue

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

func TestDueGrid(t *testing.T) {
	if DueBound(0) != DueFirst || DueBound(DueSteps-1) != DueLast {
		t.Errorf("it is from %v to %v", DueBound(0), DueBound(DueSteps-1))
	}
	natural := map[time.Duration]bool{time.Second: true, time.Minute: true, time.Hour: true, 24 * time.Hour: true}
	for i := range DueSteps {
		bound := DueBound(i)
		delete(natural, bound)
		if bound%time.Millisecond != 0 {
			t.Errorf("bound %d is %v", i, bound)
		}
		if DueStep(bound) != i || DueStep(bound+1) != i+1 || DueStep(bound-1) != i {
			t.Errorf("bound %d, %v, is in step %d; a nanosecond more in %d, less in %d", i, bound, DueStep(bound), DueStep(bound+1), DueStep(bound-1))
		}
		if i > 0 && (bound <= DueBound(i-1) || bound > DueBound(i-1)*107/100 && bound > DueBound(i-1)+time.Millisecond) {
			t.Errorf("bound %d is %v, the one before %v", i, bound, DueBound(i-1))
		}
	}
	if len(natural) > 0 {
		t.Errorf("no bounds: %v", natural)
	}
	if DueStep(1) != 0 || DueStep(1<<62) != DueSteps {
		t.Errorf("the ends are in steps %d and %d", DueStep(1), DueStep(1<<62))
	}
}

// surveyed surveys a queue in parts of so many slots.
func surveyed(s *DueSurvey, q *Queue, now hook.Instant, part int) {
	s.Reset(now)
	for done := false; !done; {
		done = s.next(q, part)
	}
}

// A survey of a queue at rest counts what the model has, in parts of any size, and its marks say the same.
func TestDueSurveyAgreesWithTheModel(t *testing.T) {
	for _, scan := range []hook.Scan{hook.ScanAnywhere, hook.ScanTop, hook.ScanLazy} {
		for _, levels := range []int{0, 3} {
			t.Run(fmt.Sprintf("scan%d/levels%d", scan, levels), func(t *testing.T) {
				p := newPair(t, scan, levels, 7)
				var s DueSurvey
				for range 40 {
					p.play(10)
					var want DueCounts
					never := 0
					for _, mm := range p.m.list {
						switch {
						case mm.out:
						case mm.deadline == 0:
							never++
						default:
							want.Add(p.now, mm.deadline, 1)
						}
					}
					for _, part := range []int{1, 3000, surveyPart} {
						surveyed(&s, p.q, p.now, part)
						if s.Due != want || s.Never != never {
							t.Fatalf("in parts of %d: got %d never, %+v, want %d, %+v", part, s.Never, s.Due, never, want)
						}
						if again := counts(&s, p.now); again.Steps != want.Steps || again.Overdue != want.Overdue {
							t.Fatalf("by marks: got %+v, want %+v", again, want)
						}
					}
				}
			})
		}
	}
}

// counts counts what the marks of a survey say, seen from now.
func counts(s *DueSurvey, now hook.Instant) (c DueCounts) {
	due, _ := s.Marks(nil, nil)
	for _, m := range due {
		c.Add(now, m.At, m.N)
	}
	return c
}

// Marks of few deadlines are exact at any time, and those of many as good as the grid until half of the time to the first has passed.
func TestDueMarksAge(t *testing.T) {
	const now = 1000 * second
	for _, n := range []int{fewDue, 1000} {
		q, _ := passive(t, Config{}, ttlHooks(hook.ScanLazy, nil))
		var want DueCounts
		later := now + 5*second
		for i := range n {
			ttl := 10*time.Second + time.Duration(i*i)*17*time.Millisecond
			q.enqueue(now, batchOf(expiring(uint64(i), ttl)))
			want.Add(later, now.Add(ttl), 1)
		}
		var s DueSurvey
		surveyed(&s, q, now, surveyPart)
		got := counts(&s, later)
		if n == fewDue && got.Steps != want.Steps {
			t.Errorf("%d messages: got %v, want %v", n, got.Steps, want.Steps)
		}
		through, wanted := 0, 0
		for i := range got.Steps {
			through, wanted = through+int(got.Steps[i]), wanted+int(want.Steps[i])
			if i+2 < len(got.Steps) && through > wanted+int(want.Steps[i+1])+int(want.Steps[i+2]) || through < wanted-2*int(want.Steps[i])-int(want.Steps[max(i, 1)-1]) {
				t.Errorf("%d messages, step %d: %d are due by then, want %d", n, i, through, wanted)
			}
		}
		if through != n {
			t.Errorf("%d of %d messages", through, n)
		}
	}
}

// Holds are counted without putting their list in order, a part at a time.
func TestDueSurveyOfHolds(t *testing.T) {
	const now = 1000 * second
	rng := rand.New(rand.NewPCG(1, 16))
	q, _ := passive(t, Config{}, hook.Hooks{OnEnqueue: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			vs[i].Hold = now + 1 + hook.Instant(rng.Int64N(int64(40*24*time.Hour)))
		}
	}})
	var s DueSurvey
	for _, more := range []int{1, 10, 500, 5000} {
		for i := range more {
			q.enqueue(now, batchOf(expiring(uint64(i), 0)))
		}
		var want DueCounts
		q.HeldFrom(0, 0, func(h *Held) bool { want.Add(now, h.Until, 1); return true })
		for _, later := range []hook.Instant{now, now + 2*24*3600*second} {
			if later > now {
				want = DueCounts{}
				q.HeldFrom(0, 0, func(h *Held) bool { want.Add(later, h.Until, 1); return true })
			}
			for _, part := range []int{100, surveyPart} {
				surveyed(&s, q, later, part)
				if s.Held != want || s.Never != 0 || s.Due != (DueCounts{}) {
					t.Fatalf("%d held, in parts of %d: got %+v, want %+v", q.held(), part, s.Held, want)
				}
			}
		}
		q.enqueue(now, batchOf(expiring(1, 0))) // one that is not in order
	}
}

func TestDueSurveyAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := filled(t, 5000, aDay)
		s := new(DueSurvey)
		look := func(q *Queue) { s.Next(q) }
		if n := testing.AllocsPerRun(10, func() {
			s.Reset(m.clock())
			_ = m.Look(look)
		}); n > 0 {
			t.Errorf("got %v allocations", n)
		}
	})
}

// Whoever looks at a queue once its number has changed misses nothing.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := filled(t, 0, nil)
		n := m.Changes()
		if m.Changes() != n {
			t.Error("it changes by being asked for")
		}
		_ = m.Look(func(*Queue) {})
		if m.Changes() != n {
			t.Error("it changes with a look")
		}
		for name, turn := range map[string]func(){
			"a publish": func() { fill(m, 1, func(int) time.Duration { return time.Second }) },
			"an expiry": func() { time.Sleep(2 * time.Second); synctest.Wait() },
			"a call":    func() { _ = m.Do(func(*Queue, hook.Instant) {}) },
		} {
			fill(m, 1, func(int) time.Duration { return time.Second })
			n := m.Changes()
			turn()
			if m.Changes() == n {
				t.Error(name, "changes nothing")
			}
		}
		for range 3 { // what is not asked for is not counted
			_ = m.Do(func(*Queue, hook.Instant) {})
		}
		n = m.changes.Load()
		_ = m.Do(func(*Queue, hook.Instant) {})
		if m.changes.Load() != n {
			t.Error("a turn writes a number that nobody has asked for")
		}
	})
}

// Several goroutines may ask while the queue is busy: each that looks after it has asked sees at least what it had seen before, and the
// last look sees everything.
func TestChangesOfABusyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := filled(t, 0, nil)
		const messages = 20_000
		var busy sync.WaitGroup
		for range 3 {
			busy.Go(func() {
				var seen uint32
				for ready := 0; ready < messages; {
					n := m.Changes()
					if n == seen {
						runtime.Gosched()
						continue
					}
					seen = n
					_ = m.Look(func(q *Queue) { ready = q.Stats().Ready })
				}
			})
		}
		fill(m, messages, aDay)
		busy.Wait() // a missed change would leave it waiting
	})
}

// What a part of a survey of five million messages costs.
func BenchmarkDueSurvey(b *testing.B) {
	for _, tc := range []struct {
		name string
		ttl  func(i int) time.Duration
	}{
		{"same TTL", aDay},
		{"any TTL", func(i int) time.Duration { return time.Hour + time.Duration(i*7919%5_000_011)*time.Millisecond }},
		{"log TTL", func(i int) time.Duration { return time.Hour + time.Millisecond<<(i*7919%30) }},
	} {
		b.Run(tc.name, func(b *testing.B) {
			const n = 5_000_000
			q := benchQueue(b, ttlHooks(hook.ScanHeads, nil))
			for i := range n / maxBatch {
				q.enqueue(second, batchOf(benchMessages(maxBatch, 8, func(j int) hook.Limit {
					return hook.LimitOf(tc.ttl(i*maxBatch + j).Milliseconds())
				})...))
			}
			var slowest time.Duration
			parts := 0
			var s DueSurvey
			for b.Loop() {
				s.Reset(3600 * second)
				for done := false; !done; parts++ {
					began := time.Now()
					done = s.Next(q)
					slowest = max(slowest, time.Since(began))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(parts), "ns/part")
			b.ReportMetric(float64(slowest.Nanoseconds()), "max-ns/part")
			b.ReportMetric(float64(parts)/float64(b.N), "parts")
			q.store.release()
		})
	}
}
