package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// publisher sends the messages of a template over a connection of its own. One goroutine publishes, another listens for
// confirms and for the broker's complaints.
type publisher struct {
	c     *conn
	t     *template
	clock clock
	pace  pacer
	gate  *gate // nil without confirms
	disk  *disk // measured before each write; nil without --fdatasync

	limit  int64   // messages; 0 = none
	until  int64   // instant; 0 = none
	rate   float64 // messages per second; 0 = as fast as the broker takes them
	actual bool    // stamp with the time of writing, not with the intended one

	pos     int // in the template
	sent    atomic.Int64
	ended   atomic.Int64 // instant
	stop    atomic.Bool
	blocked atomic.Pointer[string] // the broker's reason for blocking the connection, while it does
	delayed tally                  // by how much the messages left later than intended
	confirm []confirm              // scratch of listen
}

// publish runs until the limit, the end of the time or the context's, and then waits for outstanding confirms.
func (p *publisher) publish(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.c.nc.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	defer func() { p.ended.Store(p.clock.now()) }()
	err := p.flow(ctx)
	if ctx.Err() != nil {
		return nil // told to stop: whatever broke off the write is no news
	}
	if err != nil || p.gate == nil {
		return err
	}
	return p.gate.drained(ctx)
}

func (p *publisher) flow(ctx context.Context) error {
	if p.rate > 0 {
		return p.paced(ctx)
	}
	for {
		now := p.clock.now()
		n, err := p.allowed(ctx, now)
		if n == 0 || err != nil {
			return err
		}
		if p.disk != nil {
			if err := p.disk.measure(); err != nil {
				return err
			}
		}
		if p.gate != nil {
			now = p.clock.now() // the wait for room is not the broker's transit time
		}
		p.t.stamp(p.pos, int(n), now)
		if err := p.write(n, now); err != nil {
			return err
		}
	}
}

func (p *publisher) paced(ctx context.Context) error {
	s := newSchedule(p.clock.now(), p.rate, float64(p.t.batch))
	for {
		room, err := p.allowed(ctx, p.clock.now())
		if room == 0 || err != nil {
			return err
		}
		if err := p.clock.nap(p.pace, p.within(s.next())); err != nil {
			return err
		}
		if n, first := p.gather(&s, room); n > 0 {
			if err := p.write(n, first); err != nil {
				return err
			}
		}
	}
}

// within is at, but no later than the end of the time.
func (p *publisher) within(at int64) int64 {
	if p.until == 0 {
		return at
	}
	return min(at, p.until)
}

// gather stamps the messages that are due, room of them at most, and says for when the first was intended.
func (p *publisher) gather(s *schedule, room int64) (n, first int64) {
	now := p.clock.now()
	first = now
	for n < room {
		k, at := s.take(p.within(now+1)-1, room-n) // what was intended for the end of the time is too late
		if k == 0 {
			break
		}
		p.delayed.record(now-at, uint64(k))
		if p.actual {
			at = now
		}
		p.t.stamp(p.pos+int(n), int(k), at)
		first = min(first, at)
		n += k
	}
	return n, first
}

// allowed is how many messages the next write may have: 0 at the end.
func (p *publisher) allowed(ctx context.Context, now int64) (int64, error) {
	if ctx.Err() != nil || p.stop.Load() || (p.until > 0 && now >= p.until) {
		return 0, nil
	}
	n := int64(min(p.t.batch, p.t.len()-p.pos))
	if p.limit > 0 {
		n = min(n, p.limit-p.sent.Load())
	}
	if p.gate == nil || n == 0 {
		return n, nil
	}
	room, err := p.gate.room(ctx)
	return min(n, room), err
}

func (p *publisher) write(n, at int64) error {
	if p.gate != nil {
		p.gate.send(n, at)
	}
	if _, err := p.c.nc.Write(p.t.run(p.pos, int(n))); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	p.sent.Add(n)
	p.pos = (p.pos + int(n)) % p.t.len()
	return nil
}

// listen reads until the connection's read deadline, which is how it is told to stop.
func (p *publisher) listen() error {
	for {
		if err := p.drain(); err != nil {
			return fmt.Errorf("publisher: %w", err)
		}
		err := p.c.fill()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("publisher: %w", err)
		}
	}
}

// drain takes in the frames that have arrived.
func (p *publisher) drain() error {
	p.confirm = p.confirm[:0]
	for {
		f, ok, err := p.c.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if err := p.take(f); err != nil {
			return err
		}
	}
	if p.gate == nil {
		return nil
	}
	return p.gate.settle(p.confirm, p.clock.now())
}

func (p *publisher) take(f amqp.Frame) error {
	if f.Type != amqp.FrameMethod {
		return nil
	}
	c, ok, err := asConfirm(f.Payload)
	if err != nil {
		return err
	}
	if ok {
		p.confirm = append(p.confirm, c)
		return nil
	}
	m, err := amqp.ParseMethod(f.Payload)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *amqp.ConnectionBlocked:
		p.blocked.Store(&m.Reason)
	case *amqp.ConnectionUnblocked:
		p.blocked.Store(nil)
	}
	return asClosed(m)
}

// latency is the distribution of confirm latencies and the number of messages the broker refused. Publish and listen must
// have returned.
func (p *publisher) latency() (h *histogram, nacked uint64) {
	if p.gate == nil {
		return &histogram{}, 0
	}
	return &p.gate.window.latency, p.gate.window.nacked
}
