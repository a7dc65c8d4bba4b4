package mgmt

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// crowd bounds the connections of a server. When there are as many as there may be, the next one takes the place of the one
// that has waited for a request for longest. If all are busy, which they are too while they do not send what their requests say
// they have, it takes that of the one that has been so for longest of the source that has most of them; it is closed if that is its own.
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
	source  netip.Prefix
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
			if gone = c.idlest(); gone == nil {
				gone = c.busiest(sourceOf(conn))
			}
			c.say()
		}
		if gone == nil && c.most > 0 && len(c.at) >= c.most {
			return conn
		}
		delete(c.at, gone)
		c.at[conn] = state{waiting: true, since: time.Now(), source: sourceOf(conn)}
		return gone
	case http.StateIdle, http.StateActive:
		if s, in := c.at[conn]; in { // else it had to go
			c.at[conn] = state{waiting: is == http.StateIdle, since: time.Now(), source: s.source}
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

// busiest returns who of the source with most connections has been at a request for longest, nil if one from here would make
// its own the one with most. The caller holds mu.
func (c *crowd) busiest(here netip.Prefix) (longest net.Conn) {
	of := map[netip.Prefix]int{}
	for _, s := range c.at {
		of[s.source]++
	}
	most := 0
	for _, n := range of {
		most = max(most, n)
	}
	if most <= of[here]+1 {
		return nil
	}
	var since time.Time
	for conn, s := range c.at {
		if of[s.source] == most && (longest == nil || s.since.Before(since)) {
			longest, since = conn, s.since
		}
	}
	return longest
}

// sourceOf is where a connection comes from: an address, of IPv6 the network that one machine has at least.
func sourceOf(conn net.Conn) netip.Prefix {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{}
	}
	address := at.Addr().Unmap().WithZone("")
	prefix, _ := address.Prefix(min(address.BitLen(), 64)) // it has as many
	return prefix
}

// say counts a connection that is closed, and says so if that was not done just now. The caller holds mu.
func (c *crowd) say() {
	c.turned++
	if now := time.Now(); now.Sub(c.said) >= sayAgain {
		c.log.Warn("too many HTTP connections: idle ones are closed, or else new ones", "closed", c.turned, "limits_management_connections", c.most)
		c.turned, c.said = 0, now
	}
}
