package mgmt

import (
	"cmp"
	"slices"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/session"
)

type consumerRef struct {
	session.ConsumerInfo
	active bool
}

func (a *queueHandlers) consumers(c *request) error {
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
	return list(c, listing[consumerRef]{
		items: all, object: func(r consumerRef) object { return a.describeConsumer(r.ConsumerInfo, r.active) },
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

func (a *queueHandlers) describeConsumer(info session.ConsumerInfo, active bool) object {
	cfg := info.Queue.Config()
	peerHost, peerPort := splitAddress(info.Conn.Peer.Address)
	return object{
		{"consumer_tag", info.Tag},
		{"queue", object{{"name", cfg.Name}, {"vhost", cfg.VHost}}},
		{"ack_required", !info.NoAck},
		{"exclusive", info.Exclusive},
		{"prefetch_count", int(info.Prefetch)},
		{"delivery_lease", millisOrNull(info.DeliveryLease)},
		{"arguments", jsonobj.OfTable(info.Arguments)},
		{"active", active},
		{"activity_status", activity(cfg, active)},
		{"channel_details", object{
			{"name", channelName(info.Conn.Name(), info.Channel)},
			{"number", int(info.Channel)},
			{"connection_name", info.Conn.Name()},
			{"node", a.node},
			{"peer_host", peerHost},
			{"peer_port", peerPort},
			{"user", info.Conn.User},
		}},
	}
}

func activity(cfg *queue.Config, active bool) string {
	switch {
	case !cfg.SingleActive:
		return "up"
	case active:
		return "single_active"
	}
	return "waiting"
}
