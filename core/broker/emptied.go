package broker

import (
	"context"
	"time"

	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/mgmt/drain"
)

// followDrain drives drains of the broker until ctx ends. When one has ended that is to stop the broker, it closes emptied.
func (b *Broker) followDrain(ctx context.Context) {
	if b.drainer == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.drainer.Begun():
		}
		if b.finishDrain(ctx) {
			close(b.emptied)
			return
		}
	}
}

// lastLook is how long a drained broker waits for those who follow the drain to see that it stops.
const lastLook = 2 * time.Second

// finishDrain drives a drain until it has ended, and reports whether the broker is to be stopped.
func (b *Broker) finishDrain(ctx context.Context) (stop bool) {
	ticker := time.NewTicker(drain.Interval)
	defer ticker.Stop()
	for {
		goesOn, stop := b.drainer.Step()
		if !goesOn && !stop {
			return false
		}
		if stop {
			return b.awaitReaders(ctx)
		}
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
}

// awaitReaders waits a little until somebody has read how the drain has ended. It returns false if ctx ends first.
func (b *Broker) awaitReaders(ctx context.Context) bool {
	timer := time.NewTimer(lastLook)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-b.drainer.Told():
	}
	return true
}

// openDrain makes the broker one that can be drained.
func (b *Broker) openDrain(o *mgmt.Options) {
	b.drainer = drain.New(drain.Options{Server: o.AMQP, VHosts: o.Store.VHosts, Clock: b.clock, Log: b.log})
	o.Drain = b.drainer
}

// drainsNow reports whether the broker closes its connections, or somebody drains it.
func (b *Broker) drainsNow() bool {
	return b.draining.Load() || b.drainer != nil && b.drainer.Active()
}
