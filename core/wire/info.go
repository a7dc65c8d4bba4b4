package wire

import (
	"cmp"
	"crypto/tls"
	"slices"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/session"
)

// traffic counts the bytes of a socket. Its reader and its writer count; any goroutine may read it.
type traffic struct{ reads, bytesIn, writes, bytesOut atomic.Uint64 }

func (t *traffic) read(n int) {
	t.reads.Add(1)
	t.bytesIn.Add(uint64(n))
}

func (t *traffic) wrote(n int) {
	t.writes.Add(1)
	t.bytesOut.Add(uint64(n))
}

// Traffic counts the bytes read and written so far. With TLS, they are counted before encryption.
type Traffic struct{ Reads, BytesIn, Writes, BytesOut uint64 }

func (t *Traffic) add(o *traffic) {
	t.Reads += o.reads.Load()
	t.BytesIn += o.bytesIn.Load()
	t.Writes += o.writes.Load()
	t.BytesOut += o.bytesOut.Load()
}

// Traffic returns the traffic of all connections since the server was made.
func (s *Server) Traffic() Traffic {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.closedTraffic
	for c := range s.conns {
		sum.add(&c.traffic)
	}
	return sum
}

// OpenConn is an open connection. Any goroutine may use it, even after the connection has ended.
type OpenConn struct {
	*session.ConnInfo
	conn *conn
}

// OpenConns lists the open connections, the oldest first. It omits a connection as soon as either side has closed it, even if the
// client leaves the socket open.
func (s *Server) OpenConns() []OpenConn {
	s.mu.Lock()
	conns := s.all()
	s.mu.Unlock()
	open := make([]OpenConn, 0, len(conns))
	for _, c := range conns {
		if c.session.IsOpen() {
			open = append(open, OpenConn{c.session.Info(), c})
		}
	}
	slices.SortFunc(open, func(a, b OpenConn) int { return cmp.Compare(a.ID, b.ID) })
	return open
}

// Session returns the connection's session.
func (c OpenConn) Session() *session.Conn { return c.conn.session }

// Traffic returns the traffic of the connection.
func (c OpenConn) Traffic() Traffic {
	var t Traffic
	t.add(&c.conn.traffic)
	return t
}

// TLS returns the negotiated TLS parameters; ok is false if the connection is not encrypted.
func (c OpenConn) TLS() (state tls.ConnectionState, ok bool) {
	if h := c.conn.adopted; h != nil {
		return adoptedTLS(h)
	}
	socket, ok := c.conn.socket.(*tls.Conn)
	if !ok {
		return tls.ConnectionState{}, false
	}
	return socket.ConnectionState(), true
}

// Blocked counts the connections that are not being read from, by reason. A connection can have several reasons.
type Blocked struct {
	Alarm     int // an alarm for memory or disk space, or the server is suspended
	Log       int // the log has fallen behind
	Queue     int // the mailbox of a queue is full
	Consumers int // consumers have fallen behind: a pause of a millisecond per 256 KiB
	Client    int // the client does not read the broker's answers
}

// Blocked counts the blocked connections.
func (s *Server) Blocked() Blocked {
	n := func(r reason) int { return int(s.blocked[r].Load()) }
	return Blocked{
		Alarm: n(forAlarm), Log: n(forLog), Queue: int(s.sessions.Queues.WaitingPublishers()), Consumers: n(forConsumers), Client: n(forClient),
	}
}

// reason is a reason for not reading from a connection.
type reason uint8

const (
	forAlarm reason = iota
	forLog
	forConsumers
	forClient
	reasons
)

type blockedCounts [reasons]atomic.Int64

func (b *blockedCounts) add(why [reasons]bool, n int64) {
	for r, is := range why {
		if is {
			b[r].Add(n)
		}
	}
}

// reasons returns the reasons for not reading from the connection now.
func (c *conn) reasons() (why [reasons]bool) {
	open := c.state == session.Open
	why[forAlarm] = open && (c.alarm != nil || c.held.Load())
	why[forLog] = open && c.logCaughtUp != nil
	why[forClient] = c.session.Congested()
	return why
}

// forClientAlone reports whether the only reason is that the client does not read.
func forClientAlone(why [reasons]bool) bool { return why == [reasons]bool{forClient: true} }

// Sessions returns the state that all connections share.
func (s *Server) Sessions() *session.Server { return s.sessions }
