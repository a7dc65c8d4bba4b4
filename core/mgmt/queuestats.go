package mgmt

import (
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// queueSnapshot is a queue at one moment.
type queueSnapshot struct {
	queue.Stats
	head      queue.Head // zero without messages
	stopped   bool
	exclusive string // tag of the consumer that has the queue to itself
	single    string // tag of the single active consumer
}

func look(shell *queue.Mailbox) (l queueSnapshot, err error) {
	single := shell.Config().SingleActive
	err = shell.Look(func(q *queue.Queue) {
		l.Stats = q.Stats()
		l.head, _ = q.Head()
		l.stopped = q.Stopped() != nil
		if l.Consumers == 0 {
			return
		}
		first := q.Consumers()[0]
		if first.Exclusive {
			l.exclusive = first.Tag
		}
		if single {
			l.single = first.Tag
		}
	})
	return l, err
}

func (l *queueSnapshot) state() string {
	if l.stopped {
		return "stopped"
	}
	return "running"
}

func (l *queueSnapshot) depth() depth {
	return depth{ready: int64(l.Ready), unacked: int64(l.Unacked), discarded: int64(l.Discarded)}
}

// queueKey is the meter of a queue, for as long as it is that queue.
type queueKey struct{ shell *queue.Mailbox }

// queueStats adds what changes all the time.
func (a *API) queueStats(c *request, o object, r queueRef, l queueSnapshot) object {
	d := l.depth()
	o = append(
		o,
		member{"state", l.state()}, member{"consumers", l.Consumers}, member{"exclusive_consumer_tag", nullable(l.exclusive)},
		member{"single_active_consumer_tag", nullable(l.single)}, member{"recoverable_slaves", nil},
		member{"message_bytes_ready", l.ReadyBytes},
		member{"next_deadline", instant(l.NextDeadline)}, member{"lease_expires_at", instant(l.LeaseExpires)},
		member{"messages_expired", expired(&l.Counters)},
		member{"messages_dead_lettered", byReason(&l.DeadLettered)}, member{"messages_dropped", byReason(&l.Dropped)},
	)
	o = a.appendHead(o, &l)
	o = c.appendOwner(o, r)
	depths := d.counts()
	counts := append(depths, queueCounts(&l.Counters)...)
	if !c.query.wants("message_stats", "messages_details", "messages_ready_details", "messages_unacknowledged_details") {
		return appendCounts(o, depths)
	}
	rates := a.meters.ratesOf(queueKey{r.shell}, counts)
	o = appendRates(o, depths, rates)
	return append(o, member{"message_stats", appendRates(nil, counts[len(depths):], rates[len(depths):])})
}

// appendHead tells of the message that is next.
func (a *API) appendHead(o object, l *queueSnapshot) object {
	var age, timestamp any
	if l.head.Oldest != 0 {
		age = max(a.Clock().Sub(l.head.Oldest).Milliseconds(), 0)
	}
	if l.head.Timestamp != 0 {
		timestamp = l.head.Timestamp
	}
	return append(o, member{"oldest_message_age", age}, member{"head_message_timestamp", timestamp})
}

// appendOwner names the connection that has an exclusive queue.
func (c *request) appendOwner(o object, r queueRef) object {
	if !r.cfg.Exclusive {
		return o
	}
	l, ok := c.owners()[r.vhost.OwnerOf(r.cfg.Name)]
	if !ok {
		return o
	}
	host, port := splitAddress(l.Peer.Address)
	return append(o, member{"owner_pid_details", object{{"name", l.Name()}, {"peer_host", host}, {"peer_port", port}}})
}

// owners are the open connections by their numbers, as they were when the request first asked.
func (c *request) owners() map[vhost.Owner]wire.OpenConn {
	if c.owning == nil {
		c.owning = map[vhost.Owner]wire.OpenConn{}
		for _, l := range c.api.AMQP.OpenConns() {
			c.owning[l.ID] = l
		}
	}
	return c.owning
}

// instant is milliseconds since the epoch, null for none.
func instant(t hook.Instant) any {
	if t == 0 {
		return nil
	}
	return millis(t)
}

func millis(t hook.Instant) int64 { return t.Time().UnixMilli() }

// expired counts the messages the time of which ran out, whatever became of them.
func expired(n *queue.Counters) uint64 {
	return n.Dropped[hook.ReasonExpired] + n.DeadLettered[hook.ReasonExpired]
}

func byReason(n *[hook.Reasons]uint64) object {
	o := object{}
	for r := hook.ReasonNone + 1; r < hook.Reasons; r++ {
		o.add(r.String(), n[r])
	}
	return o
}

// queueCounts are RabbitMQ's names for what a queue counts. Messages that were fetched count as delivered.
func queueCounts(n *queue.Counters) []tallied {
	return []tallied{
		{"ack", int64(n.Acked)},
		{"deliver", int64(n.Delivered)},
		{"deliver_get", int64(n.Delivered + n.DeliveredNoAck)},
		{"deliver_no_ack", int64(n.DeliveredNoAck)},
		{"publish", int64(n.Published)},
		{"redeliver", int64(n.Redelivered)},
	}
}

// definitionObject shows the definition of a policy.
func definitionObject(d policies.Definition) object {
	o := make(object, len(d))
	for i, e := range d {
		o[i] = member{e.Key, jsonValue(e.Value)}
	}
	return o
}

// jsonValue is a value of JSON as an object may have it.
func jsonValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		o := make(object, 0, len(v))
		for name, it := range v {
			o.add(name, jsonValue(it))
		}
		o.sort()
		return o
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = jsonValue(v[i])
		}
		return all
	}
	return v
}
