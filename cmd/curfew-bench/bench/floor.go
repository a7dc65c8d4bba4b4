package bench

import (
	"context"
	"fmt"
)

func floorFlags(f flags) {
	f.sized(16, 0)
	f.batched(1)
	f.paced()
	f.lasting()
	f.o.publishers, f.o.consumers, f.o.queues = 1, 1, 1
}

// floor loads a relay in the same way as other scenarios load a broker, and samples the relay's process.
type floor struct{ *load }

func startFloor(l *load) measurement { return floor{l} }

func (l floor) run(ctx context.Context) error {
	r, err := l.relay()
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	l.cleanUp(r.stop)
	l.o.pid = int64(r.pid)
	l.sample(&l.start)
	from, err := l.plain(ctx, r.addr) // first, because the relay reads from its first client
	if err != nil {
		return err
	}
	c := l.content([]string{l.prefix + "0"}, 0)
	c.delivered = true
	p, err := l.f.publisherOn(from, c, 0)
	if err != nil {
		return err
	}
	to, err := l.plain(ctx, r.addr)
	if err != nil {
		return err
	}
	l.f.start(l.f.consumer(to).run)
	if err := l.assign(p, 0); err != nil {
		return err
	}
	return l.measured(l.consumed)
}

// plain opens a connection without a handshake.
func (e *env) plain(ctx context.Context, addr string) (*conn, error) {
	nc, err := e.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &conn{nc: nc, in: make([]byte, readSize), frameMax: frameMax, relayed: true}, nil
}
