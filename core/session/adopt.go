package session

import (
	"context"
	"crypto/x509"
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Front is the node that has handed over a connection.
type Front struct {
	Node wlog.NodeID
	TLS  bool // the stream from it is encrypted
}

// Adopt returns a connection that a front has handed over, after connection.open; connection.open-ok is pending. Adopt waits, until ctx
// is done, until this node knows as much of the registry as the front did. wake is as for Accept. The error goes to [AppendAnswer].
func (s *Server) Adopt(ctx context.Context, now hook.Instant, h *Handover, from Front, wake func()) (*Conn, error) {
	if s.WaitApplied != nil {
		if err := s.WaitApplied(ctx, h.Applied); err != nil {
			return nil, errors.Join(errTryAgain, err)
		}
	}
	if s.moved(h.VHost) {
		return nil, errTryAgain
	}
	c := s.accept(h.peer(), wake, !from.TLS)
	c.front = from.Node
	c.mechanism, c.properties, c.wanted = h.Mechanism, h.Properties, h.VHost
	c.frameMax, c.channelMax, c.heartbeat = h.FrameMax, h.ChannelMax, h.Heartbeat
	c.understand(h.Properties)
	c.now = now
	outdated, err := c.openAdopted(h)
	if outdated && s.Fresh != nil && s.Refresh(ctx) == nil {
		_, err = c.openAdopted(h)
	}
	if err == nil {
		return c, nil
	}
	if errors.Is(err, errTryAgain) || s.moved(h.VHost) {
		return nil, errTryAgain
	}
	c.log().Warn("connection error", "state", "opening", "error", err, "node", from.Node)
	return nil, err
}

// openAdopted opens the vhost of a handover for its user.
func (c *Conn) openAdopted(h *Handover) (outdated bool, err error) {
	u, ok := c.srv.Users.LoggedIn(h.User, h.Account)
	if !ok {
		return true, errOtherAccount(h.User)
	}
	c.user = u
	return c.openHere(h.VHost)
}

// errOtherAccount returns the error for a user that logged in to an account that the owner does not know, or with an outdated password.
func errOtherAccount(user string) *amqp.Error {
	return amqp.Errorf(amqp.ReplyNotAllowed, "user '%s' is deleted, or has another password", user).In(amqp.ClassConnection, amqp.MethodConnectionOpen)
}

// peer returns the client as the front saw it.
func (h *Handover) peer() Peer {
	p := h.Peer
	if p.TLS {
		p.Certificate = func() *x509.Certificate { return h.Security.ClientCertificate() }
	}
	return p
}

// ClientCertificate returns the client's certificate; nil = it has presented none.
func (s *Security) ClientCertificate() *x509.Certificate {
	if len(s.Certificate) == 0 {
		return nil
	}
	cert, err := x509.ParseCertificate(s.Certificate)
	if err != nil { // the front has verified it, so the front runs a later release
		return nil
	}
	return cert
}
