package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// client keeps a connection to one of several addresses. One goroutine runs it.
type client struct {
	f     *failover
	nodes targets
	at    int                                      // index of the address to try next
	use   func(ctx context.Context, c *conn) error // returns when the connection or ctx ends
	ended chan struct{}

	connections atomic.Int64
	address     atomic.Pointer[string] // of the last connection
	problem     atomic.Pointer[error]  // the last error
}

func (f *failover) client(at int, use func(context.Context, *conn) error) *client {
	return &client{f: f, nodes: f.o.nodes(), at: at, use: use, ended: make(chan struct{})}
}

// run connects, uses the connection, and connects to the next address, until ctx ends.
func (k *client) run(ctx context.Context) {
	defer close(k.ended)
	for failed := 0; ctx.Err() == nil; {
		t := &k.nodes[k.at]
		c, err := k.f.openWithin(ctx, *t, readSize, k.f.o.giveUp)
		if err == nil {
			failed = 0
			k.connections.Add(1)
			k.address.Store(&t.addr)
			err = k.use(ctx, c)
			_ = c.nc.Close() // its error would not help
		}
		if err != nil && ctx.Err() == nil {
			k.problem.Store(&err)
		}
		k.at = (k.at + 1) % len(k.nodes)
		if failed++; failed >= len(k.nodes) {
			k.f.sleep(ctx, retryRest)
		}
	}
}

// where returns the address of the client's connection, or of its last one; "" = there was none.
func (k *client) where() string {
	if at := k.address.Load(); at != nil {
		return *at
	}
	return ""
}

// last returns the text of the client's last error.
func (k *client) last() string {
	if err := k.problem.Load(); err != nil {
		return (*err).Error()
	}
	return "no error"
}

// serveOwed calls drain at first and after each read, until drain or the connection fails. If the broker is silent for limit while owed
// returns true, serveOwed gives up.
func (c *conn) serveOwed(limit time.Duration, drain func() error, owed func() bool) error {
	for {
		if err := drain(); err != nil {
			return err
		}
		if err := c.nc.SetReadDeadline(time.Now().Add(limit)); err != nil {
			return err
		}
		switch err := c.fill(); {
		case errors.Is(err, os.ErrDeadlineExceeded) && owed():
			return fmt.Errorf("the broker was silent for %v", limit)
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err != nil:
			return err
		}
	}
}

// stream publishes on one connection.
type stream struct {
	f *failover
	c *conn
	t *template

	mu      sync.Mutex // guards waiting
	waiting unconfirmed
	moved   chan struct{} // holds one token: sent when confirms were processed
	failed  chan struct{} // closed when the reading goroutine has ended
	err     error         // of the reading goroutine; valid when failed is closed
}

// publish publishes until the connection or ctx ends. If ctx has ended, it waits for the outstanding confirms.
func (f *failover) publish(ctx context.Context, c *conn) error {
	if err := c.within(f.o.giveUp, c.confirms); err != nil {
		return err
	}
	s := &stream{f: f, c: c, moved: make(chan struct{}, 1), failed: make(chan struct{}), waiting: unconfirmed{l: &f.ledger}}
	s.t = newTemplate(content{keys: []string{f.queue}, size: int(f.o.size), persistent: f.o.persistent, batch: int(f.o.batch), ttl: -1, frameMax: c.frameMax})
	go func() {
		defer close(s.failed)
		s.err = c.serveOwed(f.o.giveUp, s.drain, func() bool { return s.outstanding() > 0 })
	}()
	err := s.write(ctx)
	if ctx.Err() != nil {
		s.await(context.WithoutCancel(ctx), int(f.o.confirm))
	}
	_ = c.nc.Close()
	<-s.failed
	return errors.Join(err, s.err)
}

func (s *stream) outstanding() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting.left
}

// await waits until n more messages may be published. It returns false if the connection or ctx has ended.
func (s *stream) await(ctx context.Context, n int) bool {
	for s.outstanding()+n > int(s.f.o.confirm) {
		select {
		case <-s.moved:
		case <-s.failed:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

func (s *stream) write(ctx context.Context) error {
	pace, err := s.f.pace()
	if err != nil {
		return err
	}
	defer func() { _ = pace.Close() }()
	n := min(s.t.batch, int(s.f.o.confirm))
	plan := newSchedule(s.f.clock.now(), max(1, float64(s.f.o.rate)), float64(n))
	for pos := 0; s.await(ctx, n); pos = (pos + n) % (s.t.len() / n * n) {
		if s.f.o.rate > 0 {
			if err := s.turn(ctx, pace, &plan, n); err != nil {
				return err
			}
		}
		if err := s.send(pos, n); err != nil {
			return err
		}
	}
	return nil
}

// turn waits until the next n messages are due.
func (s *stream) turn(ctx context.Context, pace pacer, plan *schedule, n int) error {
	for due := 0; due < n && ctx.Err() == nil; {
		k, at := plan.take(s.f.clock.now(), int64(n-due))
		due += int(k)
		if k > 0 {
			continue
		}
		if err := s.f.clock.nap(pace, at); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) send(pos, n int) error {
	first := s.f.ledger.publish(n)
	for i := range n {
		binary.BigEndian.PutUint64(s.t.buf[s.t.stamps[pos+i]:], first+uint64(i))
	}
	s.mu.Lock()
	s.waiting.send(first, n)
	s.mu.Unlock()
	if err := s.c.nc.SetWriteDeadline(time.Now().Add(s.f.o.giveUp)); err != nil {
		return err
	}
	_, err := s.c.nc.Write(s.t.run(pos, n))
	return err
}

// drain processes the confirms that have arrived.
func (s *stream) drain() error {
	news := false
	for {
		f, ok, err := s.c.next()
		if err != nil || !ok {
			return s.settled(news, err)
		}
		if f.Type != amqp.FrameMethod {
			continue
		}
		c, ok, err := asConfirm(f.Payload)
		if err != nil {
			return err
		}
		if !ok {
			if err := complaint(f.Payload); err != nil {
				return s.settled(news, err)
			}
			continue
		}
		s.mu.Lock()
		s.waiting.settle(c)
		s.mu.Unlock()
		news = news || !c.nack
	}
}

// settled records the time if messages were confirmed, and wakes await.
func (s *stream) settled(news bool, err error) error {
	if news {
		s.f.confirms.event(s.f.clock.now())
	}
	select {
	case s.moved <- struct{}{}:
	default:
	}
	return err
}

// consume consumes until the connection or ctx ends.
func (f *failover) consume(ctx context.Context, c *conn) error {
	k := &consumer{c: c}
	k.ackEvery = 1
	if err := c.within(f.o.giveUp, func() error { return k.subscribe(f.o.prefetch, f.queue) }); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.nc.Close() })
	defer stop()
	return c.serveOwed(f.o.giveUp, func() error { return f.take(k) }, func() bool { return f.ledger.missing() > 0 })
}

// take records the deliveries that have arrived, and acknowledges them.
func (f *failover) take(k *consumer) error {
	n := 0
	for {
		frame, ok, err := k.c.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		done, err := k.d.take(frame)
		if err != nil {
			return err
		}
		if done && k.d.has {
			f.ledger.mark(uint64(k.d.stamp), came)
			n++
		}
	}
	if n == 0 {
		return nil
	}
	f.delivered.event(f.clock.now())
	if err := k.c.nc.SetWriteDeadline(time.Now().Add(f.o.giveUp)); err != nil {
		return err
	}
	_, err := k.c.nc.Write(amqp.AppendAck(nil, channel, k.d.tag, true))
	return err
}
