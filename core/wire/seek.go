package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

const (
	// ownerWait is how long connection.open waits for an owner of the vhost.
	ownerWait = 10 * time.Second
	// handoverTimeout is how long a node may take to answer a handover.
	handoverTimeout = 5 * time.Second
	// mostWaiting is how many bytes a client may send before its vhost is open; after that, the reader stops reading.
	mostWaiting = 64 << 10
	// After a node has refused a connection, it is asked again after shortestRetry, then at growing intervals.
	shortestRetry = 50 * time.Millisecond
	longestRetry  = time.Second
)

// search looks for the owner of the vhost that a client opens. If the vhost was here but has moved away, the reader starts the search
// again.
type search struct {
	ctx    context.Context // ends when the result is no longer needed; nil before the search begins
	cancel context.CancelFunc
	until  time.Time
	again  bool
}

// found is the result of a search: either a stream to the owner, which has adopted the connection, or an error for the client. If it has
// neither, this node is the owner.
type found struct {
	handover *session.Handover
	node     wlog.NodeID
	owner    net.Conn
	err      error
}

// seek looks for the owner of the client's vhost in a goroutine of its own.
func (c *conn) seek() {
	k := &c.search
	k.again = k.ctx != nil
	if !k.again {
		k.ctx, k.cancel = context.WithCancel(context.Background())
		k.until = time.Now().Add(ownerWait)
	}
	h := c.session.Handover()
	h.Security = c.security()
	outdated, needed, until, again := c.session.Outdated(), k.ctx, k.until, k.again
	c.srv.running.Go(func() {
		ctx, cancel := context.WithDeadline(needed, until)
		defer cancel()
		if outdated {
			_ = c.srv.sessions.Refresh(ctx) // if this fails, what the node already knows counts
		}
		c.found.Store(c.srv.find(ctx, h, again))
		if needed.Err() != nil {
			c.dropFound()
		}
		c.request(requestFound)
	})
}

// endSearch cancels a search in progress.
func (c *conn) endSearch() {
	if c.search.ctx == nil {
		return
	}
	c.search.cancel()
	c.search = search{}
	c.dropFound()
}

// dropFound closes the stream of a result that is no longer needed.
func (c *conn) dropFound() {
	if f := c.found.Swap(nil); f != nil && f.owner != nil {
		f.owner.Close()
	}
}

// arrive handles the result of the search.
func (c *conn) arrive(now hook.Instant) {
	if c.state != session.Elsewhere {
		return
	}
	f := c.found.Swap(nil)
	switch {
	case f == nil:
		return
	case f.err != nil:
		c.session.Refuse(now, f.err, f.handover)
	case f.owner != nil:
		c.beginRelay(now, f)
	default:
		c.session.OpenHere(now)
	}
	if c.session.State() == session.Elsewhere {
		c.seek()
		return
	}
	c.unfed = len(c.in.unread()) > 0
	c.plan(now)
}

// find looks for the owner of a vhost, and hands the connection over to it, until ctx is done. If again is set, it waits before the first
// attempt.
func (s *Server) find(ctx context.Context, h *session.Handover, again bool) *found {
	wait := shortestRetry
	for {
		home, known := s.options.Session.Home(h.VHost)
		switch {
		case again:
			again = false
		case !known:
			return &found{err: session.VHostNotFound(h.VHost)}
		case home.Here:
			return &found{}
		case home.Owner != 0:
			owner, err := s.handOver(ctx, home, h)
			if err == nil {
				return &found{handover: h, node: home.Owner, owner: owner}
			}
			if e, ok := errors.AsType[*amqp.Error](err); ok {
				return &found{handover: h, err: e}
			}
			s.log.Debug("connection not handed over", "connection", h.Peer.Address, "vhost", h.VHost, "node", home.Owner, "reason", err)
		}
		if !await(ctx, home.Changed, wait) {
			return &found{err: session.VHostDown(h.VHost, h.User)}
		}
		wait = min(2*wait, longestRetry)
	}
}

// await waits until the channel is closed or the time is over. It returns false if ctx ends first.
func await(ctx context.Context, changed <-chan struct{}, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// handOver hands a connection over to the owner of its vhost, unless the owner changes in the meantime. It returns the stream that carries
// the frames from now on.
func (s *Server) handOver(ctx context.Context, home session.Home, h *session.Handover) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
	defer cancel()
	s.running.Go(func() {
		select {
		case <-home.Changed:
			cancel()
		case <-ctx.Done():
		}
	})
	owner, err := s.options.Dial(ctx, home.Owner)
	if err != nil {
		return nil, err
	}
	if isKept(owner, s.options.Descriptors) {
		owner.Close()
		return nil, errKept
	}
	// This function may run after handOver has returned. owner is therefore not a named result of handOver, which would be nil by then.
	stop := context.AfterFunc(ctx, func() { _ = owner.SetDeadline(time.Unix(1, 0)) })
	if _, err = owner.Write(h.Append(nil)); err == nil {
		err = session.ReadAnswer(owner)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		owner.Close()
		return nil, err
	}
	return owner, nil
}

// security returns how the client's socket is encrypted.
func (c *conn) security() session.Security {
	socket, ok := c.socket.(*tls.Conn)
	if !ok {
		return session.Security{}
	}
	state := socket.ConnectionState()
	s := session.Security{Version: state.Version, Suite: state.CipherSuite}
	if cert := certificateOf(socket); cert != nil {
		s.Certificate = cert.Raw
	}
	return s
}

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
