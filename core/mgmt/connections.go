package mgmt

import (
	"crypto/tls"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/report"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/wire"
)

// connections returns the open connections that the user may see, in the vhost that the path names if it names one: the user's
// own or, with the tag monitoring, all.
func (c *request) connections() []wire.OpenConn {
	return slices.DeleteFunc(c.api.AMQP.OpenConns(), func(conn wire.OpenConn) bool {
		return c.vhost != nil && conn.VHost != c.vhost.Name() || !isMonitor(c.user) && conn.User != c.user.Name
	})
}

// connection finds an open connection by its name.
func (c *request) connection(name string) (wire.OpenConn, error) {
	for _, conn := range c.api.AMQP.OpenConns() {
		if conn.Name() != name {
			continue
		}
		if !isMonitor(c.user) && conn.User != c.user.Name {
			return wire.OpenConn{}, errNotYours
		}
		return conn, nil
	}
	return wire.OpenConn{}, errNotFound
}

var errNotYours = notAuthorised("User not authorised to access object")

func (a *API) connections(c *request) error {
	return listConnections(c, c.connections(), func(conn wire.OpenConn) report.Connection { return a.connectionRow(conn, &c.query) }, func(r report.Connection) object {
		return describeConnection(&r, &c.query)
	})
}

func listConnections[T any](c *request, all []wire.OpenConn, row func(wire.OpenConn) T, object func(T) object) error {
	return list(c, listing[wire.OpenConn, T]{items: all, row: row, object: object, name: func(conn wire.OpenConn) string { return conn.Name() }})
}

func (a *API) oneConnection(c *request) error {
	conn, err := c.connection(c.vars["connection"])
	if err != nil {
		return err
	}
	row := a.connectionRow(conn, &c.query)
	return c.reply(describeConnection(&row, &c.query))
}

type connectionKey struct{ id uint64 }

// connectionRow returns a connection as it is.
func (a *API) connectionRow(conn wire.OpenConn, q *query) report.Connection {
	r := report.Connection{
		Peer: peerOf(conn.ConnInfo), Local: conn.Peer.Local, Node: a.Node, VHost: conn.VHost, User: conn.User,
		ClientName: conn.ClientName, Mechanism: conn.Mechanism, Properties: report.Table(conn.Properties),
		ChannelMax: conn.ChannelMax, FrameMax: conn.FrameMax, Heartbeat: conn.Heartbeat, Opened: conn.Opened,
		Status: conn.Session().Status(), TLS: tlsOf(conn),
	}
	if !q.noStats {
		r.Traffic = conn.Traffic()
		r.Rates = a.meters.ratesOf(connectionKey{conn.ID}, trafficCounts(&r))
	}
	return r
}

func peerOf(info *session.ConnInfo) report.Peer {
	return report.Peer{Name: info.Name(), Address: info.Peer.Address}
}

func trafficCounts(r *report.Connection) []namedCount {
	return []namedCount{{"recv_oct", "recv_oct_details", int64(r.BytesIn)}, {"send_oct", "send_oct_details", int64(r.BytesOut)}}
}

func describeConnection(r *report.Connection, q *query) object {
	host, port := splitAddress(r.Local)
	peerHost, peerPort := splitAddress(r.Address)
	o := object{
		{"name", r.Name},
		{"node", r.Node},
		{"vhost", r.VHost},
		{"user", r.User},
		{"user_who_performed_action", r.User},
		{"user_provided_name", jsonobj.OrNull(r.ClientName)},
		{"type", "network"},
		{"protocol", "AMQP 0-9-1"},
		{"state", connectionState(&r.Status)},
		{"auth_mechanism", r.Mechanism},
		{"client_properties", jsonobj.OfTable(amqp.Table(r.Properties))},
		{"channels", r.Channels},
		{"channel_max", r.ChannelMax},
		{"frame_max", r.FrameMax},
		{"timeout", int(r.Heartbeat)},
		{"connected_at", r.Opened.Time().UnixMilli()},
		{"host", host},
		{"port", port},
		{"peer_host", peerHost},
		{"peer_port", peerPort},
	}
	o = appendTLS(o, r.TLS)
	if q.noStats {
		return o
	}
	o = append(o, member{"send_pend", r.Pending}, member{"recv_cnt", r.Reads}, member{"send_cnt", r.Writes})
	return appendRates(o, trafficCounts(r), q.shown(r.Rates))
}

