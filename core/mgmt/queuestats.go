package mgmt

import (
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/report"
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
	counts := make([]namedCount, len(d))
	for i, name := range depthNames {
		counts[i] = namedCount{name[0], name[1], d[i]}
	}
	return counts
}

// lookAt notes in a row how the queue is.
func (a *API) lookAt(c *request, r queueRef, row *report.Queue) {
	single := r.cfg.SingleActive
	row.Seen = true
	row.Gone = r.mailbox.Look(func(q *queue.Queue) {
		row.Stats = q.Stats()
		row.Head, _ = q.Head()
		row.Stopped = q.Stopped() != nil
		for _, c := range q.Consumers() {
			if c.Exclusive {
				row.ExclusiveTag = c.Tag
			}
			if single && c.Active {
				row.SingleActiveTag = c.Tag
			}
		}
	}) != nil
	if row.Gone || c.query.noStats {
		return
	}
	row.Now = a.Clock().Add(r.vhost.Offset())
	if r.cfg.Exclusive {
		if owner, ok := c.connectionsByID()[r.vhost.OwnerOf(r.cfg.Name)]; ok {
			row.Owner = &report.Peer{Name: owner.Name(), Address: owner.Peer.Address}
		}
	}
	if c.query.wantsRates() {
		counts := countsOf(&row.Stats)
		row.Rates = a.meters.ratesOf(queueKey{r.mailbox}, counts[:])
	}
}

func stateOf(r *report.Queue) string {
	if r.Stopped {
		return "stopped"
	}
	return "running"
}

// queueKey is the key of a queue's rates. A queue that is declared anew has another mailbox, and begins with none.
type queueKey struct{ mailbox *queue.Mailbox }

// wantsRates reports whether members of queues are needed that have rates, or go with those that have.
func (q *query) wantsRates() bool {
	return q.wants("message_stats", "messages_details", "messages_ready_details", "messages_unacknowledged_details", "messages_held_details")
}

// countsOf returns what rates of a queue are of: its depths, and then its counters by RabbitMQ's names. Messages that basic.get fetched count as
// delivered. It is an array, which costs no allocation for each queue.
func countsOf(s *queue.Stats) [len(depth{}) + 6]namedCount {
	var d depth
	d.add(s)
	at := func(i int) namedCount { return namedCount{depthNames[i][0], depthNames[i][1], d[i]} }
	return [...]namedCount{
		at(0), at(1), at(2), at(3),
		{"ack", "ack_details", int64(s.Acked)},
		{"deliver", "deliver_details", int64(s.Delivered)},
		{"deliver_get", "deliver_get_details", int64(s.Delivered + s.DeliveredNoAck)},
		{"deliver_no_ack", "deliver_no_ack_details", int64(s.DeliveredNoAck)},
		{"publish", "publish_details", int64(s.Published)},
		{"redeliver", "redeliver_details", int64(s.Redelivered)},
	}
}

// appendStats appends the members of a queue's object that change all the time.
func appendStats(o object, q *query, r *report.Queue) object {
	o = append(
		o,
		member{"state", stateOf(r)}, member{"consumers", r.Consumers},
		member{"exclusive_consumer_tag", jsonobj.OrNull(r.ExclusiveTag)}, member{"single_active_consumer_tag", jsonobj.OrNull(r.SingleActiveTag)},
		member{"recoverable_slaves", nil}, member{"message_bytes_ready", r.ReadyBytes},
		member{"messages_persistent", r.Persistent}, member{"messages_ram", r.InMemory},
		member{"next_deadline", jsonobj.Instant(r.NextDeadline)}, member{"next_release", jsonobj.Instant(r.NextRelease)}, member{"lease_expires_at", jsonobj.Instant(r.LeaseExpires)},
		member{"messages_expired", r.Expired()},
		member{"messages_dead_lettered", byReason(&r.DeadLettered)}, member{"messages_dropped", byReason(&r.Dropped)},
		member{"messages_redriven", r.DeadLettered[hook.ReasonRedriven]}, member{"messages_cancelled", r.Dropped[hook.ReasonCancelled]},
		member{"delivery_leases_ended", r.LeasesEnded},
	)
	o = appendHead(o, r.Now, &r.Head)
	if r.Owner != nil {
		o = append(o, member{"owner_pid_details", peerDetails(r.Owner)})
	}
	counts := countsOf(&r.Stats)
	depths, counters := counts[:len(depth{})], counts[len(depth{}):]
	if !q.wantsRates() {
		return appendCounts(o, depths)
	}
	rates := q.shown(r.Rates)
	after := min(len(depths), len(rates))
	o = appendRates(o, depths, rates[:after])
	return append(o, member{"message_stats", appendRates(make(object, 0, 2*len(counters)), counters, rates[after:])})
}

// appendHead appends what is known of the message at the head of a queue whose time is now.
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

// byReason shows counts by reason, without those of messages that left on request or were released: they have members of their own.
func byReason(n *[hook.Reasons]uint64) object {
	o := make(object, 0, hook.Reasons-1)
	for r := hook.ReasonNone + 1; r < hook.Reasons; r++ {
		if r != hook.ReasonReleased && r != hook.ReasonRedriven && r != hook.ReasonCancelled {
			o = append(o, member{reasonNames[r], n[r]})
		}
	}
	return o
}
