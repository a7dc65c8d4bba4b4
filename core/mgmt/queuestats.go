package mgmt

import (
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/sdk/hook"
)

// depth is how many messages queues hold, in the order of depthNames. Dead letters that wait for a confirm count in the total
// only: no consumer gets them.
type depth [4]int64

// depthNames are the names of the counts, and of their rates.
var depthNames = [len(depth{})][2]any{
	{"messages", "messages_details"},
	{"messages_ready", "messages_ready_details"},
	{"messages_unacknowledged", "messages_unacknowledged_details"},
	{"messages_held", "messages_held_details"},
}

func (d *depth) add(s *queue.Stats) {
	d[0] += int64(s.Ready + s.Unacked + s.Held + s.Discarded)
	d[1] += int64(s.Ready)
	d[2] += int64(s.Unacked)
	d[3] += int64(s.Held)
}

// depthOf adds up the queues of vhosts.
func depthOf(vs ...*vhost.VHost) (d depth) {
	add := func(q *queue.Queue) { // one closure for all queues
		s := q.Stats()
		d.add(&s)
	}
	for _, v := range vs {
		for _, m := range v.Mailboxes() {
			_ = m.Look(add) // it fails if the queue was deleted
		}
	}
	return d
}

func (d depth) counts() []namedCount {
	counts := make([]namedCount, len(d), len(d)+8) // with capacity for queueCounts
	for i, name := range depthNames {
		counts[i] = namedCount{name[0], name[1], d[i]}
	}
	return counts
}

// queueSnapshot is a queue at one moment.
type queueSnapshot struct {
	queue.Stats
	head      queue.Head // zero without messages
	stopped   bool
	exclusive string // tag of the exclusive consumer
	single    string // tag of the single active consumer
}

// look returns a snapshot of a queue. It fails if the queue was deleted.
func look(m *queue.Mailbox) (s queueSnapshot, err error) {
	single := m.Config().SingleActive
	err = m.Look(func(q *queue.Queue) {
		s.Stats = q.Stats()
		s.head, _ = q.Head()
		s.stopped = q.Stopped() != nil
		for _, c := range q.Consumers() {
			if c.Exclusive {
				s.exclusive = c.Tag
			}
			if single && c.Active {
				s.single = c.Tag
			}
		}
	})
	return s, err
}

func (s *queueSnapshot) state() string {
	if s.stopped {
		return "stopped"
	}
	return "running"
}

// queueKey is the key of a queue's rates. A queue that is declared anew has another mailbox, and begins with none.
type queueKey struct{ mailbox *queue.Mailbox }

// appendStats appends the members of a queue's object that change all the time.
func (a *queueHandlers) appendStats(o object, c *request, r queueRef, s queueSnapshot) object {
	o = append(
		o,
		member{"state", s.state()}, member{"consumers", s.Consumers},
		member{"exclusive_consumer_tag", jsonobj.OrNull(s.exclusive)}, member{"single_active_consumer_tag", jsonobj.OrNull(s.single)},
		member{"recoverable_slaves", nil}, member{"message_bytes_ready", s.ReadyBytes},
		member{"messages_persistent", s.Persistent}, member{"messages_ram", s.InMemory},
		member{"next_deadline", jsonobj.Instant(s.NextDeadline)}, member{"next_release", jsonobj.Instant(s.NextRelease)}, member{"lease_expires_at", jsonobj.Instant(s.LeaseExpires)},
		member{"messages_expired", s.Expired()},
		member{"messages_dead_lettered", byReason(&s.DeadLettered)}, member{"messages_dropped", byReason(&s.Dropped)},
		member{"messages_redriven", s.DeadLettered[hook.ReasonRedriven]}, member{"messages_cancelled", s.Dropped[hook.ReasonCancelled]},
		member{"delivery_leases_ended", s.LeasesEnded},
	)
	o = appendOwner(c, appendHead(o, a.clock().Add(r.vhost.Offset()), &s.head), r)
	var d depth
	d.add(&s.Stats)
	depths := d.counts()
	if !c.query.wants("message_stats", "messages_details", "messages_ready_details", "messages_unacknowledged_details", "messages_held_details") {
		return appendCounts(o, depths)
	}
	counts := append(depths, queueCounts(&s.Counters)...)
	rates, known := a.meters.ratesOf(queueKey{r.mailbox}, counts)
	ofDepths, ofCounts := rates[:len(depths)], rates[len(depths):]
	if !known && c.query.unknown {
		ofDepths, ofCounts = nil, nil
	}
	o = appendRates(o, depths, ofDepths)
	return append(o, member{"message_stats", appendRates(nil, counts[len(depths):], ofCounts)})
}

// appendHead appends the members about the message at the head of a queue. now is in the queue's time.
func appendHead(o object, now hook.Instant, h *queue.Head) object {
	var age, timestamp any
	if h.Oldest != 0 {
		age = max(now.Sub(h.Oldest).Milliseconds(), 0)
	}
	if h.Timestamp != 0 {
		timestamp = h.Timestamp
	}
	return append(o, member{"oldest_message_age", age}, member{"head_message_timestamp", timestamp})
}

// appendOwner names the connection that owns an exclusive queue.
func appendOwner(c *request, o object, r queueRef) object {
	if !r.cfg.Exclusive {
		return o
	}
	owner, ok := c.connectionsByID()[r.vhost.OwnerOf(r.cfg.Name)]
	if !ok {
		return o
	}
	return append(o, member{"owner_pid_details", connectionDetails(&owner)})
}

// connectionsByID returns the open connections as they were when the request first asked.
func (c *request) connectionsByID() map[vhost.Owner]wire.OpenConn {
	if c.byID == nil {
		c.byID = map[vhost.Owner]wire.OpenConn{}
		for _, conn := range c.api.AMQP.OpenConns() {
			c.byID[conn.ID] = conn
		}
	}
	return c.byID
}

// reasonNames are the names of reasons, as values of members: see namedCount.
var reasonNames = func() (names [hook.Reasons]any) {
	for r := range hook.Reasons {
		names[r] = r.String()
	}
	return names
}()

// byReason returns counts by reason, without messages that left on request or were released: these have members of their own.
func byReason(n *[hook.Reasons]uint64) object {
	o := make(object, 0, hook.Reasons-1)
	for r := hook.ReasonNone + 1; r < hook.Reasons; r++ {
		if r != hook.ReasonReleased && r != hook.ReasonRedriven && r != hook.ReasonCancelled {
			o = append(o, member{reasonNames[r], n[r]})
		}
	}
	return o
}

// queueCounts returns a queue's counters by RabbitMQ's names. Messages that basic.get fetched count as delivered.
func queueCounts(n *queue.Counters) []namedCount {
	return []namedCount{
		{"ack", "ack_details", int64(n.Acked)},
		{"deliver", "deliver_details", int64(n.Delivered)},
		{"deliver_get", "deliver_get_details", int64(n.Delivered + n.DeliveredNoAck)},
		{"deliver_no_ack", "deliver_no_ack_details", int64(n.DeliveredNoAck)},
		{"publish", "publish_details", int64(n.Published)},
		{"redeliver", "redeliver_details", int64(n.Redelivered)},
	}
}
