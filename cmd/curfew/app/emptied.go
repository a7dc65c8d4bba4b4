package app

import (
	"context"
	"time"

	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/mgmt/drain"
)

// followDrain drives drains of the broker until ctx ends. When one has ended that is to stop the broker, it sends to emptied.
func (s *service) followDrain(ctx context.Context) {
	if s.drainer == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.drainer.Begun():
		}
		if s.finishDrain(ctx) {
			s.emptied <- struct{}{}
			return
		}
	}
}

// lastLook is how long a drained broker waits for those who follow the drain to see that it stops.
const lastLook = 2 * time.Second

// finishDrain drives a drain until it has ended, and reports whether the broker is to be stopped.
func (s *service) finishDrain(ctx context.Context) (stop bool) {
	ticker := time.NewTicker(drain.Interval)
	defer ticker.Stop()
	for {
		goesOn, stop := s.drainer.Step()
		if !goesOn && !stop {
			return false
		}
		if stop {
			return s.awaitReaders(ctx)
		}
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
}

// awaitReaders waits a little until somebody has read how the drain has ended. It returns false if ctx ends first.
func (s *service) awaitReaders(ctx context.Context) bool {
	timer := time.NewTimer(lastLook)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-s.drainer.Told():
	}
	return true
}

// openDrain makes the broker one that can be drained.
func (s *service) openDrain(o *mgmt.Options) {
	s.drainer = drain.New(drain.Options{Server: o.AMQP, VHosts: o.Store.VHosts, Clock: s.clock, Log: s.log})
	o.Drain = s.drainer
}

// drainsNow reports whether the broker closes its connections, or somebody drains it.
func (s *service) drainsNow() bool {
	return s.draining.Load() || s.drainer != nil && s.drainer.Active()
}

// accepts reports whether clients can connect to the broker.
func (s *service) accepts() bool {
	b, ok := s.broker.(interface{ Listening() bool })
	return !ok || b.Listening()
}
