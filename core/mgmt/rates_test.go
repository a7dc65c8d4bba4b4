package mgmt

import (
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// clockwork is a clock that goes on when it is told to.
type clockwork struct{ now hook.Instant }

func (c *clockwork) clock() hook.Instant { return c.now }

func (c *clockwork) pass(d time.Duration) { c.now = c.now.Add(d) }

func TestRates(t *testing.T) {
	c := &clockwork{now: 1}
	ms := newMeters(c.clock, 5*time.Second)
	for _, step := range []struct {
		name  string
		after time.Duration
		count int64
		want  float64
	}{
		{"nothing is known at first", 0, 100, 0},
		{"too early for a rate", time.Second, 200, 0},
		{"over the time since the first", 4 * time.Second, 600, 100},
		{"the same rate for a while", 4 * time.Second, 10_000, 100},
		{"the next one", 6 * time.Second, 600, 0},
		{"what has become less", 10 * time.Second, 100, -50},
		{"forgotten", time.Hour, 5000, 0},
		{"known again", 5 * time.Second, 5005, 1},
	} {
		c.pass(step.after)
		if step.name == "forgotten" {
			ms.rates("other", []int64{0})
		}
		if got := ms.rates("key", []int64{step.count}); got[0] != step.want {
			t.Errorf("%s: got %v, want %v", step.name, got[0], step.want)
		}
	}
}

// Rates that were handed out stay what they were.
func TestRatesAreValues(t *testing.T) {
	c := &clockwork{now: 1}
	ms := newMeters(c.clock, time.Second)
	ms.rates("key", []int64{0})
	c.pass(time.Second)
	first := ms.rates("key", []int64{1})
	c.pass(time.Second)
	if second := ms.rates("key", []int64{11}); first[0] != 1 || second[0] != 10 {
		t.Errorf("got %v, then %v", first, second)
	}
}

func TestMetersAreBounded(t *testing.T) {
	c := &clockwork{now: 1}
	ms := newMeters(c.clock, time.Second)
	for i := range maxMeters + 10 {
		ms.rates(i, []int64{1})
	}
	if len(ms.all) != maxMeters {
		t.Errorf("got %d meters, want %d", len(ms.all), maxMeters)
	}
	c.pass(time.Hour)
	ms.rates("last", []int64{1})
	if len(ms.all) != 1 {
		t.Errorf("got %d meters after an hour, want one", len(ms.all))
	}
}
