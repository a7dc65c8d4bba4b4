package wire

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/wlog"
)

// If a client leaves while its connection is handed over, the handover ends, and nothing else happens. The function that stopped it used the
// stream after that had been given up, which ended the process.
func TestHandOverIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			ctx, leave := context.WithCancel(t.Context())
			stream := &abandoned{leave: leave}
			s := newServer(t, func(o *Options) {
				o.Dial = func(context.Context, wlog.NodeID) (net.Conn, error) { return stream, nil }
			})
			owner, err := s.handOver(ctx, session.Home{Owner: ownerNode, Changed: make(chan struct{})}, &session.Handover{VHost: "/"})
			if owner != nil || !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v, %v", owner, err)
			}
			synctest.Wait()
			if !stream.stopped || !stream.closed {
				t.Errorf("the stream is left as it was: %+v", stream)
			}
		}
	})
}

// abandoned is a stream that its user leaves during a write.
type abandoned struct {
	net.Conn
	leave           func()
	stopped, closed bool
}

func (a *abandoned) Write([]byte) (int, error) {
	a.leave()
	return 0, net.ErrClosed
}

func (a *abandoned) SetDeadline(time.Time) error {
	a.stopped = true
	return nil
}

func (a *abandoned) Close() error {
	a.closed = true
	return nil
}
