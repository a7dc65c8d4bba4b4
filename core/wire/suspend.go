package wire

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/curfewmq/curfew/core/session"
)

// suspendedReason is the reason in connection.blocked that publishers get while the server is suspended.
const suspendedReason = "the broker is being drained"

// Suspend stops accepting messages from publishers until Resume. Publishers wait as for an
// alarm; consumers go on. A connection that publishes is still read while it has deliveries
// to settle, because its settlements come after its publications. Unless listening is true,
// new clients cannot connect either. Suspending again only changes listening.
func (s *Server) Suspend(listening bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return errEnding
	}
	s.suspended.Store(true)
	if listening {
		return s.reopen()
	}
	if !s.deaf {
		s.deaf = true
		closeAll(s.listeners)
	}
	return nil
}

// Resume undoes Suspend. If an address can no longer be listened on, the server stays suspended.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return errEnding
	}
	if err := s.reopen(); err != nil {
		return err
	}
	s.suspended.Store(false)
	for c := range s.conns {
		if c.suspended.Load() { // a request would end a TLS handshake
			c.request(requestResume)
		}
	}
	return nil
}

var errEnding = errors.New("the server is ending")

// Suspended reports whether publishers wait because of Suspend.
func (s *Server) Suspended() bool { return s.suspended.Load() }

// Listening reports whether clients can connect.
func (s *Server) Listening() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.deaf && !s.draining
}

// reopen listens again on the addresses that Suspend has closed: on all of them or none. The caller holds mu.
func (s *Server) reopen() error {
	if !s.deaf {
		return nil
	}
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
	again := make([]net.Listener, 0, len(s.listeners))
	for _, old := range s.listeners {
		l, err := config.Listen(context.Background(), "tcp", old.Addr().String()) // numeric, so no lookup is needed
		if err != nil {
			closeAll(again)
			return fmt.Errorf("the address %s cannot be listened on: %w", old.Addr(), err)
		}
		again = append(again, s.relistened(old, sparing{l, s.options.Descriptors}))
	}
	s.listeners, s.deaf = again, false
	for _, l := range again {
		s.running.Go(func() { s.accept(l) })
	}
	return nil
}

// relistened returns a listener like old over a new socket.
func (s *Server) relistened(old, socket net.Listener) net.Listener {
	l, ok := old.(listener)
	if !ok {
		return socket
	}
	l.Listener = s.proxied(socket)
	return l
}

func closeAll(all []net.Listener) {
	for _, l := range all {
		l.Close()
	}
}

// holdBack sends connection.blocked to a client that has published while the server is
// suspended, and stops reading its connection.
func (c *conn) holdBack() {
	if !c.srv.suspended.Load() || c.session.State() != session.Open {
		return
	}
	if !c.suspended.Swap(true) && c.alarm == nil {
		c.session.Block(suspendedReason)
	}
	c.held.Store(true)
	if !c.srv.suspended.Load() { // Resume may have seen the connection before it was suspended
		c.request(requestResume)
	}
}

// heldBack reports whether the connection must not be read because it has published to a
// suspended server. As long as it has deliveries to settle, it is read until it publishes
// again with nothing left to settle.
func (c *conn) heldBack() bool {
	if !c.held.Load() {
		return false
	}
	if c.session.HasUnsettled() {
		c.held.Store(false)
		return false
	}
	return true
}

// resume lets a connection continue after its server was resumed.
func (c *conn) resume() {
	c.held.Store(false)
	if c.suspended.Swap(false) && c.alarm == nil {
		c.session.Unblock()
	}
}
