package mgmt

import (
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
		c := &crowd{most: 3, log: slog.New(slog.NewTextHandler(&log, nil)), at: map[net.Conn]state{}}
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
		for conn := range c.at {
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
