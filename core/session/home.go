package session

import (
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Home says which node of a cluster serves a vhost: its owner.
type Home struct {
	Owner   wlog.NodeID     // as far as this node knows; 0 means nobody
	Here    bool            // this node serves it now
	Changed <-chan struct{} // closed when Owner or Here are no longer so
}

// openVHost opens the virtual host that the client asks for, or has the owner of the socket look for who serves it.
func (c *Conn) openVHost(m *amqp.ConnectionOpen) error {
	if c.srv.Home == nil {
		_, err := c.openHere(m.VirtualHost)
		return err
	}
	c.wanted = m.VirtualHost
	home, known := c.srv.Home(m.VirtualHost)
	switch {
	case known && home.Here && c.tryHere():
		return nil
	case !known && c.srv.Fresh == nil:
		return VHostNotFound(m.VirtualHost)
	}
	c.outdated = c.outdated || !known
	if err := c.admit(); err != nil {
		return in(err, amqp.ClassConnection, amqp.MethodConnectionOpen)
	}
	c.phase = elsewhere
	return nil
}

// openHere opens a vhost that this node serves. outdated says that an error may be due to what the node has not heard yet. The error is
// errTryAgain if the vhost is just going elsewhere.
func (c *Conn) openHere(name string) (outdated bool, err error) {
	const class, method = amqp.ClassConnection, amqp.MethodConnectionOpen
	v, ok := c.srv.VHosts(name)
	switch {
	case !ok && c.srv.knows(name):
		return false, errTryAgain
	case !ok:
		return true, VHostNotFound(name)
	}
	if err := c.srv.Users.OpenVHost(c.user.Name, name); err != nil {
		return true, in(err, class, method)
	}
	switch err := c.enter(v); {
	case errors.Is(err, wlog.ErrNotOwner):
		return false, errTryAgain
	case err != nil:
		return false, in(err, class, method)
	}
	c.publishInfo()
	c.log().Info("connection open", "user", c.user.Name, "vhost", name, "tls", c.peer.TLS)
	c.now = c.now.Add(c.offset)
	c.out.heartbeatDue()
	c.send(0, &amqp.ConnectionOpenOK{})
	return false, nil
}

// knows reports whether the cluster has a vhost.
func (s *Server) knows(vhost string) bool {
	if s.Home == nil {
		return false
	}
	_, known := s.Home(vhost)
	return known
}

// moved reports whether a vhost is served elsewhere.
func (s *Server) moved(vhost string) bool {
	if s.Home == nil {
		return false
	}
	home, known := s.Home(vhost)
	return known && !home.Here
}

// VHostNotFound is the error of connection.open for a vhost that does not exist.
func VHostNotFound(name string) *amqp.Error {
	return amqp.Errorf(amqp.ReplyNotAllowed, "vhost %s not found", name).In(amqp.ClassConnection, amqp.MethodConnectionOpen)
}

// VHostDown is the error of connection.open for a vhost that no node serves. RabbitMQ says so of a vhost that has crashed.
func VHostDown(name, user string) *amqp.Error {
	return amqp.Errorf(amqp.ReplyInternalError, "access to vhost '%s' refused for user '%s': vhost '%s' is down, no node of the cluster serves it now",
		name, user, name).In(amqp.ClassConnection, amqp.MethodConnectionOpen)
}

// tryHere opens the wanted vhost at this node. It returns false if the vhost has just gone elsewhere, or if a refusal may be due to
// what the node has not heard yet: then Outdated says so.
func (c *Conn) tryHere() (decided bool) {
	outdated, err := c.openHere(c.wanted)
	if err == nil {
		return true
	}
	if errors.Is(err, errTryAgain) || c.srv.moved(c.wanted) {
		return false
	}
	if outdated && !c.refreshed && c.srv.Fresh != nil {
		c.outdated = true
		return false
	}
	c.fail(err)
	return true
}

// The methods that follow are for a connection whose state is Elsewhere, and belong to its reader.

// Handover returns what the owner of the vhost needs. The caller sets Security.
func (c *Conn) Handover() *Handover {
	peer := c.peer
	peer.Certificate = nil
	h := &Handover{
		Peer: peer, User: c.user.Name, Account: c.srv.Users.AccountOf(c.user), Mechanism: c.mechanism, Properties: c.properties,
		ChannelMax: c.channelMax, FrameMax: c.frameMax, Heartbeat: c.heartbeat, VHost: c.wanted,
	}
	if c.srv.Applied != nil {
		h.Applied = c.srv.Applied()
	}
	return h
}

// Outdated reports, once for a connection, that the registry is to be asked for what this node has not heard yet.
func (c *Conn) Outdated() bool {
	ask := c.outdated && !c.refreshed && c.srv.Fresh != nil
	c.refreshed = c.refreshed || ask
	return ask
}

// OpenHere opens the vhost, which this node serves by now. The state stays Elsewhere if it does not any more.
func (c *Conn) OpenHere(now hook.Instant) {
	c.now = now
	if c.phase == elsewhere {
		c.tryHere()
	}
}

// Refuse closes the connection for an error that was found elsewhere. The state stays Elsewhere if the refused handover named a password
// that the user has no longer: a new handover names the present one.
func (c *Conn) Refuse(now hook.Instant, err error, h *Handover) {
	c.now = now
	if c.phase == elsewhere && !c.wasSetAgain(err, h) {
		c.fail(err)
	}
}

// wasSetAgain reports whether a handover was refused only because the user got another password after the login. The owner may know of
// that before this node does.
func (c *Conn) wasSetAgain(err error, h *Handover) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	if !ok || h == nil || e.Text != errOtherAccount(h.User).Text {
		return false
	}
	if account := c.srv.Users.AccountOf(c.user); account == 0 || account != h.Account {
		return account != 0
	}
	first := !c.refreshed && c.srv.Fresh != nil
	c.outdated = c.outdated || first
	return first
}

// Relay says that a node has adopted the connection: from now on the caller passes the bytes on. It wakes the writer, which finds
// nothing to write any more.
func (c *Conn) Relay(now hook.Instant, to wlog.NodeID) {
	c.now = now
	c.phase = relayed
	c.properties = nil
	c.log().Info("connection relayed", "user", c.user.Name, "vhost", c.wanted, "tls", c.peer.TLS, "number", to)
	signal(c.out.wake)
}

// OwnerClosed ends a relayed connection whose owner has closed it in good order. Unless the client has said all that it may say, its
// answer to connection.close is awaited.
func (c *Conn) OwnerClosed(now hook.Instant, answered bool) {
	c.now = now
	if c.phase != relayed {
		return
	}
	c.log().Info("connection closed", "user", c.user.Name)
	c.leave()
	if answered {
		c.finish()
		return
	}
	c.phase = closing
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.seal(nil)
}

// OwnerGone ends a relayed connection whose owner does not answer any more. The client gets an error, or the answer to its own
// connection.close, if it has asked for one.
func (c *Conn) OwnerGone(now hook.Instant, asked bool, err error) {
	c.now = now
	switch {
	case c.phase != relayed:
	case asked:
		c.leave()
		c.seal(&amqp.ConnectionCloseOK{})
		c.phase = closing
	default:
		c.fail(err)
	}
}
