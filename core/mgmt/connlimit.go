package mgmt

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// connLimiter limits the connections of a server. A new connection beyond the limit replaces the one that has been idle for longest. If
// none is idle (a connection with half a request counts as busy), it replaces the connection that has been busy for longest, of the source
// with the most connections. If that source is the new connection's own, the new connection is closed.
type connLimiter struct {
	limit int // 0 = any number
	log   *slog.Logger

	mu     sync.Mutex // guards the fields below
	conns  map[net.Conn]connState
	closed int       // since the last log line
	logged time.Time // of that line
}

// connState says since when a connection is idle or busy.
type connState struct {
	idle   bool // it waits for its first request, or the next one
	since  time.Time
	source netip.Prefix
}

// logEvery is how often at most closed connections are logged.
const logEvery = 10 * time.Second

// follow is the server's ConnState.
func (l *connLimiter) follow(conn net.Conn, state http.ConnState) {
	if victim := l.update(conn, state); victim != nil {
		_ = victim.Close() // its goroutine notices
	}
}

// update notes the state of a connection, and returns one to close.
func (l *connLimiter) update(conn net.Conn, state http.ConnState) (victim net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateNew:
		source := sourceOf(conn)
		if l.limit > 0 && len(l.conns) >= l.limit {
			l.logClosed()
			if victim = l.victim(source); victim == nil {
				return conn
			}
			delete(l.conns, victim)
		}
		l.conns[conn] = connState{idle: true, since: time.Now(), source: source}
	case http.StateIdle, http.StateActive:
		if s, in := l.conns[conn]; in { // else it is being closed
			l.conns[conn] = connState{idle: state == http.StateIdle, since: time.Now(), source: s.source}
		}
	case http.StateHijacked, http.StateClosed:
		delete(l.conns, conn)
	}
	return victim
}

// victim returns the connection that a new one from source replaces; nil if it replaces none. The caller holds mu.
func (l *connLimiter) victim(source netip.Prefix) net.Conn {
	if idle := l.longest(func(s connState) bool { return s.idle }); idle != nil {
		return idle
	}
	perSource, most := map[netip.Prefix]int{}, 0
	for _, s := range l.conns {
		perSource[s.source]++
		most = max(most, perSource[s.source])
	}
	if most <= perSource[source]+1 {
		return nil
	}
	return l.longest(func(s connState) bool { return perSource[s.source] == most })
}

// longest returns the matching connection that has been in its state for longest. The caller holds mu.
func (l *connLimiter) longest(matches func(connState) bool) (longest net.Conn) {
	var since time.Time
	for conn, s := range l.conns {
		if matches(s) && (longest == nil || s.since.Before(since)) {
			longest, since = conn, s.since
		}
	}
	return longest
}

// sourceOf returns the address of a connection's client or, with IPv6, the smallest network that a provider gives one client.
func sourceOf(conn net.Conn) netip.Prefix {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{}
	}
	address := at.Addr().Unmap().WithZone("")
	prefix, _ := address.Prefix(min(address.BitLen(), 64)) // an address has that many bits
	return prefix
}

// logClosed counts a connection that is closed, and logs the number now and then. The caller holds mu.
func (l *connLimiter) logClosed() {
	l.closed++
	if now := time.Now(); now.Sub(l.logged) >= logEvery {
		l.log.Warn("too many HTTP connections: idle ones are closed, or else new ones", "closed", l.closed, "limits_management_connections", l.limit)
		l.closed, l.logged = 0, now
	}
}
