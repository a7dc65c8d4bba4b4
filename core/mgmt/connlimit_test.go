package mgmt

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Connections to the management API had no limit. The one that is idle for longest makes room, else the new one is refused.
func TestTooManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		c := &connLimiter{limit: 3, log: slog.New(slog.NewTextHandler(&log, nil)), conns: map[net.Conn]connState{}}
		var ends []net.Conn
		enter := func() net.Conn {
			near, far := net.Pipe()
			ends = append(ends, near)
			c.follow(far, http.StateNew)
			time.Sleep(time.Second)
			return far
		}
		closed := func(n int) bool {
			_ = ends[n].SetReadDeadline(time.Now())
			_, err := ends[n].Read(make([]byte, 1))
			timeout, ok := err.(net.Error) //nolint:errorlint // a pipe's
			return !ok || !timeout.Timeout()
		}
		first, second := enter(), enter()
		c.follow(first, http.StateActive)
		c.follow(first, http.StateIdle)
		enter()
		if enter(); !closed(1) || closed(0) || closed(2) || closed(3) {
			t.Error("not the one that was idle for longest had to go")
		}
		c.follow(second, http.StateActive) // it is gone
		c.follow(second, http.StateClosed)
		for conn := range c.conns {
			c.follow(conn, http.StateActive)
		}
		if enter(); !closed(4) || closed(0) || closed(2) || closed(3) {
			t.Error("not the new one had to go while all others are busy")
		}
		c.follow(first, http.StateClosed)
		if enter(); closed(5) {
			t.Error("there is no room after one has gone")
		}
		if n := strings.Count(log.String(), "too many HTTP connections"); n != 1 {
			t.Errorf("it was said %d times, want once", n)
		}
	})
}

// from is a connection from somewhere.
type from struct {
	net.Conn
	at     net.Addr
	closed bool
}

func (f *from) RemoteAddr() net.Addr { return f.at }
func (f *from) Close() error         { f.closed = true; return nil }

// A stranger kept all connections busy with requests that lacked their bodies, and the connections of all other clients were closed.
func TestStrangersDoNotTakeAllConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &connLimiter{limit: 10, log: slog.New(slog.DiscardHandler), conns: map[net.Conn]connState{}}
		enter := func(address string) *from {
			conn := &from{at: &net.TCPAddr{IP: net.ParseIP(address), Port: 1}}
			c.follow(conn, http.StateNew)
			c.follow(conn, http.StateActive)
			time.Sleep(time.Second)
			return conn
		}
		stranger := func(i int) string { return fmt.Sprintf("2001:db8::%d", i) } // of one network
		var strangers, others []*from
		for i := range 12 {
			strangers = append(strangers, enter(stranger(i)))
		}
		if !strangers[10].closed || !strangers[11].closed || strangers[0].closed {
			t.Error("the last ones of a source that has them all are not turned away")
		}
		for i := range 4 {
			others = append(others, enter(fmt.Sprintf("192.0.2.%d", i)))
			if others[i].closed || !strangers[i].closed {
				t.Errorf("client %d: closed is %v; the oldest of the stranger's: %v", i, others[i].closed, strangers[i].closed)
			}
			c.follow(strangers[i], http.StateClosed)
		}
		if conn := enter(stranger(99)); !conn.closed || others[0].closed {
			t.Error("a stranger with most connections got one more")
		}
		if len(c.conns) != 10 {
			t.Errorf("%d connections are counted", len(c.conns))
		}
	})
}
