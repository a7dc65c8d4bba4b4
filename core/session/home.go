package session

import (
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Home says which node of a cluster serves a vhost.
type Home struct {
	Owner   wlog.NodeID     // as far as this node knows; 0 means none
	Here    bool            // this node serves it now
	Changed <-chan struct{} // closed when Owner or Here changes
}

// openVHost opens the virtual host that the client asks for, or makes the owner of the socket look for the node that serves it.
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
	if !known {
		c.registry.suspect()
	}
	if err := c.membership.admit(); err != nil {
		return in(err, amqp.ClassConnection, amqp.MethodConnectionOpen)
	}
	c.phase = elsewhere
	return nil
}

// openHere opens a vhost that this node serves. outdated reports that an error may be due to an outdated view of the registry. The error is
// errTryAgain if the vhost is moving to another node.
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
	switch err := c.membership.enter(v, c.user, c.Evict); {
	case errors.Is(err, wlog.ErrNotOwner):
		return false, errTryAgain
	case err != nil:
		return false, in(err, class, method)
	}
	c.use(v)
	c.publishInfo()
	c.log().Info("connection open", "user", c.user.Name, "vhost", name, "tls", c.peer.TLS)
	c.round.tick(c.round.instant().Add(c.offset))
	c.out.heartbeatDue()
	c.out.post(0, &amqp.ConnectionOpenOK{})
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

// VHostDown is the error of connection.open for a vhost that no node serves. RabbitMQ uses this text for a crashed vhost.
func VHostDown(name, user string) *amqp.Error {
	return amqp.Errorf(amqp.ReplyInternalError, "access to vhost '%s' refused for user '%s': vhost '%s' is down, no node of the cluster serves it now",
		name, user, name).In(amqp.ClassConnection, amqp.MethodConnectionOpen)
}

// tryHere opens the wanted vhost at this node. It returns false if the vhost has just moved to another node, or if this node's view of the
// registry may be outdated; then Outdated returns true.
func (c *Conn) tryHere() (decided bool) {
	outdated, err := c.openHere(c.wanted)
	if err == nil {
		return true
	}
	if errors.Is(err, errTryAgain) || c.srv.moved(c.wanted) {
		return false
	}
	if outdated && c.registry.suspect() {
		return false
	}
	c.fail(err)
	return true
}

// The methods below are for a connection whose state is Elsewhere, and belong to its reader.

// Handover returns the handover for the owner of the vhost. The caller sets Security.
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

// Outdated reports, at most once for a connection, that this node must refresh its view of the registry.
func (c *Conn) Outdated() bool { return c.registry.takeOutdated() }

// OpenHere opens the vhost, which this node serves by now. If the vhost has moved away again, the state stays Elsewhere.
func (c *Conn) OpenHere(now hook.Instant) {
	c.round.tick(now)
	if c.phase == elsewhere {
		c.tryHere()
	}
}

// Refuse closes the connection for an error of another node. If the refused handover named
// an outdated password, the state stays Elsewhere: the next handover names the present one.
func (c *Conn) Refuse(now hook.Instant, err error, h *Handover) {
	c.round.tick(now)
	if c.phase == elsewhere && !c.registry.wasSetAgain(err, h, c.srv.Users.AccountOf(c.user)) {
		c.fail(err)
	}
}

// registryView is whether this node knows enough of the cluster's registry to open the vhost of a connection.
type registryView struct {
	srv       *Server
	outdated  bool // this node may not know enough
	refreshed bool // takeOutdated has reported it
}

// refreshes reports whether a refresh is possible, and has not been asked for.
func (r *registryView) refreshes() bool { return !r.refreshed && r.srv.Fresh != nil }

// suspect records that this node may not know enough, and reports whether a refresh may help.
func (r *registryView) suspect() bool {
	can := r.refreshes()
	r.outdated = r.outdated || can
	return can
}

// takeOutdated reports, at most once, that a refresh may help.
func (r *registryView) takeOutdated() bool {
	ask := r.outdated && r.refreshes()
	r.refreshed = r.refreshed || ask
	return ask
}

// wasSetAgain reports whether a handover was refused only because the user, who now has an
// account, got another password after the login. The owner may learn of the new password
// before this node does.
func (r *registryView) wasSetAgain(err error, h *Handover, account uint64) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	if !ok || h == nil || e.Text != errOtherAccount(h.User).Text {
		return false
	}
	if account == 0 || account != h.Account {
		return account != 0
	}
	return r.suspect()
}

// Relay records that a node has adopted the connection: the caller passes the bytes on from now on. It wakes the writer, which will find
// nothing more to write.
func (c *Conn) Relay(now hook.Instant, to wlog.NodeID) {
	c.round.tick(now)
	c.phase = relayed
	c.properties = nil
	c.log().Info("connection relayed", "user", c.user.Name, "vhost", c.wanted, "tls", c.peer.TLS, "number", to)
	signal(c.out.wake)
}

// OwnerClosed ends a relayed connection whose owner has closed it in good order. Unless the
// client has already answered connection.close, its answer is awaited.
func (c *Conn) OwnerClosed(now hook.Instant, answered bool) {
	c.round.tick(now)
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

// OwnerGone ends a relayed connection whose owner no longer answers. If the client has sent connection.close it gets close-ok, otherwise an
// error.
func (c *Conn) OwnerGone(now hook.Instant, asked bool, err error) {
	c.round.tick(now)
	switch {
	case c.phase != relayed:
	case asked:
		c.leave()
		c.out.postLast(&amqp.ConnectionCloseOK{})
		c.phase = closing
	default:
		c.fail(err)
	}
}
