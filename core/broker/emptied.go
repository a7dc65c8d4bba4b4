package broker

import (
	"context"
	"time"

	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/mgmt/drain"
)

// followDrain advances drains of the broker until ctx ends. It closes emptied when a drain
// that is to stop the broker has ended.
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

// lastLook is how long a drained broker waits before it stops, so that clients that follow the drain can read its end.
const lastLook = 2 * time.Second

// finishDrain advances a drain until it has ended, and reports whether the broker is to be stopped.
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

// awaitReaders waits until a client has read the end of the drain, for lastLook at most. It
// returns false if ctx ends first.
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

// openDrain makes it possible to drain the broker.
func (b *Broker) openDrain(o *mgmt.Options) {
	b.drainer = drain.New(drain.Options{Server: o.AMQP, VHosts: o.Store.VHosts, Clock: b.clock, Log: b.log})
	o.Drain = b.drainer
}

// drainsNow reports whether the broker closes its connections, or an operator drains it.
func (b *Broker) drainsNow() bool {
	return b.draining.Load() || b.drainer != nil && b.drainer.Active()
}
