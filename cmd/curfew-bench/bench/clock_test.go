package bench

import (
	"testing"
	"time"
)

func TestScheduleKeepsItsRate(t *testing.T) {
	for _, rate := range []float64{0.5, 1, 3, 999, 1000, 1001, 5000, 33_333, 1e6} {
		s := newSchedule(0, rate, 64)
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

func TestScheduleSpreadsBatches(t *testing.T) {
	cases := []struct {
		name        string
		rate, batch float64
		n           int64
		apart       time.Duration
	}{
		{name: "one by one", rate: 20_000, batch: 1, n: 1, apart: 50 * time.Microsecond},
		{name: "by fours", rate: 20_000, batch: 4, n: 4, apart: 200 * time.Microsecond},
		{name: "no batch is waited for", rate: 20_000, batch: 64, n: 20, apart: time.Millisecond},
		{name: "rarely", rate: 100, batch: 64, n: 1, apart: 10 * time.Millisecond},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newSchedule(0, c.rate, c.batch)
			for k := range int64(100) {
				n, at := s.take(int64(time.Second), 1000)
				if n != c.n || time.Duration(at) != time.Duration(k)*c.apart {
					t.Fatalf("burst %d: %d messages at %v, want %d at %v", k, n, time.Duration(at), c.n, time.Duration(k)*c.apart)
				}
			}
		})
	}
}

func TestScheduleChargesAStall(t *testing.T) {
	s := newSchedule(0, 2000, 64)
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
