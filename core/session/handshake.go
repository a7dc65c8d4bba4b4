package session

import (
	"context"
	"errors"
	"net"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
)

// handshakeFrameMax bounds frames before frame-max is negotiated; client properties and a token as password must fit.
const handshakeFrameMax = 8192

// capabilities are the extensions a client says it understands.
type capabilities struct {
	cancelNotify     bool // consumer_cancel_notify: basic.cancel from the server
	blocked          bool // connection.blocked
	authFailureClose bool // authentication_failure_close: a failed login is answered
	nack             bool // basic.nack from the server
}

func parseCapabilities(client amqp.Table) capabilities {
	v, _ := client.Lookup("capabilities")
	t, _ := v.(amqp.Table)
	has := func(name string) bool {
		v, _ := t.Lookup(name)
		yes, _ := v.(bool)
		return yes
	}
	return capabilities{
		cancelNotify:     has("consumer_cancel_notify"),
		blocked:          has("connection.blocked"),
		authFailureClose: has("authentication_failure_close"),
		nack:             has("basic.nack"),
	}
}

// header expects the protocol header. A peer that sends another one is told ours [AMQP 4.2.2].
func (c *Conn) header(data []byte) int {
	n := len(amqp.ProtocolHeader)
	if len(data) < n {
		return 0
	}
	if h := string(data[:n]); h != amqp.ProtocolHeader && h != amqp.ProtocolHeader09 {
		c.log().Warn("wrong protocol header", "received", h)
		c.sendRaw([]byte(amqp.ProtocolHeader))
		c.finish()
		return len(data)
	}
	c.sendRaw(c.srv.start)
	c.phase = awaitStartOK
	return n
}

func (c *Conn) sendRaw(b []byte) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.pending = append(c.out.pending, b...)
	c.out.kick()
}

// startOK takes the client's credentials, which are to be checked.
func (c *Conn) startOK(m *amqp.ConnectionStartOK) {
	c.caps = parseCapabilities(m.ClientProperties)
	c.mechanism, c.properties = m.Mechanism, m.ClientProperties
	if name, ok := m.ClientProperties.Lookup("connection_name"); ok {
		c.name, _ = name.(string)
	}
	mechanism, response, from := m.Mechanism, m.Response, c.origin()
	c.login = func(ctx context.Context) {
		u, err := c.srv.Users.Login(ctx, mechanism, response, from)
		c.loginResult.Store(&loginResult{u, err})
		c.wake()
	}
	c.phase = awaitLogin
}

// loginResult is what came of a login.
type loginResult struct {
	user auth.User
	err  error
}

// Login returns what checks the client's credentials, once they are there and once only; nil otherwise. It may take a while, until
// ctx is done, and is to be called beside the goroutine that the connection belongs to. Feed takes nothing until Tick has seen what
// came of it.
func (c *Conn) Login() func(ctx context.Context) {
	login := c.login
	c.login = nil
	return login
}

// LoggingIn reports that nothing can be fed, because the credentials are being checked.
func (c *Conn) LoggingIn() bool { return c.phase == awaitLogin }

// loggedIn goes on with a client whose credentials were checked.
func (c *Conn) loggedIn(v *loginResult) {
	if v.err != nil {
		c.fail(c.refuseLogin(v.err))
		return
	}
	c.user = v.user
	c.phase = awaitTuneOK
	c.send(0, &amqp.ConnectionTune{
		ChannelMax: c.srv.ChannelMax, FrameMax: uint32(c.srv.FrameMax), Heartbeat: c.srv.Heartbeat,
	})
}

// origin is where the client comes from.
func (c *Conn) origin() auth.Origin {
	host, _, err := net.SplitHostPort(c.peer.Address)
	if err != nil {
		host = c.peer.Address
	}
	return auth.Origin{Host: host, Loopback: c.peer.Loopback || !c.srv.GuestLoopbackOnly, Now: c.now}
}

// refuseLogin tells the client no more than it must: the reason is for the log.
func (c *Conn) refuseLogin(err error) error {
	var r *auth.Refused
	if !errors.As(err, &r) {
		return err
	}
	if should, skipped := c.srv.Users.ShouldLog(r, c.now); should {
		log := c.log()
		if skipped > 0 {
			log = log.With("not_told", skipped)
		}
		log.Warn("login refused", "user", r.User, "mechanism", r.Mechanism, "reason", r.Reason)
	}
	return r.Reply()
}

// tuneOK takes the client's choice within the limits that connection.tune announced.
func (c *Conn) tuneOK(m *amqp.ConnectionTuneOK) error {
	err := negotiated("frame_max", int(m.FrameMax), amqp.FrameMinSize, c.srv.FrameMax)
	if err == nil {
		err = negotiated("channel_max", int(m.ChannelMax), 1, int(c.srv.ChannelMax))
	}
	if err != nil {
		return err.In(amqp.ClassConnection, amqp.MethodConnectionTune)
	}
	c.frameMax, c.channelMax, c.heartbeat = int(m.FrameMax), int(m.ChannelMax), m.Heartbeat
	c.phase = awaitOpen
	return nil
}

// negotiated checks a value that the client chose; 0 means that it wants no limit.
func negotiated(what string, v, low, high int) *amqp.Error {
	switch {
	case v == 0 && what == "channel_max":
		return amqp.Errorf(amqp.ReplyNotAllowed, "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (%d)", high)
	case v == 0 || v > high:
		return amqp.Errorf(amqp.ReplyNotAllowed, "negotiated %s = %d is higher than the maximum allowed value (%d)", what, v, high)
	case v < low:
		return amqp.Errorf(amqp.ReplyNotAllowed, "negotiated %s = %d is lower than the minimum allowed value (%d)", what, v, low)
	}
	return nil
}

// inMethod names m as what caused err.
func inMethod(err error, m amqp.Method) error {
	var e *amqp.Error
	if !errors.As(err, &e) {
		return err
	}
	return e.In(m.ID())
}

// enter counts the connection among those of the vhost, of the user and of the broker.
func (c *Conn) enter(v *vhost.VHost) error {
	if err := v.AddConnection(c.id, c.user.Name, c.Evict); err != nil {
		return err
	}
	seat, err := c.srv.Users.Track(c.user, c.Evict)
	if err != nil {
		v.RemoveConnection(c.id)
		return err
	}
	if !c.srv.enter() {
		v.RemoveConnection(c.id)
		seat.Leave()
		return amqp.Errorf(amqp.ReplyNotAllowed, "connection refused: node connection limit (%d) is reached", c.srv.Connections)
	}
	c.vhost, c.tracked, c.counted, c.phase = v, seat, true, running
	return nil
}

// openVHost lets the user into a virtual host.
func (c *Conn) openVHost(m *amqp.ConnectionOpen) error {
	refuse := func(layout string, args ...any) error {
		return amqp.Errorf(amqp.ReplyNotAllowed, layout, args...).In(m.ID())
	}
	v, ok := c.srv.VHosts(m.VirtualHost)
	if !ok {
		return refuse("vhost %s not found", m.VirtualHost)
	}
	if err := c.srv.Users.OpenVHost(c.user.Name, m.VirtualHost); err != nil {
		return inMethod(err, m)
	}
	if err := c.enter(v); err != nil {
		class, method := m.ID()
		return in(err, class, method)
	}
	c.publishInfo()
	c.log().Info("connection open", "user", c.user.Name, "vhost", m.VirtualHost, "tls", c.peer.TLS)
	c.out.heartbeatDue()
	c.send(0, &amqp.ConnectionOpenOK{})
	return nil
}
