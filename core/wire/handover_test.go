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

// A handover that nobody needs any more, because the client has gone while its connection is handed over, ends; and nothing more. What stopped
// it went on with the stream when that had been given up, which ended the process.
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

// abandoned is a stream whose user leaves while something is written to it.
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
