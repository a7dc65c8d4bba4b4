package vhost

import (
	"testing"
	"testing/synctest"
	"time"
)

// Exchanges that hold every message, and that lead to each other, held a message forever, and twice as many copies of it in each round.
func TestAMessageIsHeldOnce(t *testing.T) {
	for _, tt := range []struct {
		name     string
		bindings [][2]string // from x, y, z, a or b, each of which holds every message for 100 ms; a and b are each other's alternate exchange
		from     string      // the exchange that leads to the queue
		props    []byte
		want     string
	}{
		{"cycle", [][2]string{{"x", "y"}, {"y", "x"}}, "y", nil, "m"},
		{"two cycles", [][2]string{{"x", "y"}, {"y", "x"}, {"x", "z"}, {"z", "x"}}, "x", nil, "m"},
		{"alternate exchanges", [][2]string{{"x", "a"}}, "x", nil, "m"},
		{"chain", [][2]string{{"x", "y"}, {"y", "z"}}, "z", headersOf("wait", int32(100), "times", int32(2), "id", "i"), "m(-100) m(-100)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, _ := newHoldingVHost(t, &holder{}, nil)
				q := declare(t, v, "q")
				for _, name := range []string{"x", "y", "z"} {
					exchangeOf(t, v, name, "x-held", "x-inner", "fanout", "x-wait", int32(100))
				}
				exchangeOf(t, v, "a", "x-held", "x-inner", "direct", "x-wait", int32(100), "alternate-exchange", "b")
				exchangeOf(t, v, "b", "x-held", "x-inner", "direct", "x-wait", int32(100), "alternate-exchange", "a")
				for _, b := range tt.bindings {
					bindExchange(t, v, b[0], b[1], "")
				}
				bind(t, v, tt.from, "q", "")
				sent{exchange: "x", body: "m", props: tt.props}.send(t, v)
				time.Sleep(100*time.Millisecond - 1)
				if got := arrived(t, q); got != "" {
					t.Errorf("early: %q", got)
				}
				time.Sleep(time.Second)
				if got := arrived(t, q); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
				for _, m := range v.Schedules() {
					if name := m.Config().Name; held(t, v, name) > 0 {
						t.Errorf("%s still holds a message", name)
					}
				}
			})
		})
	}
}
