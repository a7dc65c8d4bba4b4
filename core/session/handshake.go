package session

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
)

// handshakeFrameMax bounds frames before frame-max is negotiated. Client properties and a token as password must fit.
const handshakeFrameMax = 8192

// capabilities are the protocol extensions that a client supports.
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

// header expects the protocol header. It answers any other header with ours [AMQP 4.2.2].
func (c *Conn) header(data []byte) (consumed int) {
	n := len(amqp.ProtocolHeader)
	if len(data) < n {
		return 0
	}
	if h := string(data[:n]); h != amqp.ProtocolHeader && h != amqp.ProtocolHeader09 {
		c.logHeader(h)
		c.out.postRaw([]byte(amqp.ProtocolHeader))
		c.finish()
		return len(data)
	}
	start := c.srv.start
	if c.srv.CertificateLogin.On() && c.peer.certificate() != nil {
		start = c.srv.startExternal
	}
	c.out.postRaw(start)
	c.phase = awaitStartOK
	return n
}

// headerHint guesses the protocol of a client that does not speak AMQP 0-9-1; "" if there is no guess.
func headerHint(h string) string {
	switch {
	case strings.HasPrefix(h, "PROXY "), strings.HasPrefix(h, "\r\n\r\n\x00\r\nQ"):
		return "this is the PROXY protocol, from an address that is not in listen.proxy-protocol"
	case strings.HasPrefix(h, "\x16\x03"):
		return "this is TLS, which listen.amqps speaks"
	case strings.HasPrefix(h, "AMQP"):
		return "this is another version of AMQP"
	}
	return ""
}

// logHeader logs a wrong protocol header.
func (c *Conn) logHeader(received string) {
	keys := []any{"received", received}
	if hint := headerHint(received); hint != "" {
		keys = append(keys, "hint", hint)
	}
	c.warnOfStranger("wrong protocol header", keys...)
}

// warnOfStranger logs an action of a client that has not logged in. It logs seldom, and adds how many log lines it has left out.
func (c *Conn) warnOfStranger(text string, keys ...any) {
	should, skipped := c.srv.strangers.Next(c.round.instant())
	if !should {
		return
	}
	if skipped > 0 {
		keys = append(keys, "not_told", skipped)
	}
	c.log().Warn(text, keys...) //nolint:sloglint // callers give a constant
}

// startOK stores the client's credentials for Login to check.
func (c *Conn) startOK(m *amqp.ConnectionStartOK) error {
	if n := m.ClientProperties.Fields(); n > amqp.MaxArguments { // they are kept as long as the connection, even a stranger's
		return amqp.Errorf(amqp.ReplyNotAllowed, "the client's properties have %d fields and elements: at most %d are allowed", n, amqp.MaxArguments).In(m.ID())
	}
	c.mechanism = m.Mechanism
	c.understand(m.ClientProperties)
	check, from := c.srv.orAgain(c.loginCheck(m)), c.origin()
	from.Waits = func(waits bool) {
		c.awaitsTurn.Store(waits)
		c.wake()
	}
	c.login = func(ctx context.Context) {
		u, err := check(ctx, from)
		c.loginResult.Store(&loginResult{u, err})
		c.wake()
	}
	c.phase = awaitLogin
	return nil
}

// understand stores the client's properties.
func (c *Conn) understand(properties amqp.Table) {
	c.caps, c.properties = parseCapabilities(properties), properties
	if name, ok := properties.Lookup("connection_name"); ok {
		c.name, _ = name.(string)
	}
}

// loginCheck returns the function that checks the client's login: the credentials in its answer or, if it asks for that, its certificate.
func (c *Conn) loginCheck(m *amqp.ConnectionStartOK) loginFunc {
	mechanism, response := m.Mechanism, m.Response
	if mechanism != auth.External || !c.srv.CertificateLogin.On() {
		return func(ctx context.Context, from auth.Origin) (auth.User, error) {
			return c.srv.Users.Login(ctx, mechanism, response, from)
		}
	}
	certificate, secure := c.peer.certificate(), c.peer.Certificate != nil
	return func(_ context.Context, from auth.Origin) (auth.User, error) {
		if !secure {
			return auth.User{}, c.srv.Users.NotExternal()
		}
		return c.srv.Users.LoginExternal(certificate, c.srv.CertificateLogin, from)
	}
}

type loginResult struct {
	user auth.User
	err  error
}

// Login returns a function that checks the client's credentials, once after they have arrived; otherwise nil. The function
// may take long, until ctx is done. The caller runs it on a goroutine other than the reader. Feed consumes nothing until Tick
// has handled the result.
func (c *Conn) Login() func(ctx context.Context) {
	login := c.login
	c.login = nil
	return login
}

// LoggingIn reports that Feed consumes nothing, because the credentials are being checked.
func (c *Conn) LoggingIn() bool { return c.phase == awaitLogin }

// AwaitsTurn reports that the login waits while other logins are checked; this time is not charged to the client. When the result changes, the
// connection calls the wake function of [Server.Accept].
func (c *Conn) AwaitsTurn() bool { return c.awaitsTurn.Load() }

func (c *Conn) loggedIn(r *loginResult) {
	if r.err != nil {
		c.fail(c.refuseLogin(r.err))
		return
	}
	c.user = r.user
	c.phase = awaitTuneOK
	c.out.post(0, &amqp.ConnectionTune{
		ChannelMax: c.srv.ChannelMax, FrameMax: uint32(c.srv.FrameMax), Heartbeat: c.srv.Heartbeat,
	})
}

// origin returns where the client connects from. Clients that a proxy announces with a loopback address share an origin of their own, so that
// they do not use up the login attempts of clients on this machine.
func (c *Conn) origin() auth.Origin {
	host, _, err := net.SplitHostPort(c.peer.Address)
	if err != nil {
		host = c.peer.Address
	}
	if at, err := netip.ParseAddr(host); err == nil && at.Unmap().IsLoopback() && !c.peer.Loopback {
		host = "a proxy at " + host
	}
	return auth.Origin{Host: host, Loopback: c.peer.Loopback || !c.srv.GuestLoopbackOnly, Now: c.round.instant()}
}

// refuseLogin logs why a login was refused, and returns an error that does not reveal the reason to the client.
func (c *Conn) refuseLogin(err error) error {
	var r *auth.Refused
	if !errors.As(err, &r) {
		return err
	}
	if should, suppressed := c.srv.Users.ShouldLog(r, c.round.instant()); should {
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
	if err := c.admit(); err != nil {
		v.RemoveConnection(c.id)
		tracked.Leave()
		return err
	}
	c.srv.churn.ConnectionsOpened.Add(1)
	c.tracked, c.counted = tracked, true
	c.use(v)
	return nil
}

// admit counts the connection towards the limit of the broker.
func (c *Conn) admit() error {
	c.admitted = c.admitted || c.srv.admit()
	if !c.admitted {
		return amqp.Errorf(amqp.ReplyNotAllowed, "connection refused: node connection limit (%d) is reached", c.srv.Connections)
	}
	return nil
}

// use makes channels usable, in a vhost.
func (c *Conn) use(v *vhost.VHost) {
	c.vhost, c.offset, c.phase = v, v.Offset(), running
	c.access = access{users: c.srv.Users, user: c.user.Name, vhost: v}
	c.routes.vhost, c.routes.channels = v, &c.channels
	c.reader = propsReader{access: &c.access, vhost: v, spans: c.srv.spans, round: &c.round}
	c.observer.vhost, c.observer.user = v, c.user.Name
}
