package bench

import (
	"testing"
	"time"
)

func TestScheduleKeepsItsRate(t *testing.T) {
	for _, rate := range []float64{0.5, 1, 3, 999, 1000, 1001, 5000, 33_333, 1e6} {
		s := newSchedule(0, rate)
		const seconds = 20
		var total, last int64
		for now := int64(0); now < seconds*int64(time.Second); now = s.next() {
			n, at := s.take(now, 1<<40)
			total += n
			if at < last || at > now {
				t.Fatalf("rate %v: intended for %d at %d, before that for %d", rate, at, now, last)
			}
			last = at
		}
		if diff := float64(total) - seconds*rate; diff < -2 || diff > rate/1000+2 {
			t.Errorf("rate %v: %d messages in %d s", rate, total, seconds)
		}
	}
}

func TestScheduleChargesAStall(t *testing.T) {
	s := newSchedule(0, 2000)
	if n, _ := s.take(0, 100); n != 2 {
		t.Fatalf("first burst of %d, want 2", n)
	}
	stall := int64(10 * time.Millisecond)
	for k := int64(1); k <= 10; k++ {
		n, at := s.take(stall, 1)
		m, again := s.take(stall, 100)
		if want := k * int64(time.Millisecond); n != 1 || m != 1 || at != want || again != want {
			t.Fatalf("tick %d: %d intended for %d and %d for %d, want 1 and 1 for %d", k, n, at, m, again, want)
		}
	}
	if n, next := s.take(stall, 100); n != 0 || next != 11*int64(time.Millisecond) {
		t.Errorf("caught up: %d messages, next at %d; want 0, 11 ms", n, next)
	}
}

func TestPacerSleeps(t *testing.T) {
	p, err := newPacer()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []time.Duration{-1, 0, time.Microsecond, 2 * time.Millisecond} {
		begin := time.Now()
		if err := p.sleep(d); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < d {
			t.Errorf("slept %v, want at least %v", took, d)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
