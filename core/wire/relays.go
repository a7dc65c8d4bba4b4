package wire

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/wlog"
)

// relays holds the connections that other nodes serve, by vhost. For each vhost with such
// connections, a goroutine waits for a change of its owner, because the old owner may be
// unable to end its connections.
type relays struct {
	buffered atomic.Int64 // bytes of buffers for bytes from owners

	mu     sync.Mutex // guards the fields below
	of     map[string]*relayedVHost
	begun  uint64
	closed Traffic // traffic of connections that have ended
}

// relayedVHost are the relayed connections to a vhost.
type relayedVHost struct {
	conns map[*conn]struct{}
	empty chan struct{} // closed when the last one has left
}

// ownerless is how long this node may know no owner of a vhost before the vhost's relayed
// connections end. By then the owner has been silent for one to two election timeouts, and
// its clients would wait in vain. If a shard is transferred, the next owner follows sooner,
// and the old owner has time to close its clients' connections itself.
const ownerless = 100 * time.Millisecond

func (s *relays) enter(srv *Server, c *conn) {
	vhost := c.relay.Load().VHost
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.of[vhost]
	if v == nil {
		v = &relayedVHost{conns: map[*conn]struct{}{}, empty: make(chan struct{})}
		if s.of == nil {
			s.of = map[string]*relayedVHost{}
		}
		s.of[vhost] = v
		srv.running.Go(func() { srv.watch(vhost, v) })
	}
	v.conns[c] = struct{}{}
	s.begun++
}

// leave removes a connection, unless that has been done before.
func (s *relays) leave(c *conn) {
	vhost := c.relay.Load().VHost
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.of[vhost]
	if v == nil {
		return
	}
	if _, ok := v.conns[c]; !ok {
		return
	}
	s.closed.add(&c.traffic)
	delete(v.conns, c)
	if len(v.conns) == 0 {
		delete(s.of, vhost)
		close(v.empty)
	}
}

func (s *relays) all() (all []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.of {
		for c := range v.conns {
			all = append(all, c)
		}
	}
	return all
}

// unlessOwned ends the vhost's connections that are relayed to a node other than owner; 0 ends all of them. A node that has just lost the
// vhost has a moment to close its connections itself.
func (s *relays) unlessOwned(v *relayedVHost, owner wlog.NodeID) {
	most := brokenFor
	if owner == 0 {
		most = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range v.conns {
		if r := c.relay.Load(); r.node != owner {
			c.leaveOwner(r, most)
		}
	}
}

// watch ends the relayed connections to a vhost whenever its owner changes. It returns when there are none left.
func (s *Server) watch(vhost string, v *relayedVHost) {
	timer := time.NewTimer(ownerless)
	defer timer.Stop()
	for owned := true; ; {
		home, known := s.options.Session.Home(vhost)
		was := owned
		if owned = known && (home.Here || home.Owner != 0); owned {
			timer.Stop()
			s.relays.unlessOwned(v, home.Owner)
		} else if was {
			timer.Reset(ownerless)
		}
		select {
		case <-v.empty:
			return
		case <-home.Changed:
		case <-timer.C:
			s.relays.unlessOwned(v, 0)
			timer.Reset(ownerless)
		}
	}
}

// RelayTotals counts the connections that other nodes serve.
type RelayTotals struct {
	Open    int
	Begun   uint64  // since the server was made
	Traffic Traffic // of the clients' sockets, including handshakes
}

// RelayTotals returns the current totals.
func (s *Server) RelayTotals() RelayTotals {
	r := &s.relays
	r.mu.Lock()
	defer r.mu.Unlock()
	t := RelayTotals{Begun: r.begun, Traffic: r.closed}
	for _, v := range r.of {
		t.Open += len(v.conns)
		for c := range v.conns {
			t.Traffic.add(&c.traffic)
		}
	}
	return t
}

// RelayedConn is a client's connection that another node serves. Any goroutine may use it, even after the connection has ended. The serving
// node lists it as open, with the client's address and with [session.ConnInfo.Front], and counts its messages.
type RelayedConn struct {
	*session.Handover
	Node wlog.NodeID
	conn *conn
}

// Traffic returns the traffic of the client's socket.
func (c RelayedConn) Traffic() Traffic {
	var t Traffic
	t.add(&c.conn.traffic)
	return t
}

// Relayed lists the connections that other nodes serve, sorted by vhost and address of the client.
func (s *Server) Relayed() []RelayedConn {
	var all []RelayedConn
	for _, c := range s.relays.all() {
		r := c.relay.Load()
		all = append(all, RelayedConn{r.Handover, r.node, c})
	}
	slices.SortFunc(all, func(a, b RelayedConn) int {
		return cmp.Or(cmp.Compare(a.VHost, b.VHost), cmp.Compare(a.Peer.Address, b.Peer.Address))
	})
	return all
}
