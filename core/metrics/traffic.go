package metrics

import (
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wire"
)

// clients holds the numbers of the clients' open objects at one moment.
type clients struct {
	connections, channels             int
	publishers, consumers             int
	unacked, unconfirmed              int
	consumerPrefetch, channelPrefetch uint64
	open                              map[string]session.Counters // of open channels, by vhost
}

func (c *clients) add(conn wire.OpenConn) {
	c.connections++
	sum := c.open[conn.VHost]
	for _, ch := range conn.Session().Channels() {
		c.channels++
		c.consumers += ch.Consumers
		c.unacked += ch.Unacked
		c.unconfirmed += ch.Unconfirmed
		c.consumerPrefetch += uint64(ch.Prefetch)
		c.channelPrefetch += uint64(ch.GlobalPrefetch)
		if ch.Published > 0 {
			c.publishers++
		}
		sum.Add(&ch.Counters)
	}
	c.open[conn.VHost] = sum
}

// gatherTraffic adds the clients and their activity.
func (c *Collector) gatherTraffic(b *builder) {
	// Closed channels are read before open ones: a channel that closes in between is
	// counted in the next collection. It must not be counted twice.
	closed := c.AMQP.Sessions().ClosedCounters()
	now := clients{open: map[string]session.Counters{}}
	for _, conn := range c.AMQP.OpenConns() {
		now.add(conn)
	}
	by := map[*vhost.VHost]vhostTotals{}
	for _, v := range c.Store.VHosts() {
		sum, open := closed[v.Name()], now.open[v.Name()]
		sum.Add(&open)
		by[v] = totalsOf(v, &sum)
	}
	sum := c.totals.sum(by)
	b.gauge("rabbitmq_connections", "Connections currently open", float64(now.connections))
	b.gauge("rabbitmq_channels", "Channels currently open", float64(now.channels))
	b.gauge("rabbitmq_consumers", "Consumers currently connected", float64(now.consumers))
	b.logins(c.Store.Users().Attempts())
	b.blocked(c.AMQP.Blocked())
	b.churn(c.AMQP.Sessions().Churn(), &sum)
	b.global(&now, &sum)
	b.channels(&now, &sum)
	b.leases(&sum)
	if c.Queues == 0 {
		b.counter(queuePublished, queuePublishedHelp, sum.n[routed])
	}
	b.deadLetters(&sum)
	b.connections(&now, c.AMQP.Traffic())
}

func (b *builder) logins(sasl, basic auth.Attempts) {
	all := b.family(Counter, "rabbitmq_auth_attempts_total", "Total number of authentication attempts")
	succeeded := b.family(Counter, "rabbitmq_auth_attempts_succeeded_total", "Total number of successful authentication attempts")
	failed := b.family(Counter, "rabbitmq_auth_attempts_failed_total", "Total number of failed authentication attempts")
	for _, way := range [...]struct {
		labels *Labels
		auth.Attempts
	}{{protocol, sasl}, {overHTTP, basic}} {
		all.add(way.labels, float64(way.Succeeded+way.Failed))
		succeeded.add(way.labels, float64(way.Succeeded))
		failed.add(way.labels, float64(way.Failed))
	}
}

func (b *builder) blocked(n wire.Blocked) {
	f := b.family(Gauge, "curfew_publishers_blocked", "Connections that are not read from, by the reason")
	f.add(label("reason", "alarm"), float64(n.Alarm))
	f.add(label("reason", "log"), float64(n.Log))
	f.add(label("reason", "queue"), float64(n.Queue))
	f.add(label("reason", "consumers"), float64(n.Consumers))
	f.add(label("reason", "client"), float64(n.Client))
}

func (b *builder) churn(n *session.Churn, t *vhostTotals) {
	b.counter("rabbitmq_connections_opened_total", "Total number of connections opened", n.ConnectionsOpened.Load())
	b.counter("rabbitmq_connections_closed_total", "Total number of connections closed or terminated", n.ConnectionsClosed.Load())
	b.counter("rabbitmq_channels_opened_total", "Total number of channels opened", n.ChannelsOpened.Load())
	b.counter("rabbitmq_channels_closed_total", "Total number of channels closed", n.ChannelsClosed.Load())
	b.counter("rabbitmq_queues_declared_total", "Total number of queues declared", t.n[queuesDeclared])
	b.counter("rabbitmq_queues_created_total", "Total number of queues created", t.n[queuesCreated])
	b.counter("rabbitmq_queues_deleted_total", "Total number of queues deleted", t.n[queuesDeleted])
}

