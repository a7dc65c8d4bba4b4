package mgmt

import (
	"crypto/tls"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/wire"
)

// connectionHandlers show connections and channels.
type connectionHandlers struct {
	node   string
	meters *meters
	queues *queueHandlers
}

// visibleConnections returns the open connections that the user may see, in the vhost that the path names if it names one: the user's
// own or, with the tag monitoring, all.
func visibleConnections(c *request) []wire.OpenConn {
	return slices.DeleteFunc(c.api.AMQP.OpenConns(), func(conn wire.OpenConn) bool {
		return c.vhost != nil && conn.VHost != c.vhost.Name() || !isMonitor(c.user) && conn.User != c.user.Name
	})
}

func findConnection(c *request, name string) (wire.OpenConn, error) {
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

func (a *connectionHandlers) list(c *request) error {
	return listConnections(c, visibleConnections(c), func(conn wire.OpenConn) object { return a.describeConnection(conn, &c.query) })
}

func listConnections(c *request, all []wire.OpenConn, object func(wire.OpenConn) object) error {
	return list(c, listing[wire.OpenConn]{items: all, object: object, name: func(conn wire.OpenConn) string { return conn.Name() }})
}

func (a *connectionHandlers) one(c *request) error {
	conn, err := findConnection(c, c.vars["connection"])
	if err != nil {
		return err
	}
	return c.reply(a.describeConnection(conn, &c.query))
}

type connectionKey struct{ id uint64 }

func (a *connectionHandlers) describeConnection(conn wire.OpenConn, q *query) object {
	s := conn.Session().Status()
	host, port := splitAddress(conn.Peer.Local)
	peerHost, peerPort := splitAddress(conn.Peer.Address)
	o := object{
		{"name", conn.Name()},
		{"node", a.node},
		{"vhost", conn.VHost},
		{"user", conn.User},
		{"user_who_performed_action", conn.User},
		{"user_provided_name", jsonobj.OrNull(conn.ClientName)},
		{"type", "network"},
		{"protocol", "AMQP 0-9-1"},
		{"state", connectionState(&s)},
		{"auth_mechanism", conn.Mechanism},
		{"client_properties", jsonobj.OfTable(conn.Properties)},
		{"channels", s.Channels},
		{"channel_max", conn.ChannelMax},
		{"frame_max", conn.FrameMax},
		{"timeout", int(conn.Heartbeat)},
		{"connected_at", conn.Opened.Time().UnixMilli()},
		{"host", host},
		{"port", port},
		{"peer_host", peerHost},
		{"peer_port", peerPort},
	}
	o = appendTLS(o, conn)
	if q.noStats {
		return o
	}
	t := conn.Traffic()
	o = append(o, member{"send_pend", s.Pending}, member{"recv_cnt", t.Reads}, member{"send_cnt", t.Writes})
	return a.meters.appendKnown(o, connectionKey{conn.ID}, []namedCount{
		{"recv_oct", "recv_oct_details", int64(t.BytesIn)}, {"send_oct", "send_oct_details", int64(t.BytesOut)},
	}, q)
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

// connectionDetails returns the members about a connection that its channels and queues show.
func connectionDetails(conn *wire.OpenConn) object {
	host, port := splitAddress(conn.Peer.Address)
	return object{{"name", conn.Name()}, {"peer_host", host}, {"peer_port", port}}
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

// appendTLS appends how the connection is encrypted, and the certificate that its client has shown.
func appendTLS(o object, conn wire.OpenConn) object {
	state, secure := conn.TLS()
	o.Add("ssl", secure)
	if !secure {
		for _, name := range []string{
			"ssl_protocol", "ssl_cipher", "ssl_hash", "ssl_key_exchange", "peer_cert_subject", "peer_cert_issuer", "peer_cert_validity",
		} {
			o.Add(name, nil)
		}
		return o
	}
	o.Add("ssl_protocol", strings.ToLower(strings.ReplaceAll(tls.VersionName(state.Version), "TLS ", "tlsv")))
	exchange, cipher, hash := suiteParts(tls.CipherSuiteName(state.CipherSuite))
	o.Add("ssl_key_exchange", exchange)
	o.Add("ssl_cipher", cipher)
	o.Add("ssl_hash", hash)
	if len(state.PeerCertificates) == 0 {
		for _, name := range []string{"peer_cert_subject", "peer_cert_issuer", "peer_cert_validity"} {
			o.Add(name, nil)
		}
		return o
	}
	cert := state.PeerCertificates[0]
	o.Add("peer_cert_subject", printName(cert.RawSubject))
	o.Add("peer_cert_issuer", printName(cert.RawIssuer))
	o.Add("peer_cert_validity", cert.NotBefore.UTC().Format(time.RFC3339)+" - "+cert.NotAfter.UTC().Format(time.RFC3339))
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

// suiteParts splits the name of a cipher suite as RabbitMQ does: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ecdhe_rsa, aes_128_gcm and aead.
// The names in TLS 1.3 have no key exchange.
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
func closeConnection(c *request) error {
	conn, err := findConnection(c, c.vars["connection"])
	if err != nil {
		return err
	}
	if !isAdministrator(c.user) && conn.User != c.user.Name {
		return errNotYours
	}
	conn.Session().Evict(closeReason(c))
	return c.done(nil)
}

// maxReason limits the reason for closing a connection, in bytes: it has to fit a reply text, which is cut to 255 bytes.
const maxReason = 200

// closeReason returns the reason that the client gets, without control characters.
func closeReason(c *request) string {
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
func userConnections(c *request) []wire.OpenConn {
	return slices.DeleteFunc(c.api.AMQP.OpenConns(), func(conn wire.OpenConn) bool { return conn.User != c.vars["user"] })
}

// mayListUser refuses users without the tag monitoring the connections of others.
func mayListUser(c *request) error {
	if !isMonitor(c.user) && c.vars["user"] != c.user.Name {
		return errNotYours
	}
	return nil
}

func (a *connectionHandlers) connectionsOfUser(c *request) error {
	return listConnections(c, userConnections(c), func(conn wire.OpenConn) object {
		return object{{"name", conn.Name()}, {"vhost", conn.VHost}, {"user", conn.User}, {"node", a.node}}
	})
}

func closeConnectionsOfUser(c *request) error {
	if !isAdministrator(c.user) && c.vars["user"] != c.user.Name {
		return errNotYours
	}
	for _, conn := range userConnections(c) {
		conn.Session().Evict(closeReason(c))
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

func (a *connectionHandlers) channels(c *request) error {
	return a.listChannels(c, visibleConnections(c))
}

func (a *connectionHandlers) channelsOf(c *request) error {
	conn, err := findConnection(c, c.vars["connection"])
	if err != nil {
		return err
	}
	return a.listChannels(c, []wire.OpenConn{conn})
}

func (a *connectionHandlers) listChannels(c *request, conns []wire.OpenConn) error {
	var all []channelRef
	for _, conn := range conns {
		for _, ch := range conn.Session().Channels() {
			all = append(all, channelRef{conn, ch})
		}
	}
	return list(c, listing[channelRef]{
		items: all, name: func(r channelRef) string { return r.name() },
		object: func(r channelRef) object { return a.describeChannel(&r, &c.query) },
	})
}

func (a *connectionHandlers) oneChannel(c *request) error {
	name, number, _ := strings.Cut(strings.TrimSuffix(c.vars["channel"], ")"), " (")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return errNotFound
	}
	conn, err := findConnection(c, name)
	if err != nil {
		return err
	}
	for _, ch := range conn.Session().Channels() {
		if ch.Number != uint16(n) {
			continue
		}
		o := a.describeChannel(&channelRef{conn, ch}, &c.query)
		consumers := []object{}
		for _, s := range conn.Session().Consumers(ch.Number) {
			consumers = append(consumers, a.queues.describeConsumer(s, isActive(s)))
		}
		return c.reply(append(o, member{"consumer_details", consumers}))
	}
	return errNotFound
}

type channelKey struct {
	connection uint64
	number     uint16
}

func (a *connectionHandlers) describeChannel(r *channelRef, q *query) object {
	o := object{
		{"name", r.name()},
		{"number", int(r.Number)},
		{"node", a.node},
		{"vhost", r.conn.VHost},
		{"user", r.conn.User},
		{"user_who_performed_action", r.conn.User},
		{"state", "running"},
		{"confirm", r.Confirms},
		{"transactional", r.Transactional},
		{"prefetch_count", int(r.Prefetch)},
		{"global_prefetch_count", int(r.GlobalPrefetch)},
		{"consumer_count", r.Consumers},
		{"connection_details", connectionDetails(&r.conn)},
	}
	if q.noStats {
		return o
	}
	return append(
		o, member{"messages_unacknowledged", r.Unacked}, member{"messages_unconfirmed", r.Unconfirmed},
		member{"message_stats", a.meters.appendKnown(nil, channelKey{r.conn.ID, r.Number}, channelCounts(&r.Counters), q)},
	)
}
