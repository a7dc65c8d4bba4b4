package mgmt

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/curfewmq/curfew/core/queue"
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
		for _, shell := range v.Mailboxes() {
			all = append(all, consumersOf(shell)...)
		}
	}
	slices.SortFunc(all, func(x, y consumerRef) int {
		p, q := x.Queue.Config(), y.Queue.Config()
		return cmp.Or(cmp.Compare(p.VHost, q.VHost), cmp.Compare(p.Name, q.Name), cmp.Compare(x.Tag, y.Tag))
	})
	return list(c, listing[consumerRef]{
		items: all, name: func(r consumerRef) string { return r.Tag },
		object: func(r consumerRef) object { return a.describeConsumer(r.ConsumerInfo, r.active) },
	})
}

func (a *API) consumersIn(c *request) error { return a.consumers(c) }

// consumersOf lists the consumers of a queue in the order they came.
func consumersOf(shell *queue.Mailbox) (all []consumerRef) {
	var served []queue.ConsumerStatus
	if shell.Look(func(q *queue.Queue) { served = q.Consumers() }) != nil {
		return nil
	}
	for _, s := range served {
		if info, ok := session.ConsumerOf(s.Consumer); ok && info.Conn != nil {
			all = append(all, consumerRef{info, s.Active})
		}
	}
	return all
}

// isActive reports whether a consumer's turn can come.
func isActive(info session.ConsumerInfo) (active bool) {
	if !info.Queue.Config().SingleActive {
		return true
	}
	_ = info.Queue.Look(func(q *queue.Queue) { // an error means that it is gone, and its consumers with it
		for _, s := range q.Consumers() {
			active = active || s.Active && s.Consumer == info.Consumer
		}
	})
	return active
}

func (a *API) describeConsumer(info session.ConsumerInfo, active bool) object {
	cfg := info.Queue.Config()
	connection := info.Conn.Name()
	peerHost, peerPort := splitAddress(info.Conn.Peer.Address)
	return object{
		{"consumer_tag", info.Tag},
		{"queue", object{{"name", cfg.Name}, {"vhost", cfg.VHost}}},
		{"ack_required", !info.NoAck},
		{"exclusive", info.Exclusive},
		{"prefetch_count", int(info.Prefetch)},
		{"arguments", tableObject(info.Arguments)},
		{"active", active},
		{"activity_status", activity(cfg, active)},
		{"channel_details", object{
			{"name", connection + " (" + strconv.Itoa(int(info.Channel)) + ")"},
			{"number", int(info.Channel)},
			{"connection_name", connection},
			{"node", a.Node},
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
