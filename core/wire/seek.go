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
