package queue

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

func TestHorizon(t *testing.T) {
	const now = 100 * second
	for _, tc := range []struct {
		name string
		at   []hook.Instant
		want DueHistogram
	}{
		{"nothing", nil, DueHistogram{}},
		{"no instant", []hook.Instant{0, 0}, DueHistogram{Never: 2}},
		{"in the past", []hook.Instant{1, now}, DueHistogram{Due: [6]int{2}, Overdue: 2, Earliest: 1}},
		{"on the bounds", []hook.Instant{now + second, now + 10*second, now + 3600*second}, DueHistogram{Due: [6]int{1, 1, 0, 0, 1}, Earliest: now + second}},
		{"beyond them", []hook.Instant{now + 3600*second + 1, now + 60*second + 1, now + second + 1}, DueHistogram{Due: [6]int{0, 1, 0, 1, 0, 1}, Earliest: now + second + 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got, merged DueHistogram
			for _, at := range tc.at {
				var one DueHistogram
				one.Add(now, at, 1)
				merged.Merge(&one)
				got.Add(now, at, 1)
			}
			if got != tc.want || merged != tc.want {
				t.Errorf("got %+v, merged %+v, want %+v", got, merged, tc.want)
			}
			if got.Count() != len(tc.at) {
				t.Errorf("%d in all, want %d", got.Count(), len(tc.at))
			}
		})
	}
}

// A census of a queue at rest is what the model counts, in pieces of any size.
func TestCensusAgreesWithTheModel(t *testing.T) {
	for _, scan := range []hook.Scan{hook.ScanAnywhere, hook.ScanHeads, hook.ScanTop, hook.ScanLazy} {
		for _, levels := range []int{0, 3} {
			for seed := range uint64(2) {
				t.Run(fmt.Sprintf("scan%d/levels%d/seed%d", scan, levels, seed), func(t *testing.T) {
					p := newPair(t, scan, levels, seed)
					for range 30 {
						p.play(10)
						want := p.m.horizon(p.now)
						for _, piece := range []int{1, 3000, censusPiece} {
							if got := counted(p.q, p.now, piece); got != want {
								t.Fatalf("in pieces of %d: got %+v, want %+v", piece, got, want)
							}
						}
					}
				})
			}
		}
	}
}

func (m *model) horizon(now hook.Instant) (h DueHistogram) {
	for _, mm := range m.list {
		if !mm.out {
			h.Add(now, mm.deadline, 1)
		}
	}
	return h
}

// counted takes a census in pieces of so many slots.
func counted(q *Queue, now hook.Instant, piece int) DueHistogram {
	if q.contents == nil {
		return DueHistogram{}
	}
	c := count{DueSnapshot: DueSnapshot{At: now}}
	for done := false; !done; {
		done = c.goOn(q, piece)
	}
	return c.DueHistogram
}

// filled returns a queue of n messages, the i-th of which is due after ttl(i).
func filled(tb testing.TB, n int, ttl func(i int) time.Duration) *Mailbox {
	tb.Helper()
	s, _ := live(tb, ttlHooks(hook.ScanAnywhere, nil))
	fill(s, n, ttl)
	return s
}

func fill(s *Mailbox, n int, ttl func(i int) time.Duration) {
	for i := 0; i < n; {
		b := NewBatch()
		for range min(maxBatch, n-i) {
			b.Messages = append(b.Messages, expiring(uint64(i), ttl(i)))
			i++
		}
		s.Publish(b)
	}
}

// aDay is a deadline that a test does not come to.
func aDay(int) time.Duration { return 24 * time.Hour }

func ask(t *testing.T, v *DueSampler, s *Mailbox) (c DueSnapshot) {
	t.Helper()
	if err := s.Look(func(q *Queue) { c = v.Of(q) }); err != nil {
		t.Error(err)
	}
	return c
}

// keeps is what is kept with a queue at rest for censuses.
func keeps(s *Mailbox) *census {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.contents == nil {
		return nil
	}
	return s.queue.census
}

func TestALargeQueueIsCountedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3*censusPiece + 7
		s := filled(t, n, aDay)
		v := NewDueSampler(s.clock)
		defer v.Close()
		began := s.clock()
		if c := ask(t, v, s); c.At != 0 {
			t.Errorf("got %+v at once", c)
		}
		ask(t, v, s) // once more begins nothing
		time.Sleep(10 * censusPause)
		first := ask(t, v, s)
		if first.At != began || first.Due[5] != n || first.Count() != n {
			t.Errorf("got %+v, want %d messages at %d", first, n, began)
		}
		fill(s, 10, func(int) time.Duration { return time.Minute })
		time.Sleep(censusAge / 2)
		ask(t, v, s)
		time.Sleep(censusAge / 4)
		if c := ask(t, v, s); c != first {
			t.Errorf("counted again after %v: %+v", c.At.Sub(began), c)
		}
		time.Sleep(censusAge)
		ask(t, v, s)
		time.Sleep(10 * censusPause)
		if c := ask(t, v, s); c.Due[2] != 10 || c.Due[5] != n {
			t.Errorf("got %+v, want %d and 10 within a minute", c, n)
		}
	})
}

func TestASmallQueueIsCountedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := filled(t, 0, nil)
		v := NewDueSampler(s.clock)
		defer v.Close()
		if c := ask(t, v, s); c.At != s.clock() || c.Count() != 0 {
			t.Errorf("an empty queue: got %+v", c)
		}
		fill(s, 1000, func(i int) time.Duration { return time.Duration(1+i) * time.Second })
		time.Sleep(500 * time.Millisecond)
		want := [6]int{1, 9, 50, 540, 400, 0}
		if c := ask(t, v, s); c.At != s.clock() || c.Due != want {
			t.Errorf("got %+v, want %v", c, want)
		}
		if n := testing.AllocsPerRun(10, func() { v.Of(&s.queue) }); n > 0 || keeps(s) != nil {
			t.Errorf("it keeps %+v, and makes %v allocations", keeps(s), n)
		}
	})
}

func TestAQueueOfSomeMessagesIsCountedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = censusPiece / 2
		s := filled(t, n, aDay)
		v := NewDueSampler(s.clock)
		defer v.Close()
		first := ask(t, v, s)
		if first.At != s.clock() || first.Count() != n {
			t.Errorf("got %+v, want %d", first, n)
		}
		fill(s, 1, aDay)
		time.Sleep(censusAge - 1)
		if c := ask(t, v, s); c != first {
			t.Errorf("counted again after %v: %+v", c.At.Sub(first.At), c)
		}
		time.Sleep(time.Nanosecond)
		if c := ask(t, v, s); c.At != s.clock() || c.Count() != n+1 {
			t.Errorf("got %+v, want %d", c, n+1)
		}
		if err := s.Do(func(q *Queue, now hook.Instant) { q.Purge(now) }); err != nil {
			t.Fatal(err)
		}
		if c := ask(t, v, s); c.At != s.clock() || c.Count() != 0 || keeps(s) != nil {
			t.Errorf("an empty queue: got %+v, kept %+v", c, keeps(s))
		}
	})
}

// A queue that is purged or deleted while it is counted, or no more large, holds nobody up and keeps nothing.
func TestCensusOfAQueueThatGoes(t *testing.T) {
	for name, end := range map[string]func(q *Queue, now hook.Instant){
		"purged":  func(q *Queue, now hook.Instant) { q.Purge(now) },
		"deleted": func(q *Queue, _ hook.Instant) { _, _ = q.Delete(false, false) },
		"stopped": func(q *Queue, _ hook.Instant) { q.End() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, next := filled(t, 3*censusPiece, aDay), filled(t, 2*censusPiece, aDay)
				v := NewDueSampler(s.clock)
				ask(t, v, s)
				ask(t, v, next)
				time.Sleep(3 * censusPause / 2)
				if err := s.Do(end); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * censusPause)
				if c := keeps(s); c != nil {
					t.Errorf("it keeps %+v", c)
				}
				if c := ask(t, v, next); c.Count() != 2*censusPiece {
					t.Errorf("the next queue: got %+v", c)
				}
				v.mu.Lock()
				defer v.mu.Unlock()
				if v.running || len(v.line) > 0 {
					t.Errorf("running: %v, %d in line", v.running, len(v.line))
				}
			})
		})
	}
}

