package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// lease is the prober's knowledge about one queue's lease. Values are instants; 0 = not
// yet.
type lease struct {
	asked, answered int64 // the declaration was sent and answered: the lease began in between
	alive           int64 // a probe sent then found the queue
	gone            int64 // a probe answered then did not
}

// prober finds out when queues are deleted, without renewing their leases. A declaration,
// even a passive one, and basic.get renew a lease, and a consumer suspends it, but
// publishing does neither. So the prober publishes one byte with mandatory set, through the
// default exchange, to each watched queue whose lease is about to end, in rounds of at
// least a millisecond. If the broker returns a message with basic.return, its queue is
// deleted. Publisher confirms follow the returns and end the round. So each deletion lies
// between the start of the last round that found the queue and the answer of the first that
// did not.
type prober struct {
	s      *session
	c      *conn
	pace   pacer
	gate   *window
	leases []lease // in the order of their declaration
	byName map[string]int
	begun  int   // leases[:begun] are near their end, or past it
	open   []int // those of leases[:begun] that are not deleted yet
	out    []byte
}

const (
	rounds = time.Millisecond      // between the starts of two rounds
	margin = 20 * time.Millisecond // how long before the end of a lease its first round is, so that a deletion that is too early is seen
)

func (s *session) newProber(ctx context.Context) (*prober, error) {
	pace, err := s.pace()
	if err != nil {
		return nil, err
	}
	c, err := s.open(ctx, s.o.broker)
	if err != nil {
		return nil, errors.Join(err, pace.Close())
	}
	n := min(s.o.sample, s.o.queues)
	p := &prober{s: s, c: c, pace: pace, gate: newWindow(n), leases: make([]lease, n), byName: make(map[string]int)}
	for i := range p.leases {
		p.byName[s.prefix+p.name(i)] = i
	}
	if err := c.confirms(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *prober) name(i int) string { return "w" + strconv.Itoa(i) }

// declare declares a watched queue for each value from turns, until turns is closed.
func (p *prober) declare(turns <-chan struct{}) error {
	i := 0
	for range turns {
		p.leases[i].asked = p.s.clock.now()
		if _, err := p.c.declare(*p.s.leased(p.name(i))); err != nil {
			return err
		}
		p.leases[i].answered = p.s.clock.now()
		i++
	}
	return nil
}

func (p *prober) close() error { return errors.Join(p.c.close(), p.pace.Close()) }

// watch runs until every watched queue is deleted, or until patience after the last lease should have ended.
func (p *prober) watch(ctx context.Context) error {
	last := p.due(len(p.leases) - 1)
	for ctx.Err() == nil {
		now := p.s.clock.now()
		p.admit(now)
		if len(p.open) == 0 && p.begun == len(p.leases) {
			return nil
		}
		if now > last+int64(patience) {
			return nil // the report counts the queues that are left
		}
		if err := p.round(now); err != nil {
			return err
		}
		if err := p.s.clock.nap(p.pace, p.wake(now)); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// due returns the earliest instant at which lease i may end.
func (p *prober) due(i int) int64 { return p.leases[i].asked + p.s.leaseTime() }

func (p *prober) admit(now int64) {
	for p.begun < len(p.leases) && p.due(p.begun)-int64(margin) <= now {
		p.open = append(p.open, p.begun)
		p.begun++
	}
}

// wake returns when the next round is to begin.
func (p *prober) wake(now int64) int64 {
	if len(p.open) == 0 && p.begun < len(p.leases) {
		return p.due(p.begun) - int64(margin)
	}
	return now + int64(rounds)
}

// round probes every open queue once.
func (p *prober) round(now int64) error {
	if len(p.open) == 0 {
		return nil
	}
	p.out = p.out[:0]
	for _, i := range p.open {
		p.out = amqp.AppendMethod(p.out, channel, &amqp.BasicPublish{RoutingKey: p.s.prefix + p.name(i), Mandatory: true})
		p.out = amqp.AppendContentHeader(p.out, channel, 1, []byte{0, 0})
		p.out = amqp.AppendBody(p.out, channel, []byte{0}, p.c.frameMax)
	}
	p.gate.send(uint64(len(p.open)), now)
	if _, err := p.c.nc.Write(p.out); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	for p.gate.outstanding() > 0 {
		if err := p.answer(); err != nil {
			return fmt.Errorf("probe: %w", err)
		}
	}
	p.sort(now)
	return nil
}

// answer processes one frame.
func (p *prober) answer() error {
	f, err := p.c.frame()
	if err != nil || f.Type != amqp.FrameMethod {
		return err // the content of a returned message is ignored
	}
	now := p.s.clock.now()
	c, ok, err := asConfirm(f.Payload)
	if err != nil {
		return err
	}
	if ok {
		return p.gate.settle(c.tag, c.multiple, c.nack, now)
	}
	return p.returned(f.Payload, now)
}

func (p *prober) returned(payload []byte, now int64) error {
	m, err := amqp.ParseMethod(payload)
	if err != nil {
		return err
	}
	back, ok := m.(*amqp.BasicReturn)
	if !ok {
		return asClosed(m)
	}
	i, ok := p.byName[back.RoutingKey]
	if !ok {
		return fmt.Errorf("the broker returned a message to %q, which was not probed", back.RoutingKey)
	}
	p.leases[i].gone = now
	return nil
}

// sort removes the queues that were deleted. The others were found by the round that began at begin.
func (p *prober) sort(begin int64) {
	open := p.open[:0]
	for _, i := range p.open {
		if p.leases[i].gone > 0 {
			continue
		}
		p.leases[i].alive = begin
		open = append(open, i)
	}
	p.open = open
}

// report attributes the uncertainty to the broker: lateness is measured from the earliest
// instant at which the lease can have ended to the answer that found the queue deleted. The
// true lateness may be smaller by up to the reported uncertainty.
func (p *prober) report(r *report) {
	var late, doubt histogram
	for i, q := range p.leases {
		if q.gone == 0 {
			continue
		}
		latest := q.gone - p.due(i)
		late.record(latest, 1)
		if q.alive > 0 {
			doubt.record(latest-(q.alive-q.answered-p.s.leaseTime()), 1)
		}
	}
	r.add("watched", "watched until their end", int64(len(p.leases)), "queues")
	r.add("remaining", "still there at the end", int64(len(p.leases))-int64(late.n), "queues")
	r.quantiles("lateness", "lateness of deletion", &late)
	if late.n > 0 {
		r.add("earliest_ms", "earliest", millis(late.min), "ms")
		r.add("early", "gone before their time", int64(late.negative()), "queues")
	}
	r.quantiles("uncertainty", "of which uncertain", &doubt)
}

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
