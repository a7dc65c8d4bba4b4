package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// publisher sends the messages of a template over its own connection. One goroutine publishes; another listens for confirms and for
// errors from the broker.
type publisher struct {
	c     *conn
	t     *template
	clock clock
	pace  pacer
	gate  *gate // nil without confirms
	disk  *disk // measured before each write; nil = not measured

	limit  int64   // in messages; 0 = none
	until  int64   // instant at which it ends; 0 = none
	rate   float64 // messages per second; 0 = as fast as the broker accepts them
	actual bool    // stamp with the time of writing instead of the intended time

	pos      int // of the next message in the template
	sent     atomic.Int64
	ended    atomic.Int64 // instant
	stop     atomic.Bool
	blocked  atomic.Pointer[string] // the broker's reason while the connection is blocked; nil = it is not
	delayed  tally                  // how much later than intended messages were sent
	confirms []confirm              // reused by listen
}

// publish publishes until limit, until or the end of ctx, and then waits for outstanding confirms.
func (p *publisher) publish(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.c.nc.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	defer func() { p.ended.Store(p.clock.now()) }()
	err := p.flow(ctx)
	if ctx.Err() != nil {
		return nil // ctx interrupted the write
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
			now = p.clock.now() // the latency does not include the wait for confirms
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

// within returns at, or until if that is earlier.
func (p *publisher) within(at int64) int64 {
	if p.until == 0 {
		return at
	}
	return min(at, p.until)
}

// gather stamps the messages that are due, at most space, and returns when the first of them was intended.
func (p *publisher) gather(s *schedule, space int64) (n, first int64) {
	now := p.clock.now()
	first = now
	for n < space {
		k, at := s.take(p.within(now+1)-1, space-n) // messages intended for the instant until are not sent
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

// allowed returns how many messages the next write may contain; 0 at the end.
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

// listen reads until the connection's read deadline, which stop sets.
func (p *publisher) listen() error {
	if err := p.c.serve(p.drain); err != nil {
		return fmt.Errorf("publisher: %w", err)
	}
	return nil
}

// drain processes the frames that have arrived.
func (p *publisher) drain() error {
	p.confirms = p.confirms[:0]
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
	return p.gate.settle(p.confirms, p.clock.now())
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
		p.confirms = append(p.confirms, c)
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

// latency returns the confirm latencies and the number of refused messages. It is called after publish and listen have returned.
func (p *publisher) latency() (h *histogram, nacked uint64) {
	if p.gate == nil {
		return &histogram{}, 0
	}
	return &p.gate.window.latency, p.gate.window.nacked
}
