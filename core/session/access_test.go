package session

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func (p *probe) grantTopics(write, read string) {
	p.t.Helper()
	_, err := p.conn.srv.Users.SetTopicPermissions(auth.TopicGrant{
		User: auth.Guest, VHost: "/", TopicPermissions: auth.TopicPermissions{Exchange: "x", Write: write, Read: read},
	})
	must(p.t, err)
}

func (p *probe) exchange(name, kind string) {
	p.t.Helper()
	do[*amqp.ExchangeDeclareOK](p, 1, &amqp.ExchangeDeclare{Exchange: name, Type: kind})
}

// Topic permissions apply to all routing keys of a message as soon as they are set.
func TestPublishToTopic(t *testing.T) {
	p := newProbe(t, ownUsers(t)).open().channel(1)
	p.exchange("x", "topic")
	p.queue(1, "q")
	do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "q", Exchange: "x", RoutingKey: "#"})
	own, other := published{exchange: "x", key: "guest.1"}, published{exchange: "x", key: "bob.1"}
	refused := func(key string) {
		t.Helper()
		p.closed(1, 403, "ACCESS_REFUSED - write access to topic '"+key+"' in exchange 'x' in vhost '/' refused for user 'guest'")
		p.channel(1)
	}
	p.publish(1, own, other)
	p.silent()
	p.grantTopics("^{username}\\.", ".*")
	p.publish(1, own, own, other)
	refused("bob.1")
	p.publish(1, other)
	refused("bob.1")
	p.holds(1, "q", 4)

	copied := published{exchange: "x", key: "guest.2"}
	for _, header := range []string{"CC", "BCC"} {
		copied.props = amqp.Properties{Headers: table(header, amqp.Array{"guest.3", "bob.2"})}
		copied.props.Set(amqp.PropHeaders)
		p.publish(1, copied)
		refused("bob.2")
	}
	p.holds(1, "q", 4)

	p.grantTopics(".*", "")
	p.publish(1, other)
	p.holds(1, "q", 5)
	p.grantTopics("", "")
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	p.publish(1, own)
	refused("guest.1")
	p.publish(1, published{exchange: "amq.topic", key: "any"}, published{key: "q"})
	p.silent()
}

// Another exchange of the same name may have another type: cached permissions do not apply to it.
func TestTopicPermissionsFollowTheExchange(t *testing.T) {
	p := newProbe(t, ownUsers(t)).open().channel(1)
	p.grantTopics("^a", ".*")
	p.exchange("x", "fanout")
	m := published{exchange: "x", key: "b"}
	p.publish(1, m, m)
	p.silent()
	do[*amqp.ExchangeDeleteOK](p, 1, &amqp.ExchangeDelete{Exchange: "x"})
	p.exchange("x", "topic")
	p.publish(1, m)
	p.closed(1, 403, "ACCESS_REFUSED - write access to topic 'b' in exchange 'x' in vhost '/' refused for user 'guest'")
}

func TestBindToTopic(t *testing.T) {
	p := newProbe(t, ownUsers(t)).open().channel(1)
	p.exchange("x", "topic")
	p.exchange("y", "topic")
	p.queue(1, "q")
	p.grantTopics("", "^a")
	do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "q", Exchange: "x", RoutingKey: "a.#"})
	do[*amqp.QueueUnbindOK](p, 1, &amqp.QueueUnbind{Queue: "q", Exchange: "x", RoutingKey: "a.#"})
	do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "q", Exchange: "y", RoutingKey: "b"})
	for _, m := range []amqp.Method{
		&amqp.QueueBind{Queue: "q", Exchange: "x", RoutingKey: "b"}, &amqp.QueueUnbind{Queue: "q", Exchange: "x", RoutingKey: "b"},
		&amqp.ExchangeBind{Destination: "y", Source: "x", RoutingKey: "b"}, &amqp.ExchangeUnbind{Destination: "y", Source: "x", RoutingKey: "b"},
	} {
		p.send(1, m)
		p.closed(1, 403, "ACCESS_REFUSED - read access to topic 'b' in exchange 'x' in vhost '/' refused for user 'guest'")
		p.channel(1)
	}
	p.send(1, &amqp.QueueBind{Queue: "q", Exchange: "none", RoutingKey: "b"})
	p.closed(1, 404, "NOT_FOUND - no exchange 'none' in vhost '/'")
}

