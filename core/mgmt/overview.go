package mgmt

import (
	"net"
	"strconv"

	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/vhost"
)

// speaks is the version of RabbitMQ whose API this is, for tools that ask before they use something.
const speaks = "3.13.7"

// visible lists the vhosts that the user may see into.
func (c *request) visible() []*vhost.VHost {
	if c.vhost != nil {
		return []*vhost.VHost{c.vhost}
	}
	var all []*vhost.VHost
	for _, v := range c.api.Store.VHosts() {
		if c.mayEnter(v.Name()) {
			all = append(all, v)
		}
	}
	return all
}

func (a *API) overview(c *request) error {
	o := object{
		{"management_version", speaks},
		{"rabbitmq_version", speaks},
		{"product_name", a.Product},
		{"product_version", a.Version},
		{"rates_mode", "basic"},
		{"exchange_types", exchangeTypes()},
		{"cluster_name", a.cluster()},
		{"node", a.Node},
		{"disable_stats", c.query.noStats},
		{"enable_queue_totals", c.query.queueTotals},
		{"statistics_db_event_queue", 0},
		{"object_totals", a.objectTotals(c)},
	}
	if isMonitor(c.user) {
		o.add("listeners", a.listeners())
		o.add("contexts", a.contexts())
	}
	if c.query.noStats {
		return c.reply(o)
	}
	o.add("message_stats", a.messageStats(c))
	o.add("churn_rates", a.churn())
	o.add("queue_totals", a.queueTotals(c))
	return c.reply(o)
}

func exchangeTypes() []object {
	var all []object
	for _, name := range []string{"direct", "fanout", "headers", "topic"} {
		all = append(all, object{
			{"name", name}, {"description", "AMQP " + name + " exchange, as per the AMQP specification"}, {"enabled", true},
		})
	}
	return all
}

// listeners are what the broker listens on.
func (a *API) listeners() []object {
	all := []object{}
	for _, l := range a.Listeners() {
		host, _, _ := net.SplitHostPort(l.Address.String()) // "" if it is none
		all = append(all, object{
			{"node", a.Node}, {"protocol", l.Protocol}, {"ip_address", host}, {"port", l.port()}, {"socket_opts", object{}},
		})
	}
	return all
}

// contexts are the listeners of this API.
func (a *API) contexts() []object {
	all := []object{}
	for _, l := range a.Listeners() {
		if l.Protocol != "http" && l.Protocol != "https" {
			continue
		}
		host, _, _ := net.SplitHostPort(l.Address.String()) // "" if it is none
		all = append(all, object{
			{"node", a.Node}, {"description", a.Product + " Management"}, {"path", "/"}, {"ip", host}, {"port", strconv.Itoa(l.port())},
		})
	}
	return all
}

func (a *API) objectTotals(c *request) object {
	exchanges, queues, consumers := 0, 0, 0
	for _, v := range c.visible() {
		s := v.Stats()
		exchanges += s.Exchanges
		queues += s.Queues
	}
	connections, channels := 0, 0
	for _, l := range c.links() {
		connections++
		for _, ch := range l.Session().Channels() {
			channels++
			consumers += ch.Consumers
		}
	}
	return object{
		{"channels", channels}, {"connections", connections}, {"consumers", consumers}, {"exchanges", exchanges}, {"queues", queues},
	}
}

// totals of what the users' view makes up have meters of their own.
type (
	overviewKey struct{ user string }
	totalsKey   struct{ user string }
	churnKey    struct{}
)

// messageStats sums up what happened on channels, those that are closed included.
func (a *API) messageStats(c *request) object {
	by := a.tallies()
	var sum session.Counters
	for _, v := range c.visible() {
		t := by[v.Name()]
		sum.Add(&t)
	}
	return a.meters.stats(nil, overviewKey{c.user.Name}, channelCounts(&sum))
}

// tallies sums up what channels have counted by vhost.
func (a *API) tallies() map[string]session.Counters {
	by := a.AMQP.Sessions().ClosedCounters()
	if by == nil {
		by = map[string]session.Counters{}
	}
	for _, l := range a.AMQP.OpenConns() {
		sum, own := by[l.VHost], l.Session().Counters()
		sum.Add(&own)
		by[l.VHost] = sum
	}
	return by
}

// channelCounts are RabbitMQ's names for what is counted on channels.
func channelCounts(t *session.Counters) []tallied {
	h := t.AllDeliveries()
	return []tallied{
		{"ack", int64(h[session.Acked])},
		{"confirm", int64(t.Confirmed)},
		{"deliver", int64(h[session.Delivered])},
		{"deliver_get", int64(h[session.Delivered] + h[session.DeliveredNoAck] + h[session.Got] + h[session.GotNoAck])},
		{"deliver_no_ack", int64(h[session.DeliveredNoAck])},
		{"drop_unroutable", int64(t.Dropped)},
		{"get", int64(h[session.Got])},
		{"get_empty", int64(h[session.GetEmpty])},
		{"get_no_ack", int64(h[session.GotNoAck])},
		{"publish", int64(t.Published)},
		{"redeliver", int64(h[session.Redelivered])},
		{"return_unroutable", int64(t.Returned)},
	}
}

func (a *API) churn() object {
	ch := a.AMQP.Sessions().Churn()
	var declared, created, deleted uint64
	for _, v := range a.Store.VHosts() {
		n := v.Churn()
		declared += n.QueuesDeclared
		created += n.QueuesCreated
		deleted += n.QueuesDeleted
	}
	return a.meters.stats(nil, churnKey{}, []tallied{
		{"channel_closed", int64(ch.ChannelsClosed.Load())},
		{"channel_created", int64(ch.ChannelsOpened.Load())},
		{"connection_closed", int64(ch.ConnectionsClosed.Load())},
		{"connection_created", int64(ch.ConnectionsOpened.Load())},
		{"queue_created", int64(created)},
		{"queue_declared", int64(declared)},
		{"queue_deleted", int64(deleted)},
	})
}

// queueTotals sums up what lies in queues.
func (a *API) queueTotals(c *request) object {
	var sum depth
	for _, v := range c.visible() {
		sum.addAll(v)
	}
	return a.meters.stats(nil, totalsKey{c.user.Name}, sum.counts())
}
