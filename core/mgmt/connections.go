package mgmt

import (
	"crypto/tls"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/wire"
)

// links lists the connections that the user may see: one's own or, with the tag monitoring, all.
func (c *request) links() []wire.OpenConn {
	var all []wire.OpenConn
	for _, l := range c.api.AMQP.OpenConns() {
		if (c.vhost == nil || l.VHost == c.vhost.Name()) && (isMonitor(c.user) || l.User == c.user.Name) {
			all = append(all, l)
		}
	}
	return all
}

// link finds a connection by its name.
func (c *request) link(name string) (wire.OpenConn, error) {
	for _, l := range c.api.AMQP.OpenConns() {
		if l.Name() != name {
			continue
		}
		if !isMonitor(c.user) && l.User != c.user.Name {
			return wire.OpenConn{}, errNotYours
		}
		return l, nil
	}
	return wire.OpenConn{}, errNotFound
}

var errNotYours = notAuthorised("User not authorised to access object")

func (a *API) connections(c *request) error { return a.listConnections(c, c.links()) }

func (a *API) connectionsIn(c *request) error { return a.connections(c) }

func (a *API) listConnections(c *request, links []wire.OpenConn) error {
	return list(c, listing[wire.OpenConn]{
		items: links, name: func(l wire.OpenConn) string { return l.Name() },
		object: func(l wire.OpenConn) object { return a.describeLink(l, c.query.noStats) },
	})
}

func (a *API) oneConnection(c *request) error {
	l, err := c.link(c.vars["connection"])
	if err != nil {
		return err
	}
	return c.reply(a.describeLink(l, c.query.noStats))
}

type linkKey struct{ id uint64 }

func (a *API) describeLink(l wire.OpenConn, noStats bool) object {
	s := l.Session().Status()
	host, port := splitAddress(l.Peer.Local)
	peerHost, peerPort := splitAddress(l.Peer.Address)
	o := object{
		{"name", l.Name()},
		{"node", a.Node},
		{"vhost", l.VHost},
		{"user", l.User},
		{"user_who_performed_action", l.User},
		{"user_provided_name", nullable(l.ClientName)},
		{"type", "network"},
		{"protocol", "AMQP 0-9-1"},
		{"state", linkState(&s)},
		{"auth_mechanism", l.Mechanism},
		{"client_properties", tableObject(l.Properties)},
		{"channels", s.Channels},
		{"channel_max", l.ChannelMax},
		{"frame_max", l.FrameMax},
		{"timeout", int(l.Heartbeat)},
		{"connected_at", millis(l.Opened)},
		{"host", host},
		{"port", port},
		{"peer_host", peerHost},
		{"peer_port", peerPort},
	}
	o = appendTLS(o, l)
	if noStats {
		return o
	}
	t := l.Traffic()
	o.add("send_pend", s.Pending)
	o.add("recv_cnt", t.Reads)
	o.add("send_cnt", t.Writes)
	return a.meters.stats(o, linkKey{l.ID}, []tallied{{"recv_oct", int64(t.BytesIn)}, {"send_oct", int64(t.BytesOut)}})
}

func linkState(s *session.Status) string {
	switch {
	case s.Closing:
		return "closing"
	case s.Blocked:
		return "blocked"
	}
	return "running"
}

// splitAddress returns host and port; the address as it is when it is none.
func splitAddress(address string) (host string, port int) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	port, _ = strconv.Atoi(text) // connections have numbers
	return host, port
}

// nullable is a string, or null where there is none.
func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// appendTLS says how the connection is encrypted, and by whom it was opened.
func appendTLS(o object, l wire.OpenConn) object {
	state, secure := l.TLS()
	o.add("ssl", secure)
	if !secure {
		for _, name := range []string{
			"ssl_protocol", "ssl_cipher", "ssl_hash", "ssl_key_exchange", "peer_cert_subject", "peer_cert_issuer", "peer_cert_validity",
		} {
			o.add(name, nil)
		}
		return o
	}
	o.add("ssl_protocol", strings.ToLower(strings.ReplaceAll(tls.VersionName(state.Version), "TLS ", "tlsv")))
	o.add("ssl_cipher", tls.CipherSuiteName(state.CipherSuite))
	if len(state.PeerCertificates) == 0 {
		return o
	}
	cert := state.PeerCertificates[0]
	o.add("peer_cert_subject", cert.Subject.String())
	o.add("peer_cert_issuer", cert.Issuer.String())
	o.add("peer_cert_validity", cert.NotBefore.UTC().Format(time.RFC3339)+" - "+cert.NotAfter.UTC().Format(time.RFC3339))
	return o
}

