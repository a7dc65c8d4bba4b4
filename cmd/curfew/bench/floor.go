package bench

import (
	"context"
	"errors"
)

func floorFlags(f flags) {
	f.sized(16, 0)
	f.batched(1)
	f.paced()
	f.lasting()
	f.o.publishers, f.o.consumers, f.o.queues = 1, 1, 1
}

// RunFloor loads a relay as it would a broker. The relay's process is watched as the broker's is.
func runFloor(ctx context.Context, s *session) (*report, error) {
	r, err := s.relay()
	if err != nil {
		return nil, err
	}
	s.o.pid = int64(r.pid)
	l := load{s: s, f: s.newFleet(ctx)}
	err = l.relay(ctx, r.addr)
	if e := l.f.stop(); err == nil {
		err = e
	}
	if err := errors.Join(err, r.stop()); err != nil {
		return nil, err
	}
	return l.report(), nil
}

func (l *load) relay(ctx context.Context, addr string) error {
	var err error
	if l.s.start, err = l.s.usage(); err != nil {
		return err
	}
	from, err := l.s.plain(ctx, addr) // first: the relay reads from the first that comes
	if err != nil {
		return err
	}
	c := l.s.content([]string{l.s.prefix + "0"}, 0)
	c.delivered = true
	p, err := l.f.publisherOn(from, c, 0)
	if err != nil {
		return err
	}
	to, err := l.s.plain(ctx, addr)
	if err != nil {
		return err
	}
	l.f.start(l.f.consumer(to).run)
	if err := l.share(p, 0); err != nil {
		return err
	}
	return l.measured()
}

// Plain is a connection without a handshake.
func (e *env) plain(ctx context.Context, addr string) (*conn, error) {
	nc, err := e.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &conn{nc: nc, in: make([]byte, readSize), frameMax: frameMax, relayed: true}, nil
}