// Labels for the activity of clients.
var (
	protocol = label("protocol", "amqp091")
	overHTTP = label("protocol", "http")
	typed    = [queue.Types]*Labels{
		queue.ClassicType: label("protocol", "amqp091", "queue_type", queueTypes[queue.ClassicType]),
		queue.QuorumType:  label("protocol", "amqp091", "queue_type", queueTypes[queue.QuorumType]),
	}
)

// global adds the activity of clients, including closed connections.
func (b *builder) global(c *clients, t *vhostTotals) {
	b.family(Gauge, "rabbitmq_global_publishers", "Current number of publishers").add(protocol, float64(c.publishers))
	b.family(Gauge, "rabbitmq_global_consumers", "Current number of consumers").add(protocol, float64(c.consumers))
	for _, f := range [...]struct {
		name, help string
		value      uint64
	}{
		{"received", "received from publishers", t.n[published]},
		{"received_confirm", "received from publishers expecting confirmations", t.n[confirmable]},
		{"routed", "routed to queues", t.n[routed]},
		{"confirmed", "confirmed to publishers", t.n[confirmed]},
		{"unroutable_dropped", "published as non-mandatory into an exchange and dropped as unroutable", t.n[dropped]},
		{"unroutable_returned", "published as mandatory into an exchange and returned to the publisher as unroutable", t.n[returned]},
	} {
		b.family(Counter, "rabbitmq_global_messages_"+f.name+"_total", "Total number of messages "+f.help).add(protocol, float64(f.value))
	}
	b.deliveries(t)
}

// deliveries adds deliveries by type of queue.
func (b *builder) deliveries(t *vhostTotals) {
	for _, f := range [...]struct {
		name, help string
		sum        []session.DeliveryKind
	}{
		{"delivered_consume_manual_ack", "messages delivered to consumers using basic.consume with manual acknowledgment", []session.DeliveryKind{session.Delivered}},
		{"delivered_consume_auto_ack", "messages delivered to consumers using basic.consume with automatic acknowledgment", []session.DeliveryKind{session.DeliveredNoAck}},
		{"delivered_get_manual_ack", "messages delivered to consumers using basic.get with manual acknowledgment", []session.DeliveryKind{session.Got}},
		{"delivered_get_auto_ack", "messages delivered to consumers using basic.get with automatic acknowledgment", []session.DeliveryKind{session.GotNoAck}},
		{"delivered", "messages delivered to consumers", []session.DeliveryKind{session.Delivered, session.DeliveredNoAck, session.Got, session.GotNoAck}},
		{"redelivered", "messages redelivered to consumers", []session.DeliveryKind{session.Redelivered}},
		{"acknowledged", "messages acknowledged by consumers", []session.DeliveryKind{session.Acked}},
		{"get_empty", "times basic.get operations fetched no message", []session.DeliveryKind{session.GetEmpty}},
	} {
		family := b.family(Counter, "rabbitmq_global_messages_"+f.name+"_total", "Total number of "+f.help)
		for kind := range t.deliveries {
			n := uint64(0)
			for _, d := range f.sum {
				n += t.deliveries[kind][d]
			}
			family.add(typed[kind], float64(n))
		}
	}
}

// channels adds the same under RabbitMQ's names for the sums over all channels.
func (b *builder) channels(c *clients, t *vhostTotals) {
	b.gauge("rabbitmq_channel_consumers", "Consumers on a channel", float64(c.consumers))
	b.gauge("rabbitmq_channel_messages_unacked", "Delivered but not yet acknowledged messages", float64(c.unacked))
	b.gauge("rabbitmq_channel_messages_unconfirmed", "Published but not yet confirmed messages", float64(c.unconfirmed))
	b.gauge("rabbitmq_consumer_prefetch", "Limit of unacknowledged messages for each consumer", float64(c.consumerPrefetch))
	b.gauge("rabbitmq_channel_prefetch", "Total limit of unacknowledged messages for all consumers on a channel", float64(c.channelPrefetch))
	for _, f := range [...]struct {
		name, help string
		value      uint64
	}{
		{"messages_published", "messages published into an exchange on a channel", t.n[published]},
		{"messages_confirmed", "messages published into an exchange and confirmed on the channel", t.n[confirmed]},
		{"messages_unroutable_returned", "messages published as mandatory into an exchange and returned to the publisher as unroutable", t.n[returned]},
		{"messages_unroutable_dropped", "messages published as non-mandatory into an exchange and dropped as unroutable", t.n[dropped]},
		{"get_ack", "messages fetched with basic.get in manual acknowledgement mode", t.of(session.Got)},
		{"get", "messages fetched with basic.get in automatic acknowledgement mode", t.of(session.GotNoAck)},
		{"messages_delivered_ack", "messages delivered to consumers in manual acknowledgement mode", t.of(session.Delivered)},
		{"messages_delivered", "messages delivered to consumers in automatic acknowledgement mode", t.of(session.DeliveredNoAck)},
		{"messages_redelivered", "messages redelivered to consumers", t.of(session.Redelivered)},
		{"messages_acked", "messages acknowledged by consumers", t.of(session.Acked)},
		{"get_empty", "times basic.get operations fetched no message", t.of(session.GetEmpty)},
	} {
		b.counter("rabbitmq_channel_"+f.name+"_total", "Total number of "+f.help, f.value)
	}
}