func TestVHostLimits(t *testing.T) {
	s := testServer(t, ownUsers(t))
	v, _ := s.VHosts("/")
	must(t, v.Parameters().SetLimits(vhost.Limits{Connections: hook.LimitOf(1), Queues: hook.LimitOf(1)}))
	first := probeOf(t, s, Peer{}).open().channel(1)
	p := probeOf(t, s, Peer{}).login().tune()
	p.send(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	p.refused(530, "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (1) is reached")
	first.queue(1, "a")
	first.send(1, &amqp.QueueDeclare{Queue: "b"})
	first.closed(1, 406, "PRECONDITION_FAILED - cannot declare queue 'b': queue limit in vhost '/' (1) is reached")
	first.send(0, &amqp.ConnectionClose{})
	probeOf(t, s, Peer{}).open()
}

func TestUserLimits(t *testing.T) {
	s := testServer(t, ownUsers(t))
	must(t, s.Users.SetLimits(auth.Guest, auth.Limits{Connections: hook.LimitOf(2), Channels: hook.LimitOf(2)}))
	a, b := probeOf(t, s, Peer{}).open().channel(1), probeOf(t, s, Peer{}).open().channel(1)
	p := probeOf(t, s, Peer{}).login().tune()
	p.send(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	p.refused(530, "NOT_ALLOWED - connection refused for user 'guest': user connection limit (2) is reached")
	do[*amqp.ChannelCloseOK](a, 1, &amqp.ChannelClose{})
	b.channel(2)
	a.send(7, &amqp.ChannelOpen{})
	a.refused(530, "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed user limit of (2)")
	b.send(0, &amqp.ConnectionClose{})
	probeOf(t, s, Peer{}).open().channel(1).channel(2)
	if v, _ := s.VHosts("/"); v.Stats().Connections != 1 || s.Users.Connections(auth.Guest) != 1 || s.openConns.Load() != 1 {
		t.Errorf("%d in the vhost, %d of the user, %d in all", v.Stats().Connections, s.Users.Connections(auth.Guest), s.openConns.Load())
	}
}

// A connection beyond the broker's limit is not counted anywhere.
func TestRefusedConnectionLeaves(t *testing.T) {
	s := testServer(t, ownUsers(t), func(o *Options) { o.Connections = 1 })
	probeOf(t, s, Peer{}).open()
	p := probeOf(t, s, Peer{}).login().tune()
	p.send(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	p.refused(530, "NOT_ALLOWED - connection refused: node connection limit (1) is reached")
	if v, _ := s.VHosts("/"); v.Stats().Connections != 1 || s.Users.Connections(auth.Guest) != 1 {
		t.Errorf("%d in the vhost, %d of the user", v.Stats().Connections, s.Users.Connections(auth.Guest))
	}
}

// woken is a connection that reports when Tick must be called.
func woken(t *testing.T, s *Server) (p *probe, wakes *int) {
	t.Helper()
	wakes = new(int)
	p = &probe{t: t, conn: s.Accept(Peer{}, func() { *wakes++ }), now: 1}
	t.Cleanup(func() { p.conn.Release(p.now) })
	return p, wakes
}

func TestDeletedUser(t *testing.T) {
	s := testServer(t, ownUsers(t))
	p, wakes := woken(t, s)
	p.open().channel(1)
	late := probeOf(t, s, Peer{}).login().tune()
	*wakes = 0
	existed, err := s.Users.Delete(auth.Guest)
	must(t, err)
	if !existed || *wakes != 1 {
		t.Errorf("existed: %t, woken %d times", existed, *wakes)
	}
	p.tick(0)
	p.refused(320, "CONNECTION_FORCED - user 'guest' is deleted")
	p.tick(0)
	p.silent()
	late.send(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	late.refused(530, "NOT_ALLOWED - access to vhost '/' refused for user 'guest'")
	if s.openConns.Load() != 0 || s.Users.Connections(auth.Guest) != 0 {
		t.Error("the connection is still counted")
	}
}

func TestDeletedVHost(t *testing.T) {
	s := testServer(t, ownUsers(t))
	p, wakes := woken(t, s)
	p.open().channel(1)
	p.queue(1, "q")
	v, _ := s.VHosts("/")
	must(t, v.Delete())
	if *wakes == 0 || len(v.Queues()) > 0 {
		t.Errorf("woken %d times, %d queues are left", *wakes, len(v.Queues()))
	}
	p.send(1, &amqp.QueueDeclare{Queue: "r"})
	p.closed(1, 404, "NOT_FOUND - no vhost '/'")
	p.tick(0)
	p.refused(320, "CONNECTION_FORCED - vhost '/' is deleted")
	late := probeOf(t, s, Peer{}).login().tune()
	late.send(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	late.refused(530, "NOT_ALLOWED - vhost / not found")
}

// A client that fails to log in too often gets the same answer as before.
func TestTooManyFailedLogins(t *testing.T) {
	s := testServer(t, ownUsers(t))
	try := func(password string) *probe {
		p := probeOf(t, s, Peer{Address: "192.0.2.7:1"}).start()
		m := startOK("authentication_failure_close")
		m.Response = "\x00guest\x00" + password
		p.send(0, m)
		return p
	}
	const refused = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
	for range 10 {
		try("wrong").refused(403, refused)
	}
	try("guest").refused(403, refused)
	probeOf(t, s, Peer{Address: "192.0.2.8:1"}).login()
}

func setTags(t *testing.T, users *auth.Store, tags ...string) {
	t.Helper()
	guest, _ := users.Lookup(auth.Guest)
	guest.Tags = tags
	_, err := users.Set(guest)
	must(t, err)
}

// A user may publish with any user-id as long as it has the tag impersonator. Repeated properties used to pass without the tag.
func TestImpersonator(t *testing.T) {
	p := newProbe(t, ownUsers(t)).open().channel(1)
	m := published{key: "q", props: amqp.Properties{UserID: "bob"}}
	m.props.Set(amqp.PropUserID)
	setTags(t, p.conn.srv.Users, "impersonator")
	p.publish(1, m)
	p.silent()
	setTags(t, p.conn.srv.Users)
	p.publish(1, m)
	p.closed(1, 406, "PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'guest'")
}

// Without TLS there is no certificate. The texts are RabbitMQ's.
func TestExternalWithoutTLS(t *testing.T) {
	for want, by := range map[string]auth.CertificateLogin{
		"unknown authentication mechanism 'EXTERNAL'": {},
		"invalid authentication mechanism 'EXTERNAL'": {Field: auth.CommonName},
	} {
		var log strings.Builder
		p := newProbe(t, func(o *Options) { o.CertificateLogin, o.Log = by, slog.New(slog.NewTextHandler(&log, nil)) })
		p.feed([]byte(amqp.ProtocolHeader))
		if m := expect[*amqp.ConnectionStart](p, 0); m.Mechanisms != auth.Mechanisms {
			t.Errorf("announced %q", m.Mechanisms)
		}
		p.send(0, &amqp.ConnectionStartOK{Mechanism: "EXTERNAL", Response: "guest", Locale: "en_US"})
		p.state(Denied)
		if !strings.Contains(log.String(), want) {
			t.Errorf("logged %s, want %s", log.String(), want)
		}
	}
}
