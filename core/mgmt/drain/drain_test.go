package drain

import (
	"log/slog"
	"testing"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/vhost"
)

// While connections were closed because of a signal, a drain found that no consumer had messages left, and reported an empty broker.
func TestADrainDoesNotEndBecauseTheBrokerIsStopped(t *testing.T) {
	for _, overtaken := range []bool{true, false} {
		d := New(Options{VHosts: func() []*vhost.VHost { return nil }, Clock: clock.New(), Log: slog.New(slog.DiscardHandler)})
		d.state, d.order = Draining, Order{Timeout: MaxTimeout, Stop: true}
		d.counts.Left = 1
		if overtaken {
			d.Overtaken()
		}
		d.Step()
		if _, stop := d.Step(); stop == overtaken {
			t.Errorf("overtaken %t: stop: got %t", overtaken, stop)
		}
		if got := d.counts.Left; (got == 1) != overtaken {
			t.Errorf("overtaken %t: %d messages are left", overtaken, got)
		}
	}
}