func connectionState(s *session.Status) string {
	switch {
	case s.Closing:
		return "closing"
	case s.Blocked:
		return "blocked"
	}
	return "running"
}

// peerDetails returns what the objects of channels and queues say of their connection.
func peerDetails(p *report.Peer) object {
	host, port := splitAddress(p.Address)
	return object{{"name", p.Name}, {"peer_host", host}, {"peer_port", port}}
}

// splitAddress returns host and port of an address, or the address unchanged if it has no port.
func splitAddress(address string) (host string, port int) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	port, _ = strconv.Atoi(text) // sockets have numbers
	return host, port
}

// tlsOf returns how a connection is encrypted, and the certificate that its client has shown; nil if it is not.
func tlsOf(conn wire.OpenConn) *report.TLS {
	state, secure := conn.TLS()
	if !secure {
		return nil
	}
	t := &report.TLS{Version: state.Version, Suite: state.CipherSuite}
	if len(state.PeerCertificates) > 0 {
		cert := state.PeerCertificates[0]
		t.Certificate = &report.Certificate{Subject: printName(cert.RawSubject), Issuer: printName(cert.RawIssuer), From: cert.NotBefore, Until: cert.NotAfter}
	}
	return t
}

func appendTLS(o object, t *report.TLS) object {
	o.Add("ssl", t != nil)
	certificate := []string{"peer_cert_subject", "peer_cert_issuer", "peer_cert_validity"}
	if t == nil {
		for _, name := range append([]string{"ssl_protocol", "ssl_cipher", "ssl_hash", "ssl_key_exchange"}, certificate...) {
			o.Add(name, nil)
		}
		return o
	}
	o.Add("ssl_protocol", strings.ToLower(strings.ReplaceAll(tls.VersionName(t.Version), "TLS ", "tlsv")))
	exchange, cipher, hash := suiteParts(tls.CipherSuiteName(t.Suite))
	o.Add("ssl_key_exchange", exchange)
	o.Add("ssl_cipher", cipher)
	o.Add("ssl_hash", hash)
	cert := t.Certificate
	if cert == nil {
		for _, name := range certificate {
			o.Add(name, nil)
		}
		return o
	}
	o.Add("peer_cert_subject", cert.Subject)
	o.Add("peer_cert_issuer", cert.Issuer)
	o.Add("peer_cert_validity", cert.From.UTC().Format(time.RFC3339)+" - "+cert.Until.UTC().Format(time.RFC3339))
	return o
}

// maxPrintedName limits a distinguished name in an answer, in bytes: a certificate may have one of hundreds of kilobytes.
const maxPrintedName = 4096

func printName(der []byte) string {
	name, err := rabbit.DistinguishedName(der)
	if err != nil { // package x509 has read it
		return ""
	}
	if len(name) > maxPrintedName {
		return name[:maxPrintedName] + "..." // it is in ASCII
	}
	return name
}

// suiteParts takes the name of a cipher suite apart as RabbitMQ does: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ecdhe_rsa, aes_128_gcm
// and aead. Those of TLS 1.3 leave the key exchange open.
func suiteParts(suite string) (exchange, cipher, hash string) {
	suite = strings.ToLower(strings.TrimPrefix(suite, "TLS_"))
	exchange, rest, ok := strings.Cut(suite, "_with_")
	if !ok {
		exchange, rest = "any", suite
	}
	i := strings.LastIndex(rest, "_")
	if i < 0 || strings.HasSuffix(rest, "_poly1305") {
		return exchange, rest, "aead"
	}
	cipher, hash = rest[:i], rest[i+1:]
	if strings.HasSuffix(cipher, "_gcm") || strings.HasSuffix(cipher, "_poly1305") {
		hash = "aead"
	}
	return exchange, cipher, hash
}

// closeConnection closes a connection: the user's own or, with the tag administrator, any.
func (*API) closeConnection(c *request) error {
	conn, err := c.connection(c.vars["connection"])
	if err != nil {
		return err
	}
	if !isAdministrator(c.user) && conn.User != c.user.Name {
		return errNotYours
	}
	conn.Session().Evict(c.closeReason())
	return c.done(nil)
}

// maxReason limits the reason for closing a connection, in bytes: it has to fit a reply text, which is cut to 255 bytes.
const maxReason = 200

// closeReason returns the reason that the client gets, without control characters.
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

