package mgmt

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// crowd bounds the connections of a server. When there are as many as there may be, the next one takes the place of the one
// that has waited for a request for longest; if all are busy, it is closed.
type crowd struct {
	most int // 0 = any number
	log  *slog.Logger

	mu     sync.Mutex // guards what follows
	at     map[net.Conn]state
	turned int       // away, since it was said last
	said   time.Time // when that was
}

// state is what a connection is at.
type state struct {
	waiting bool // for a request: its first, or the next one
	since   time.Time
}

// sayAgain is how often at most it is said that connections were closed.
const sayAgain = 10 * time.Second

// follow is told what a connection is at. It is the server's ConnState.
func (c *crowd) follow(conn net.Conn, is http.ConnState) {
	if gone := c.turn(conn, is); gone != nil {
		_ = gone.Close() // whoever serves it finds out
	}
}

// turn notes what a connection is at, and returns one that must go.
func (c *crowd) turn(conn net.Conn, is http.ConnState) (gone net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch is {
	case http.StateNew:
		if c.most > 0 && len(c.at) >= c.most {
			gone = c.idlest()
			c.say()
		}
		if gone == nil && c.most > 0 && len(c.at) >= c.most {
			return conn
		}
		delete(c.at, gone)
		c.at[conn] = state{waiting: true, since: time.Now()}
		return gone
	case http.StateIdle:
		c.at[conn] = state{waiting: true, since: time.Now()}
	case http.StateActive:
		if _, in := c.at[conn]; in {
			c.at[conn] = state{}
		}
	case http.StateHijacked, http.StateClosed:
		delete(c.at, conn)
	}
	return nil
}

// idlest returns who has waited for longest, nil if nobody waits. The caller holds mu.
func (c *crowd) idlest() (longest net.Conn) {
	var since time.Time
	for conn, s := range c.at {
		if s.waiting && (longest == nil || s.since.Before(since)) {
			longest, since = conn, s.since
		}
	}
	return longest
}

// say counts a connection that is closed, and says so if that was not done just now. The caller holds mu.
func (c *crowd) say() {
	c.turned++
	if now := time.Now(); now.Sub(c.said) >= sayAgain {
		c.log.Warn("too many HTTP connections: idle ones are closed, or else new ones", "closed", c.turned, "limits_management_connections", c.most)
		c.turned, c.said = 0, now
	}
}