// A census can be taken, and asked for, while others use the queue.
func TestSurveyOfABusyQueue(t *testing.T) {
	s := filled(t, 2*censusPiece, aDay)
	v := NewDueSampler(s.clock)
	defer v.Close()
	var busy sync.WaitGroup
	busy.Go(func() { fill(s, 50*maxBatch, aDay) })
	busy.Go(func() {
		for range 2000 {
			_ = s.Do(func(q *Queue, now hook.Instant) { q.Get(now, &Consumer{NoAck: true}, func(Delivery, int) {}) })
		}
	})
	for range 2 {
		busy.Go(func() {
			for range 200 {
				if c := ask(t, v, s); c.At != 0 && (c.Count() < censusPiece || c.Due[5] != c.Count()) {
					t.Errorf("got %+v", c)
				}
			}
		})
	}
	busy.Wait()
}

func TestSurveyIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := filled(t, 3*censusPiece, aDay)
		v := NewDueSampler(s.clock)
		ask(t, v, s)
		v.Close()
		v.Close()
		if c := ask(t, v, s); c.At != 0 {
			t.Errorf("got %+v", c)
		}
	})
}

// Work that comes while a queue is counted is done in between, and the count ends although more messages come than it sees in a
// piece.
func TestCensusEndsWhileMessagesCome(t *testing.T) {
	s := filled(t, censusPiece, aDay)
	q := &s.queue
	c := count{DueSnapshot: DueSnapshot{At: s.clock()}}
	pieces := 0
	for ; !c.goOn(q, chunkSlots); pieces++ {
		fill(s, 2*chunkSlots, aDay)
	}
	if n := c.Count(); n < censusPiece || n > censusPiece+chunkSlots || pieces > censusPiece/chunkSlots {
		t.Errorf("%d messages in %d pieces, want %d", n, pieces, censusPiece)
	}
}

// What a piece of a census of five million messages costs: "max-ns/piece" is what a queue cannot do anything else.
func BenchmarkCensus(b *testing.B) {
	for _, tc := range []struct {
		name string
		ttl  func(i int) time.Duration
	}{
		{"same TTL", aDay},
		{"any TTL", func(i int) time.Duration { return time.Hour + time.Duration(i*7919%5_000_011)*time.Millisecond }},
		{"without", nil},
	} {
		b.Run(tc.name, func(b *testing.B) {
			const n = 5_000_000
			q := benchQueue(b, ttlHooks(hook.ScanHeads, nil))
			for i := range n / maxBatch {
				ms := benchMessages(maxBatch, 8, func(j int) hook.Limit {
					if tc.ttl == nil {
						return 0
					}
					return hook.LimitOf(tc.ttl(i*maxBatch + j).Milliseconds())
				})
				q.enqueue(second, batchOf(ms...))
			}
			var slowest time.Duration
			pieces := 0
			for b.Loop() {
				c := count{DueSnapshot: DueSnapshot{At: 3600 * second}}
				for done := false; !done; pieces++ {
					began := time.Now()
					done = c.goOn(q, censusPiece)
					slowest = max(slowest, time.Since(began))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(pieces), "ns/piece")
			b.ReportMetric(float64(slowest.Nanoseconds()), "max-ns/piece")
			b.ReportMetric(float64(pieces)/float64(b.N), "pieces")
			q.store.release()
		})
	}
}