// closeConnection closes a connection, one's own or, with the tag administrator, any.
func (*API) closeConnection(c *request) error {
	l, err := c.link(c.vars["connection"])
	if err != nil {
		return err
	}
	if !isAdministrator(c.user) && l.User != c.user.Name {
		return errNotYours
	}
	l.Session().Evict(c.closeReason())
	return c.done()
}

// maxReason bounds the reason for closing a connection: it has to fit a reply text, which is cut to 255 bytes.
const maxReason = 200

// closeReason is what the client is told, printable.
func (c *request) closeReason() string {
	reason := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(c.r.Header.Get("X-Reason"), "?"))
	switch {
	case reason == "":
		return "Closed via management plugin"
	case len(reason) > maxReason:
		return strings.ToValidUTF8(reason[:maxReason], "") + "..."
	}
	return reason
}

func (a *API) ofUser(c *request) ([]wire.OpenConn, error) {
	name := c.vars["user"]
	if !isMonitor(c.user) && name != c.user.Name {
		return nil, errNotYours
	}
	var own []wire.OpenConn
	for _, l := range a.AMQP.OpenConns() {
		if l.User == name {
			own = append(own, l)
		}
	}
	return own, nil
}

func (a *API) connectionsOfUser(c *request) error {
	own, err := a.ofUser(c)
	if err != nil {
		return err
	}
	return list(c, listing[wire.OpenConn]{
		items: own, name: func(l wire.OpenConn) string { return l.Name() },
		object: func(l wire.OpenConn) object {
			return object{{"name", l.Name()}, {"vhost", l.VHost}, {"user", l.User}, {"node", a.Node}}
		},
	})
}

func (a *API) closeConnectionsOfUser(c *request) error {
	own, err := a.ofUser(c)
	if err != nil {
		return err
	}
	if !isAdministrator(c.user) && c.vars["user"] != c.user.Name {
		return errNotYours
	}
	for _, l := range own {
		l.Session().Evict(c.closeReason())
	}
	return c.done()
}

// channelRef is a channel of a connection.
type channelRef struct {
	link wire.OpenConn
	session.ChannelInfo
}

func (r *channelRef) name() string { return r.link.Name() + " (" + strconv.Itoa(int(r.Number)) + ")" }

func (a *API) channels(c *request) error { return a.listChannels(c, c.links()) }

func (a *API) channelsIn(c *request) error { return a.channels(c) }

func (a *API) channelsOf(c *request) error {
	l, err := c.link(c.vars["connection"])
	if err != nil {
		return err
	}
	return a.listChannels(c, []wire.OpenConn{l})
}

func (a *API) listChannels(c *request, links []wire.OpenConn) error {
	var all []channelRef
	for _, l := range links {
		for _, ch := range l.Session().Channels() {
			all = append(all, channelRef{l, ch})
		}
	}
	return list(c, listing[channelRef]{
		items: all, name: func(r channelRef) string { return r.name() },
		object: func(r channelRef) object { return a.describeChannel(&r, c.query.noStats) },
	})
}

func (a *API) oneChannel(c *request) error {
	connection, number, _ := strings.Cut(strings.TrimSuffix(c.vars["channel"], ")"), " (")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return errNotFound
	}
	l, err := c.link(connection)
	if err != nil {
		return err
	}
	for _, ch := range l.Session().Channels() {
		if ch.Number != uint16(n) {
			continue
		}
		o := a.describeChannel(&channelRef{l, ch}, c.query.noStats)
		consumers := []object{}
		for _, s := range l.Session().Consumers(ch.Number) {
			consumers = append(consumers, a.describeConsumer(s, isActive(s)))
		}
		o.add("consumer_details", consumers)
		return c.reply(o)
	}
	return errNotFound
}

type channelKey struct {
	connection uint64
	number     uint16
}

func (a *API) describeChannel(r *channelRef, noStats bool) object {
	peerHost, peerPort := splitAddress(r.link.Peer.Address)
	o := object{
		{"name", r.name()},
		{"number", int(r.Number)},
		{"node", a.Node},
		{"vhost", r.link.VHost},
		{"user", r.link.User},
		{"user_who_performed_action", r.link.User},
		{"state", "running"},
		{"confirm", r.Confirms},
		{"transactional", r.Transactional},
		{"prefetch_count", int(r.Prefetch)},
		{"global_prefetch_count", int(r.GlobalPrefetch)},
		{"consumer_count", r.Consumers},
		{"connection_details", object{{"name", r.link.Name()}, {"peer_host", peerHost}, {"peer_port", peerPort}}},
	}
	if noStats {
		return o
	}
	o.add("messages_unacknowledged", r.Unacked)
	o.add("messages_unconfirmed", r.Unconfirmed)
	o.add("message_stats", a.meters.stats(nil, channelKey{r.link.ID, r.Number}, channelCounts(&r.Counters)))
	return o
}
