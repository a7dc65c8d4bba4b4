package wire

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/curfewmq/curfew/core/session"
)

// suspendedReason is what publishers get with connection.blocked while the server is suspended.
const suspendedReason = "the broker is being drained"

// Suspend stops taking messages from publishers until Resume. They wait as for an alarm, and consumers go on. A connection that
// publishes is read further while it has deliveries to settle, because its settlements come behind what it publishes. Unless
// listening is true, nobody can connect any more either. Suspending again changes listening only.
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

// Resume ends what Suspend began. If an address cannot be listened on any more, the server stays suspended.
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
		c.request(requestResume)
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

// reopen listens again on the addresses that Suspend has closed, on all or none. The caller holds mu.
func (s *Server) reopen() error {
	if !s.deaf {
		return nil
	}
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
	again := make([]net.Listener, 0, len(s.listeners))
	for _, old := range s.listeners {
		l, err := config.Listen(context.Background(), "tcp", old.Addr().String()) // numbers, which need no look-up
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

// relistened returns a listener that is as old was, over a new socket.
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

// holdBack tells a connection that has published that the server is suspended, and stops reading it.
func (c *conn) holdBack() {
	if !c.srv.suspended.Load() || c.session.State() != session.Open {
		return
	}
	if !c.suspended {
		c.suspended = true
		if c.alarm == nil {
			c.session.Block(suspendedReason)
		}
	}
	c.held.Store(true)
}

// heldBack reports whether the connection must not be read because it has published to a suspended server. What it has to settle lets
// it go on until it publishes again with nothing to settle.
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

// resume lets a connection go on whose server is not suspended any more.
func (c *conn) resume() {
	c.held.Store(false)
	if !c.suspended {
		return
	}
	c.suspended = false
	if c.alarm == nil {
		c.session.Unblock()
	}
}
