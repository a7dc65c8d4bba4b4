package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// adopting bounds the time in which a front hands a connection over and this node catches up with the front's knowledge of the registry. It
// is less than the front waits for the answer.
const adopting = handoverTimeout - time.Second

// Adopt serves a client's connection that another node, the front, hands over on a stream. The server owns the stream from now on. A
// refused handover is answered: see [session.ReadAnswer].
func (s *Server) Adopt(stream net.Conn, front wlog.NodeID) {
	if !s.begin(func() { s.adopt(stream, front) }) {
		stream.Close()
	}
}

func (s *Server) adopt(stream net.Conn, front wlog.NodeID) {
	ctx, cancel := context.WithTimeout(context.Background(), adopting)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })
	s.running.Go(func() {
		select {
		case <-s.quit:
			cancel()
		case <-ctx.Done():
		}
	})
	c, err := s.readAdopted(ctx, stream, front)
	if errors.Is(err, errKept) {
		s.tellKept(front)
		stream.Close()
		return
	}
	if err != nil {
		s.log.Warn("handover refused", "node", front, "reason", err)
		stream.Close()
		return
	}
	if c == nil {
		stream.Close()
		return
	}
	if !stop() || !s.launch(c) {
		c.session.Release(s.options.Clock())
		stream.Close()
	}
}

// tellKept logs, at most once a second, that a handover was refused for lack of file descriptors: the front tries again.
func (s *Server) tellKept(front wlog.NodeID) {
	now, last := s.options.Clock(), s.toldKept.Load()
	if now.Sub(hook.Instant(last)) >= time.Second && s.toldKept.CompareAndSwap(last, int64(now)) {
		s.log.Warn("handover refused: clients of other nodes wait", "node", front, "reason", errKept)
	}
}

// readAdopted reads a handover and answers it. If it refuses the handover, the connection is nil.
func (s *Server) readAdopted(ctx context.Context, stream net.Conn, front wlog.NodeID) (*conn, error) {
	h, err := session.ReadHandover(stream)
	if err != nil {
		return nil, err
	}
	if isKept(stream, s.options.Descriptors) {
		_, err := stream.Write(session.AppendAnswer(nil, errKept))
		return nil, errors.Join(errKept, err)
	}
	c := &conn{srv: s, socket: stream, adopted: h, front: front, in: newInput(), wakeup: make(chan struct{}, 1), written: make(chan struct{})}
	if tcp, ok := stream.(*net.TCPConn); ok {
		if c.tcp, err = newTCPConn(tcp, false); err != nil {
			return nil, err
		}
		c.socket = c.tcp
		if readsNow {
			c.tcp.onIdle = c.in.park
		}
	}
	_, secure := stream.(*tls.Conn)
	c.session, err = s.sessions.Adopt(ctx, s.options.Clock(), h, session.Front{Node: front, TLS: secure}, func() { c.request(requestTick) })
	if _, failed := stream.Write(session.AppendAnswer(nil, err)); failed != nil && err == nil {
		c.session.Release(s.options.Clock())
		return nil, failed
	}
	if err != nil {
		return nil, nil //nolint:nilnil // the front has got the answer, and session has logged the reason
	}
	return c, nil
}

// launch starts the goroutines of an adopted connection. It returns false if the server is ending.
func (s *Server) launch(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.conns[c] = struct{}{}
	s.running.Go(c.write)
	s.running.Go(c.run)
	return true
}

// HangUp closes the streams of connections that front has handed over, because that node has left the cluster or is unreachable. It
// returns how many there were.
func (s *Server) HangUp(front wlog.NodeID) (connections int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.front == front {
			sever(c.socket)
			c.request(requestStop)
			connections++
		}
	}
	return connections
}

// sever closes a connection without TLS's close notification, which waits seconds for a node that does not read.
func sever(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close() // it may be closed already
}

// adoptedTLS returns the TLS parameters that the client and the front negotiated.
func adoptedTLS(h *session.Handover) (state tls.ConnectionState, ok bool) {
	if !h.Peer.TLS {
		return tls.ConnectionState{}, false
	}
	state = tls.ConnectionState{HandshakeComplete: true, Version: h.Security.Version, CipherSuite: h.Security.Suite}
	if cert := h.Security.ClientCertificate(); cert != nil {
		state.PeerCertificates = append(state.PeerCertificates, cert)
		state.VerifiedChains = append(state.VerifiedChains, state.PeerCertificates)
	}
	return state, true
}