// userConnections returns the open connections of the user that the path names.
func (c *request) userConnections() ([]wire.OpenConn, error) {
	name := c.vars["user"]
	if !isMonitor(c.user) && name != c.user.Name {
		return nil, errNotYours
	}
	return slices.DeleteFunc(c.api.AMQP.OpenConns(), func(conn wire.OpenConn) bool { return conn.User != name }), nil
}

func (a *API) connectionsOfUser(c *request) error {
	own, err := c.userConnections()
	if err != nil {
		return err
	}
	return listConnections(c, own, func(conn wire.OpenConn) object {
		return object{{"name", conn.Name()}, {"vhost", conn.VHost}, {"user", conn.User}, {"node", a.Node}}
	}, nil)
}

func (*API) closeConnectionsOfUser(c *request) error {
	own, err := c.userConnections()
	if err != nil {
		return err
	}
	if !isAdministrator(c.user) && c.vars["user"] != c.user.Name {
		return errNotYours
	}
	for _, conn := range own {
		conn.Session().Evict(c.closeReason())
	}
	return c.done(nil)
}

// channelRef is a channel of a connection.
type channelRef struct {
	conn wire.OpenConn
	session.ChannelInfo
}

func channelName(connection string, number uint16) string {
	return connection + " (" + strconv.Itoa(int(number)) + ")"
}

func (r *channelRef) name() string { return channelName(r.conn.Name(), r.Number) }

func (a *API) channels(c *request) error { return a.listChannels(c, c.connections()) }

func (a *API) channelsOf(c *request) error {
	conn, err := c.connection(c.vars["connection"])
	if err != nil {
		return err
	}
	return a.listChannels(c, []wire.OpenConn{conn})
}

func (a *API) listChannels(c *request, conns []wire.OpenConn) error {
	var all []channelRef
	for _, conn := range conns {
		for _, ch := range conn.Session().Channels() {
			all = append(all, channelRef{conn, ch})
		}
	}
	return list(c, listing[channelRef, report.Channel]{
		items: all, name: func(r channelRef) string { return r.name() },
		row:    func(r channelRef) report.Channel { return a.channelRow(&r, &c.query) },
		object: func(r report.Channel) object { return describeChannel(&r, &c.query) },
	})
}

func (a *API) oneChannel(c *request) error {
	name, number, _ := strings.Cut(strings.TrimSuffix(c.vars["channel"], ")"), " (")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return errNotFound
	}
	conn, err := c.connection(name)
	if err != nil {
		return err
	}
	for _, ch := range conn.Session().Channels() {
		if ch.Number != uint16(n) {
			continue
		}
		row := a.channelRow(&channelRef{conn, ch}, &c.query)
		consumers := []object{}
		for _, s := range conn.Session().Consumers(ch.Number) {
			consumers = append(consumers, describeConsumer(a.consumerRow(consumerRef{s, isActive(s)})))
		}
		return c.reply(append(describeChannel(&row, &c.query), member{"consumer_details", consumers}))
	}
	return errNotFound
}

type channelKey struct {
	connection uint64
	number     uint16
}

// channelRow returns a channel as it is.
func (a *API) channelRow(r *channelRef, q *query) report.Channel {
	row := report.Channel{Connection: peerOf(r.conn.ConnInfo), Node: a.Node, VHost: r.conn.VHost, User: r.conn.User, ChannelInfo: r.ChannelInfo}
	if !q.noStats {
		row.Rates = a.meters.ratesOf(channelKey{r.conn.ID, r.Number}, channelCounts(&r.Counters))
	}
	return row
}

func describeChannel(r *report.Channel, q *query) object {
	o := object{
		{"name", channelName(r.Connection.Name, r.Number)},
		{"number", int(r.Number)},
		{"node", r.Node},
		{"vhost", r.VHost},
		{"user", r.User},
		{"user_who_performed_action", r.User},
		{"state", "running"},
		{"confirm", r.Confirms},
		{"transactional", r.Transactional},
		{"prefetch_count", int(r.Prefetch)},
		{"global_prefetch_count", int(r.GlobalPrefetch)},
		{"consumer_count", r.Consumers},
		{"connection_details", peerDetails(&r.Connection)},
	}
	if q.noStats {
		return o
	}
	return append(
		o, member{"messages_unacknowledged", r.Unacked}, member{"messages_unconfirmed", r.Unconfirmed},
		member{"message_stats", appendRates(nil, channelCounts(&r.Counters), q.shown(r.Rates))},
	)
}
