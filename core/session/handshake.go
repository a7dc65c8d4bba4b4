package session

import (
	"context"
	"errors"
	"net"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
)

// handshakeFrameMax bounds frames before frame-max is negotiated. Client properties and a token as password must fit.
const handshakeFrameMax = 8192

// capabilities are the extensions that a client understands.
type capabilities struct {
	cancelNotify     bool // consumer_cancel_notify: basic.cancel from the server
	blocked          bool // connection.blocked
	authFailureClose bool // authentication_failure_close: connection.close after a failed login
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

// header expects the protocol header. It answers any other with ours [AMQP 4.2.2].
func (c *Conn) header(data []byte) (consumed int) {
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

// startOK takes the client's credentials for Login to check.
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

type loginResult struct {
	user auth.User
	err  error
}

// Login returns a function that checks the client's credentials, once they have come and only once; otherwise nil. The function
// may take long, at most until ctx is done. The caller runs it on a goroutine other than the reader. Feed takes nothing until Tick
// has handled the result.
func (c *Conn) Login() func(ctx context.Context) {
	login := c.login
	c.login = nil
	return login
}

// LoggingIn reports that Feed takes nothing, because the credentials are being checked.
func (c *Conn) LoggingIn() bool { return c.phase == awaitLogin }

func (c *Conn) loggedIn(r *loginResult) {
	if r.err != nil {
		c.fail(c.refuseLogin(r.err))
		return
	}
	c.user = r.user
	c.phase = awaitTuneOK
	c.send(0, &amqp.ConnectionTune{
		ChannelMax: c.srv.ChannelMax, FrameMax: uint32(c.srv.FrameMax), Heartbeat: c.srv.Heartbeat,
	})
}

// origin returns where the client connects from.
func (c *Conn) origin() auth.Origin {
	host, _, err := net.SplitHostPort(c.peer.Address)
	if err != nil {
		host = c.peer.Address
	}
	return auth.Origin{Host: host, Loopback: c.peer.Loopback || !c.srv.GuestLoopbackOnly, Now: c.now}
}

// refuseLogin logs why a login was refused, and returns an error that does not tell the client.
func (c *Conn) refuseLogin(err error) error {
	var r *auth.Refused
	if !errors.As(err, &r) {
		return err
	}
	if should, suppressed := c.srv.Users.ShouldLog(r, c.now); should {
		log := c.log()
		if suppressed > 0 {
			log = log.With("not_told", suppressed)
		}
		log.Warn("login refused", "user", r.User, "mechanism", r.Mechanism, "reason", r.Reason)
	}
	return r.Reply()
}

// tuneOK takes the client's choice within the limits of connection.tune.
func (c *Conn) tuneOK(m *amqp.ConnectionTuneOK) error {
	err := checkNegotiated("frame_max", int(m.FrameMax), amqp.FrameMinSize, c.srv.FrameMax)
	if err == nil {
		err = checkNegotiated("channel_max", int(m.ChannelMax), 1, int(c.srv.ChannelMax))
	}
	if err != nil {
		return err.In(amqp.ClassConnection, amqp.MethodConnectionTune)
	}
	c.frameMax, c.channelMax, c.heartbeat = int(m.FrameMax), int(m.ChannelMax), m.Heartbeat
	c.phase = awaitOpen
	return nil
}

// checkNegotiated checks a limit that the client chose; 0 means no limit, which the broker does not allow.
func checkNegotiated(what string, v, low, high int) *amqp.Error {
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

// openVHost opens the virtual host that the client asks for.
func (c *Conn) openVHost(m *amqp.ConnectionOpen) error {
	class, method := m.ID()
	v, ok := c.srv.VHosts(m.VirtualHost)
	if !ok {
		return amqp.Errorf(amqp.ReplyNotAllowed, "vhost %s not found", m.VirtualHost).In(class, method)
	}
	if err := c.srv.Users.OpenVHost(c.user.Name, m.VirtualHost); err != nil {
		return in(err, class, method)
	}
	if err := c.enter(v); err != nil {
		return in(err, class, method)
	}
	c.publishInfo()
	c.log().Info("connection open", "user", c.user.Name, "vhost", m.VirtualHost, "tls", c.peer.TLS)
	c.out.heartbeatDue()
	c.send(0, &amqp.ConnectionOpenOK{})
	return nil
}

// enter counts the connection towards the limits of the vhost, the user and the broker.
func (c *Conn) enter(v *vhost.VHost) error {
	if err := v.AddConnection(c.id, c.user.Name, c.Evict); err != nil {
		return err
	}
	tracked, err := c.srv.Users.Track(c.user, c.Evict)
	if err != nil {
		v.RemoveConnection(c.id)
		return err
	}
	if !c.srv.enter() {
		v.RemoveConnection(c.id)
		tracked.Leave()
		return amqp.Errorf(amqp.ReplyNotAllowed, "connection refused: node connection limit (%d) is reached", c.srv.Connections)
	}
	c.vhost, c.tracked, c.counted, c.phase = v, tracked, true, running
	return nil
}
