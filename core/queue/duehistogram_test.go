package queue

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Count returns how many instants were counted, and how many times none.
func (h *DueHistogram) Count() int {
	n := h.Never
	for _, due := range h.Due {
		n += due
	}
	return n
}

func TestDueHistogram(t *testing.T) {
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

// A survey of a queue at rest counts what the model counts, in parts of any size.
func TestCampaignDueSurveyAgreesWithTheModel(t *testing.T) {
	for _, scan := range []hook.Scan{hook.ScanAnywhere, hook.ScanHeads, hook.ScanTop, hook.ScanLazy} {
		for _, levels := range []int{0, 3} {
			for seed := range campaign.Size(t, "SIMULATION_SEEDS", 1, 2) {
				t.Run(fmt.Sprintf("scan%d/levels%d/seed%d", scan, levels, seed), func(t *testing.T) {
					p := newPair(t, scan, levels, seed)
					for range 30 {
						p.play(10)
						want := p.m.due(p.now)
						for _, part := range []int{1, 3000, surveyPart} {
							if got := counted(p.q, p.now, part); got != want {
								t.Fatalf("in parts of %d: got %+v, want %+v", part, got, want)
							}
						}
					}
				})
			}
		}
	}
}

func (m *model) due(now hook.Instant) (h DueHistogram) {
	for _, mm := range m.list {
		if !mm.out {
			h.Add(now, mm.deadline, 1)
		}
	}
	return h
}

// counted surveys a queue in parts of so many slots.
func counted(q *Queue, now hook.Instant, part int) DueHistogram {
	var s DueSurvey
	surveyed(&s, q, now, part)
	return s.histogram()
}

func (s *DueSurvey) histogram() DueHistogram {
	h := s.Due.Histogram()
	h.Never = s.Never
	return h
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

func TestDueSurveyOfAMailbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := filled(t, 0, nil)
		if h := scanned(t, s); h.Count() != 0 {
			t.Errorf("an empty queue: got %+v", h)
		}
		fill(s, 1000, func(i int) time.Duration { return time.Duration(1+i) * time.Second })
		time.Sleep(500 * time.Millisecond)
		want := [6]int{1, 9, 50, 540, 400, 0}
		if h := scanned(t, s); h.Due != want {
			t.Errorf("got %+v, want %v", h, want)
		}
		if n := testing.AllocsPerRun(10, func() { counted(&s.queue, s.clock(), surveyPart) }); n > 0 {
			t.Errorf("it makes %v allocations", n)
		}
		const more = 3*surveyPart + 7
		fill(s, more, aDay)
		if h := scanned(t, s); h.Due[5] != more || h.Count() != 1000+more {
			t.Errorf("got %+v, want %d more", h, more)
		}
		if err := s.Do(func(q *Queue, now hook.Instant) { q.Purge(now) }); err != nil {
			t.Fatal(err)
		}
		if h := scanned(t, s); h.Count() != 0 {
			t.Errorf("a purged queue: got %+v", h)
		}
	})
}

// scanned surveys a queue that others may use meanwhile.
func scanned(t *testing.T, s *Mailbox) DueHistogram {
	t.Helper()
	var d DueSurvey
	d.Reset(s.clock())
	for done := false; !done; {
		if err := s.Look(func(q *Queue) { done = d.Next(q) }); err != nil {
			t.Error(err)
			break
		}
	}
	return d.histogram()
}

// A queue that is purged, stopped or deleted during a survey ends it.
func TestDueSurveyOfAQueueThatGoes(t *testing.T) {
	for name, end := range map[string]func(q *Queue, now hook.Instant){
		"purged":  func(q *Queue, now hook.Instant) { q.Purge(now) },
		"deleted": func(q *Queue, _ hook.Instant) { _, _ = q.Delete(false, false) },
		"stopped": func(q *Queue, _ hook.Instant) { q.End() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := filled(t, 3*surveyPart, aDay)
				var d DueSurvey
				d.Reset(s.clock())
				if d.Next(&s.queue) {
					t.Fatal("it is done after one part")
				}
				if err := s.Do(end); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if d.Next(&s.queue) {
						return
					}
				}
				t.Error("it does not end")
			})
		})
	}
}

// A queue can be surveyed while others use it.
func TestDueSurveyOfABusyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := filled(t, 2*surveyPart, aDay)
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
					if h := scanned(t, s); h.Count() < surveyPart || h.Due[5] != h.Count() {
						t.Errorf("got %+v", h)
					}
				}
			})
		}
		busy.Wait()
	})
}

// Other tasks run between the parts of a survey, which ends although more messages come than it sees in a part.
func TestDueSurveyEndsWhileMessagesCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := filled(t, surveyPart, aDay)
		var d DueSurvey
		d.Reset(s.clock())
		parts := 0
		for ; !d.next(&s.queue, chunkSlots); parts++ {
			fill(s, 2*chunkSlots, aDay)
		}
		h := d.histogram()
		if n := h.Count(); n < surveyPart || n > surveyPart+chunkSlots || parts > surveyPart/chunkSlots {
			t.Errorf("%d messages in %d parts, want %d", n, parts, surveyPart)
		}
	})
}