// leases adds counters that RabbitMQ does not have.
func (b *builder) leases(t *vhostTotals) {
	b.counter("curfew_delivery_leases_ended_total", "Deliveries that were not settled by the end of their lease", t.n[leasesEnded])
}

// connections adds the traffic of sockets.
func (b *builder) connections(c *clients, t wire.Traffic) {
	b.gauge("rabbitmq_connection_channels", "Channels on a connection", float64(c.channels))
	b.counter("rabbitmq_connection_incoming_bytes_total", "Total number of bytes received on a connection", t.BytesIn)
	b.counter("rabbitmq_connection_outgoing_bytes_total", "Total number of bytes sent on a connection", t.BytesOut)
	b.counter("rabbitmq_connection_incoming_packets_total", "Total number of packets received on a connection", t.Reads)
	b.counter("rabbitmq_connection_outgoing_packets_total", "Total number of packets sent on a connection", t.Writes)
}

// Indexes of the counts of a vhost.
const (
	published = iota
	routed
	returned
	dropped
	confirmable
	confirmed
	leasesEnded
	queuesDeclared
	queuesCreated
	queuesDeleted
	counts
)

// vhostTotals are the counts of one vhost, or of several.
type vhostTotals struct {
	n           [counts]uint64
	deliveries  [queue.Types]session.DeliveryCounters
	deadLetters vhost.DeadLetterCounts
	arrived     [queue.Types]uint64 // confirmed dead letters
}

// totalsOf returns the counts of a vhost; t has the counts of its channels.
func totalsOf(v *vhost.VHost, t *session.Counters) vhostTotals {
	churn := v.Churn()
	all := vhostTotals{deliveries: t.Deliveries, n: [counts]uint64{
		published: t.Published, routed: t.Routed, returned: t.Returned, dropped: t.Dropped,
		confirmable: t.Confirmable, confirmed: t.Confirmed, leasesEnded: t.LeasesEnded,
		queuesDeclared: churn.QueuesDeclared, queuesCreated: churn.QueuesCreated, queuesDeleted: churn.QueuesDeleted,
	}}
	all.deadLetters, all.arrived = v.DeadLetters()
	return all
}

// of adds up one kind of deliveries over all types of queues.
func (t *vhostTotals) of(kind session.DeliveryKind) (n uint64) {
	for i := range t.deliveries {
		n += t.deliveries[i][kind]
	}
	return n
}

// raise raises the counts of clients' activity to at least those of another vhostTotals.
func (t *vhostTotals) raise(to *vhostTotals) {
	for i := range t.n {
		t.n[i] = max(t.n[i], to.n[i])
	}
	for kind := range t.deliveries {
		for i := range t.deliveries[kind] {
			t.deliveries[kind][i] = max(t.deliveries[kind][i], to.deliveries[kind][i])
		}
	}
}

func (t *vhostTotals) add(o *vhostTotals) {
	for i := range t.n {
		t.n[i] += o.n[i]
	}
	for kind := range t.deliveries {
		t.deliveries[kind].Add(&o.deliveries[kind])
	}
	for kind := range t.deadLetters {
		for strategy := range t.deadLetters[kind] {
			for reason, n := range o.deadLetters[kind][strategy] {
				t.deadLetters[kind][strategy][reason] += n
			}
		}
	}
	for i := range t.arrived {
		t.arrived[i] += o.arrived[i]
	}
}

// monotonicTotals adds up the counts of vhosts so that no sum goes down: neither when a vhost is deleted, nor when a closing channel
// is for a moment among neither the open nor the closed ones.
type monotonicTotals struct {
	last    map[*vhost.VHost]vhostTotals
	deleted vhostTotals // of deleted vhosts
}

// sum adopts the present counts and returns the sums. It owns now afterwards.
func (s *monotonicTotals) sum(now map[*vhost.VHost]vhostTotals) vhostTotals {
	for v, before := range s.last {
		if t, exists := now[v]; exists {
			t.raise(&before)
			now[v] = t
		} else {
			s.deleted.add(&before)
		}
	}
	s.last = now
	all := s.deleted
	for _, t := range now {
		all.add(&t)
	}
	return all
}
