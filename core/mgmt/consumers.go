package mgmt

import (
	"cmp"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/report"
	"github.com/curfewmq/curfew/core/session"
)

// consumerRef is a consumer of a queue.
type consumerRef struct {
	session.ConsumerInfo
	active bool
}

func (a *API) consumers(c *request) error {
	var all []consumerRef
	for _, v := range c.visible() {
		for _, m := range v.Mailboxes() {
			all = append(all, consumersOf(m)...)
		}
	}
	slices.SortFunc(all, func(x, y consumerRef) int {
		p, q := x.Queue.Config(), y.Queue.Config()
		return cmp.Or(cmp.Compare(p.VHost, q.VHost), cmp.Compare(p.Name, q.Name), cmp.Compare(x.Tag, y.Tag))
	})
	return list(c, listing[consumerRef, report.Consumer]{
		items: all, row: a.consumerRow, object: describeConsumer,
		name:  func(r consumerRef) string { return r.Tag },
		vhost: func(r consumerRef) string { return r.Queue.Config().VHost },
	})
}

// consumersOf lists the consumers of a queue in the order in which they came.
func consumersOf(m *queue.Mailbox) (all []consumerRef) {
	var consumers []queue.ConsumerStatus
	if m.Look(func(q *queue.Queue) { consumers = q.Consumers() }) != nil {
		return nil
	}
	for _, s := range consumers {
		if info, ok := session.ConsumerOf(s.Consumer); ok && info.Conn != nil {
			all = append(all, consumerRef{info, s.Active})
		}
	}
	return all
}

// isActive reports whether a consumer can get messages: not every one can where a single consumer is active.
func isActive(info session.ConsumerInfo) (active bool) {
	if !info.Queue.Config().SingleActive {
		return true
	}
	_ = info.Queue.Look(func(q *queue.Queue) { // it fails if the queue was deleted, and its consumers with it
		for _, s := range q.Consumers() {
			active = active || s.Active && s.Consumer == info.Consumer
		}
	})
	return active
}

// consumerRow returns a consumer as it is.
func (a *API) consumerRow(r consumerRef) report.Consumer {
	cfg := r.Queue.Config()
	return report.Consumer{
		Connection: peerOf(r.Conn), Channel: r.Channel, Node: a.Node, User: r.Conn.User, Queue: cfg.Name, VHost: cfg.VHost,
		Tag: r.Tag, NoAck: r.NoAck, Exclusive: r.Exclusive, Prefetch: r.Prefetch, DeliveryLease: r.DeliveryLease, Arguments: report.Table(r.Arguments),
		SingleActive: cfg.SingleActive, Active: r.active,
	}
}

func describeConsumer(r report.Consumer) object {
	peerHost, peerPort := splitAddress(r.Connection.Address)
	return object{
		{"consumer_tag", r.Tag},
		{"queue", object{{"name", r.Queue}, {"vhost", r.VHost}}},
		{"ack_required", !r.NoAck},
		{"exclusive", r.Exclusive},
		{"prefetch_count", int(r.Prefetch)},
		{"delivery_lease", millisOrNull(r.DeliveryLease)},
		{"arguments", jsonobj.OfTable(amqp.Table(r.Arguments))},
		{"active", r.Active},
		{"activity_status", activity(&r)},
		{"channel_details", object{
			{"name", channelName(r.Connection.Name, r.Channel)},
			{"number", int(r.Channel)},
			{"connection_name", r.Connection.Name},
			{"node", r.Node},
			{"peer_host", peerHost},
			{"peer_port", peerPort},
			{"user", r.User},
		}},
	}
}

func activity(r *report.Consumer) string {
	switch {
	case !r.SingleActive:
		return "up"
	case r.Active:
		return "single_active"
	}
	return "waiting"
}
