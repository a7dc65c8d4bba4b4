package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// asker declares a queue passively on a schedule, over its own connection. It measures each answer from the intended instant of the
// declare, because a late answer delays the next declare.
type asker struct {
	s       *session
	c       *conn
	pace    pacer
	queue   string
	stop    atomic.Bool
	latency tally
}

func (s *session) newAsker(ctx context.Context, queue string) (*asker, error) {
	pace, err := s.pace()
	if err != nil {
		return nil, err
	}
	c, err := s.open(ctx, s.o.broker)
	if err != nil {
		return nil, errors.Join(err, pace.Close())
	}
	return &asker{s: s, c: c, pace: pace, queue: queue}, nil
}

func (a *asker) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = a.c.nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	s := newSchedule(a.s.clock.now(), float64(time.Second)/float64(a.s.o.every), 1)
	for ctx.Err() == nil && !a.stop.Load() {
		if err := a.s.clock.nap(a.pace, s.next()); err != nil {
			return err
		}
		n, at := s.take(a.s.clock.now(), 1)
		if n == 0 {
			continue
		}
		if _, err := a.c.depth(a.queue); err != nil {
			return a.failure(ctx, err)
		}
		a.latency.record(a.s.clock.now()-at, 1)
	}
	return nil
}

// failure returns err; nil if ctx has ended, which interrupts the declare.
func (a *asker) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("passive declare: %w", err)
}

// close is called after run has returned. It ignores errors, because the measurement is over.
func (a *asker) close() {
	_ = a.c.close()
	_ = a.pace.Close()
}
