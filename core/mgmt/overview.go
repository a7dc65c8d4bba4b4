package mgmt

import (
	"maps"
	"slices"
	"strconv"

	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// visible returns the vhost that the path names or, if it names none, all that the user may enter.
func (c *request) visible() []*vhost.VHost {
	if c.vhost != nil {
		return []*vhost.VHost{c.vhost}
	}
	return slices.DeleteFunc(c.api.Store.VHosts(), func(v *vhost.VHost) bool { return !c.mayEnter(v.Name()) || c.leavesOut(v) })
}

// watched returns the vhosts that totals include: all for a monitor, as in RabbitMQ; for
// other users the vhosts that they may enter.
func (c *request) watched() []*vhost.VHost {
	if c.vhost != nil || !isMonitor(c.user) {
		return c.visible()
	}
	return slices.DeleteFunc(c.api.Store.VHosts(), c.leavesOut)
}

// sees returns a function that selects the vhosts of the answer. For a user that may enter
// all, these include vhosts that are created later.
func (c *request) sees() func(*vhost.VHost) bool {
	if c.vhost == nil && isAdministrator(c.user) {
		return func(v *vhost.VHost) bool { return !c.leavesOut(v) }
	}
	seen := map[*vhost.VHost]bool{}
	for _, v := range c.visible() {
		seen[v] = true
	}
	return func(v *vhost.VHost) bool { return seen[v] }
}

// watches returns a function that selects the vhosts in the totals of a live view: all for
// a monitor, as in an overview.
func (c *request) watches() func(*vhost.VHost) bool {
	if c.vhost != nil || !isMonitor(c.user) {
		return c.sees()
	}
	return func(v *vhost.VHost) bool { return !c.leavesOut(v) }
}

// totals add up the broker's objects and counts.
type totals struct {
	*Options
	meters *meters
	nodes  *nodes
}

func (a *totals) overview(c *request) error {
	o := object{
		{"management_version", rabbit.Version},
		{"rabbitmq_version", rabbit.Version},
		{"product_name", a.Product},
		{"product_version", a.Version},
		{"rates_mode", "basic"},
		{"exchange_types", a.exchangeTypes()},
		{"cluster_name", a.nodes.clusterName()},
		{"node", a.Node},
		{"disable_stats", c.query.noStats},
		{"enable_queue_totals", c.query.queueTotals},
		{"statistics_db_event_queue", 0},
		{"object_totals", a.objectTotals(c)},
	}
	if isMonitor(c.user) {
		o = append(o, member{"listeners", a.describeListeners()}, member{"contexts", a.contexts()})
	}
	if c.query.noStats {
		return c.reply(o)
	}
	queueTotals := depthOf(c.watched()...).counts()
	return c.reply(append(
		o, member{"message_stats", a.messageStats(c)}, member{"churn_rates", a.churn()},
		member{"queue_totals", a.meters.append(nil, queueTotalsKey{c.user.Name}, queueTotals)},
	))
}

// exchangeTypes returns the broker's exchange types and those of plugins, by name.
func (a *totals) exchangeTypes() []object {
	descriptions := map[string]string{}
	for _, name := range []string{"direct", "fanout", "headers", "topic"} {
		descriptions[name] = "AMQP " + name + " exchange, as per the AMQP specification"
	}
	for _, t := range a.Store.ExchangeTypes() {
		descriptions[t.Name] = t.Description
	}
	var all []object
	for _, name := range slices.Sorted(maps.Keys(descriptions)) {
		all = append(all, object{{"name", name}, {"description", descriptions[name]}, {"enabled", true}})
	}
	return all
}

func (a *totals) describeListeners() []object {
	all := []object{}
	for _, l := range a.Listeners() {
		host, port := l.hostPort()
		all = append(all, object{
			{"node", a.Node}, {"protocol", l.Protocol}, {"ip_address", host}, {"port", port}, {"socket_opts", object{}},
		})
	}
	return all
}

// contexts returns the listeners of this API.
func (a *totals) contexts() []object {
	all := []object{}
	for _, l := range a.Listeners() {
		if l.Protocol != "http" && l.Protocol != "https" {
			continue
		}
		host, port := l.hostPort()
		all = append(all, object{
			{"node", a.Node}, {"description", a.Product + " Management"}, {"path", "/"}, {"ip", host}, {"port", strconv.Itoa(port)},
		})
	}
	return all
}

func (a *totals) objectTotals(c *request) object {
	exchanges, queues, consumers := 0, 0, 0
	for _, v := range c.watched() {
		s := v.Stats()
		exchanges += s.Exchanges
		queues += s.Queues
	}
	connections, channels := visibleConnections(c), 0
	for _, conn := range connections {
		for _, ch := range conn.Session().Channels() {
			channels++
			consumers += ch.Consumers
		}
	}
	return object{
		{"channels", channels}, {"connections", len(connections)}, {"consumers", consumers}, {"exchanges", exchanges}, {"queues", queues},
	}
}

// Rates of totals are kept by user, because a user's rights decide which counts are added up.
type (
	messageStatsKey struct{ user string }
	queueTotalsKey  struct{ user string }
	churnKey        struct{}
)

// messageStats adds up the counts of channels, closed ones included.
func (a *totals) messageStats(c *request) object {
	by := a.channelCounters()
	var sum session.Counters
	for _, v := range c.watched() {
		own := by[v.Name()]
		sum.Add(&own)
	}
	return a.meters.append(nil, messageStatsKey{c.user.Name}, channelCounts(&sum))
}

// channelCounters adds up the counts of channels by vhost, closed ones included.
func (a *totals) channelCounters() map[string]session.Counters {
	by := a.AMQP.Sessions().ClosedCounters()
	if by == nil {
		by = map[string]session.Counters{}
	}
	for _, conn := range a.AMQP.OpenConns() {
		sum, own := by[conn.VHost], conn.Session().Counters()
		sum.Add(&own)
		by[conn.VHost] = sum
	}
	return by
}

func channelCounts(t *session.Counters) []namedCount {
	h := t.AllDeliveries()
	return []namedCount{
		{"ack", "ack_details", int64(h[session.Acked])},
		{"confirm", "confirm_details", int64(t.Confirmed)},
		{"deliver", "deliver_details", int64(h[session.Delivered])},
		{"deliver_get", "deliver_get_details", int64(h[session.Delivered] + h[session.DeliveredNoAck] + h[session.Got] + h[session.GotNoAck])},
		{"deliver_no_ack", "deliver_no_ack_details", int64(h[session.DeliveredNoAck])},
		{"drop_unroutable", "drop_unroutable_details", int64(t.Dropped)},
		{"get", "get_details", int64(h[session.Got])},
		{"get_empty", "get_empty_details", int64(h[session.GetEmpty])},
		{"get_no_ack", "get_no_ack_details", int64(h[session.GotNoAck])},
		{"publish", "publish_details", int64(t.Published)},
		{"redeliver", "redeliver_details", int64(h[session.Redelivered])},
		{"return_unroutable", "return_unroutable_details", int64(t.Returned)},
	}
}

func (a *totals) churn() object {
	var declared, created, deleted uint64
	for _, v := range a.Store.VHosts() {
		n := v.Churn()
		declared += n.QueuesDeclared
		created += n.QueuesCreated
		deleted += n.QueuesDeleted
	}
	n := a.AMQP.Sessions().Churn()
	return a.meters.append(nil, churnKey{}, []namedCount{
		{"channel_closed", "channel_closed_details", int64(n.ChannelsClosed.Load())},
		{"channel_created", "channel_created_details", int64(n.ChannelsOpened.Load())},
		{"connection_closed", "connection_closed_details", int64(n.ConnectionsClosed.Load())},
		{"connection_created", "connection_created_details", int64(n.ConnectionsOpened.Load())},
		{"queue_created", "queue_created_details", int64(created)},
		{"queue_declared", "queue_declared_details", int64(declared)},
		{"queue_deleted", "queue_deleted_details", int64(deleted)},
	})
}

// activity counts the events in vhosts so far.
func (a *totals) activity(watch func(*vhost.VHost) bool) []uint64 {
	by := a.channelCounters()
	var sum session.Counters
	var expired, deadLettered, released uint64
	for _, v := range a.Store.VHosts() {
		if !watch(v) {
			continue
		}
		own := by[v.Name()]
		sum.Add(&own)
		for _, n := range v.Stats().Removals {
			for reason := range n {
				switch {
				case hook.Reason(reason) == hook.ReasonReleased:
					released += n[reason][telemetry.Ready] + n[reason][telemetry.Routed]
				case !telemetry.Moved(hook.Reason(reason)):
					deadLettered += n[reason][telemetry.DeadLettered]
				}
			}
			for _, count := range n[hook.ReasonExpired] {
				expired += count
			}
		}
	}
	h := sum.AllDeliveries()
	delivered := h[session.Delivered] + h[session.DeliveredNoAck] + h[session.Got] + h[session.GotNoAck]
	return []uint64{sum.Published, delivered, h[session.Acked], expired, deadLettered, released}
}
