package session

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"

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
		keys := []any{"received", h}
		if hint := headerHint(h); hint != "" {
			keys = append(keys, "hint", hint)
		}
		c.warnOfStranger("wrong protocol header", keys...)
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
	from := auth.Origin{Host: c.peer.host(), Loopback: c.peer.Loopback || !c.srv.GuestLoopbackOnly, Now: c.round.instant()}
	c.login.prepare(c.srv.orAgain(c.srv.loginCheck(&c.peer, m)), from, c.wake)
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

// loginCheck returns the function that checks a client's login: the credentials in its answer or, if it asks for that, its certificate.
func (s *Server) loginCheck(p *Peer, m *amqp.ConnectionStartOK) loginFunc {
	mechanism, response := m.Mechanism, m.Response
	if mechanism != auth.External || !s.CertificateLogin.On() {
		return func(ctx context.Context, from auth.Origin) (auth.User, error) {
			return s.Users.Login(ctx, mechanism, response, from)
		}
	}
	certificate, secure := p.certificate(), p.Certificate != nil
	return func(_ context.Context, from auth.Origin) (auth.User, error) {
		if !secure {
			return auth.User{}, s.Users.NotExternal()
		}
		return s.Users.LoginExternal(certificate, s.CertificateLogin, from)
	}
}

// login checks a client's credentials, once. It belongs to the connection's reader, except for the atomics.
type login struct {
	check  func(context.Context)       // nil: there is nothing to check, or the check has begun
	result atomic.Pointer[loginResult] // nil: none yet, or the reader has it
	waits  atomic.Bool                 // other logins are checked first
}

type loginResult struct {
	user auth.User
	err  error
}

// prepare makes a check of credentials from an origin the next one. wake is called when the
// result is there, or when the check begins or ends to wait for its turn.
func (l *login) prepare(check loginFunc, from auth.Origin, wake func()) {
	from.Waits = func(waits bool) {
		l.waits.Store(waits)
		wake()
	}
	l.check = func(ctx context.Context) {
		u, err := check(ctx, from)
		l.result.Store(&loginResult{u, err})
		wake()
	}
}

// take returns the check, once; nil = there is none.
func (l *login) take() func(context.Context) {
	check := l.check
	l.check = nil
	return check
}

// takeResult returns the result, once; nil = there is none yet.
func (l *login) takeResult() *loginResult { return l.result.Swap(nil) }

// awaitsTurn reports whether other logins are checked first.
func (l *login) awaitsTurn() bool { return l.waits.Load() }

// Login returns a function that checks the client's credentials, once after they have arrived; otherwise nil. The function
// may take long, until ctx is done. The caller runs it on a goroutine other than the reader. Feed consumes nothing until Tick
// has handled the result.
func (c *Conn) Login() func(ctx context.Context) { return c.login.take() }

// LoggingIn reports that Feed consumes nothing, because the credentials are being checked.
func (c *Conn) LoggingIn() bool { return c.phase == awaitLogin }

// AwaitsTurn reports that the login waits while other logins are checked; this time is not
// charged to the client. When the result changes, the connection calls the wake function of
// [Server.Accept].
func (c *Conn) AwaitsTurn() bool { return c.login.awaitsTurn() }

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

// host returns where the client connects from, for the limits of logins. Clients that a
// proxy announces with a loopback address share a host of their own, so that they do not
// use up the login attempts of clients on this machine.
func (p *Peer) host() string {
	host, _, err := net.SplitHostPort(p.Address)
	if err != nil {
		host = p.Address
	}
	if at, err := netip.ParseAddr(host); err == nil && at.Unmap().IsLoopback() && !p.Loopback {
		host = "a proxy at " + host
	}
	return host
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

// membership counts a connection towards the limits of the broker, of its vhost and of its user. It belongs to the connection's reader.
type membership struct {
	srv      *Server
	id       uint64            // the connection's
	admitted bool              // counts towards the broker's limit
	vhost    *vhost.VHost      // nil: not among the open connections of a vhost
	tracked  *auth.TrackedConn // nil before connection.open
}

// enter counts the connection of a user. evict ends it when its vhost or user is gone.
func (m *membership) enter(v *vhost.VHost, user auth.User, evict func(reason string)) error {
	if err := v.AddConnection(m.id, user.Name, evict); err != nil {
		return err
	}
	tracked, err := m.srv.Users.Track(user, evict)
	if err != nil {
		v.RemoveConnection(m.id)
		return err
	}
	if err := m.admit(); err != nil {
		v.RemoveConnection(m.id)
		tracked.Leave()
		return err
	}
	m.srv.churn.ConnectionsOpened.Add(1)
	m.vhost, m.tracked = v, tracked
	return nil
}

// admit counts the connection towards the limit of the broker.
func (m *membership) admit() error {
	m.admitted = m.admitted || m.srv.admit()
	if !m.admitted {
		return amqp.Errorf(amqp.ReplyNotAllowed, "connection refused: node connection limit (%d) is reached", m.srv.Connections)
	}
	return nil
}

// openChannel counts a channel towards the limit of the user.
func (m *membership) openChannel() error { return m.tracked.OpenChannel() }

func (m *membership) closeChannel() { m.tracked.CloseChannel() }

// leave undoes enter and admit.
func (m *membership) leave() {
	if m.vhost != nil {
		m.vhost.RemoveConnection(m.id)
		m.vhost = nil
		m.tracked.Leave()
		m.srv.churn.ConnectionsClosed.Add(1)
	}
	if m.admitted {
		m.admitted = false
		m.srv.openConns.Add(-1)
	}
}

// use makes channels usable, in a vhost.
func (c *Conn) use(v *vhost.VHost) {
	c.vhost, c.offset, c.phase = v, v.Offset(), running
	c.access = access{users: c.srv.Users, user: c.user.Name, vhost: v}
	c.routes.vhost, c.routes.channels = v, &c.channels
	c.reader = propsReader{access: &c.access, vhost: v, spans: c.srv.spans, round: &c.round}
	c.observer.vhost, c.observer.user = v, c.user.Name
}
