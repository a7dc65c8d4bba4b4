package wire

import (
	"cmp"
	"crypto/tls"
	"slices"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/session"
)

// traffic counts what goes over a socket. Reader and writer count, anybody reads.
type traffic struct{ reads, bytesIn, writes, bytesOut atomic.Uint64 }

func (t *traffic) read(n int) {
	t.reads.Add(1)
	t.bytesIn.Add(uint64(n))
}

func (t *traffic) write(n int) {
	t.writes.Add(1)
	t.bytesOut.Add(uint64(n))
}

// Traffic is what went over a connection so far. With TLS, bytes are those before encryption.
type Traffic struct{ Reads, BytesIn, Writes, BytesOut uint64 }

func (t *Traffic) add(of *traffic) {
	t.Reads += of.reads.Load()
	t.BytesIn += of.bytesIn.Load()
	t.Writes += of.writes.Load()
	t.BytesOut += of.bytesOut.Load()
}

// Traffic returns what went over all connections since the server was made.
func (s *Server) Traffic() Traffic {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.closedTraffic
	for c := range s.conns {
		sum.add(&c.traffic)
	}
	return sum
}

// OpenConn is an open connection, for those who look at it. Any goroutine may use it, also when it has ended.
type OpenConn struct {
	*session.ConnInfo
	conn *conn
}

// OpenConns lists the open connections, the oldest first. One that is closed by either side is gone at once, whatever its client does
// with the socket.
func (s *Server) OpenConns() []OpenConn {
	s.mu.Lock()
	conns := s.all()
	s.mu.Unlock()
	links := make([]OpenConn, 0, len(conns))
	for _, c := range conns {
		if c.session.IsOpen() {
			links = append(links, OpenConn{c.session.Info(), c})
		}
	}
	slices.SortFunc(links, func(a, b OpenConn) int { return cmp.Compare(a.ID, b.ID) })
	return links
}

// Session is what the connection is at.
func (l OpenConn) Session() *session.Conn { return l.conn.session }

// Traffic returns what went over the connection so far.
func (l OpenConn) Traffic() Traffic {
	var t Traffic
	t.add(&l.conn.traffic)
	return t
}

// TLS returns what was negotiated; ok is false if the connection is not encrypted.
func (l OpenConn) TLS() (state tls.ConnectionState, ok bool) {
	c, ok := l.conn.socket.(*tls.Conn)
	if !ok {
		return tls.ConnectionState{}, false
	}
	return c.ConnectionState(), true
}

// Sessions is what all connections have in common.
func (s *Server) Sessions() *session.Server { return s.sessions }
