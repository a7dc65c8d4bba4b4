package broker

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// caller is a listener that accepts one connection.
type caller struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (c caller) Accept() (net.Conn, error) {
	select {
	case conn := <-c.conn:
		return conn, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

func (c caller) Close() error   { close(c.closed); return nil }
func (c caller) Addr() net.Addr { return &net.TCPAddr{} }

// A request that never ends, or is never answered, held up the broker's end for as long as connections may take to close, and made the end
// a failure.
func TestRequestsDoNotHoldUpTheEnd(t *testing.T) {
	for _, request := range []string{"GET /api/definitions HTTP/1.1\r\nHost: x\r\n\r\n", "GET /api/defin"} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			l := caller{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
			l.conn <- theirs
			m := &management{failed: make(chan error, 1), listeners: []managementListener{{Listener: l, protocol: "http"}}}
			m.serve(slog.New(slog.DiscardHandler))
			m.api.set(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
			fmt.Fprint(ours, request)
			synctest.Wait()
			began := time.Now()
			m.shutdown(t.Context())
			if took := time.Since(began); took > lastAnswers {
				t.Errorf("%q: it took %v", request, took)
			}
			_, _ = io.Copy(io.Discard, ours) // until the connection is cut off
		})
	}
}
