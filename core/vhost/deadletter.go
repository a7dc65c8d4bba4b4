package vhost

import (
	"bytes"
	"slices"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// DeadLetter republishes dead letters to the exchanges that their targets name. A message is dropped if its exchange does not
// exist or routes it to no queue; it does not enter a queue where it would close a cycle [RabbitMQ: dlx.html]. Messages for the
// same queue leave as one batch, in order.
func (h *queueHost) DeadLetter(from *queue.Config, now hook.Instant, ds []queue.DeadLetter, t queue.Tracking) {
	r := deadLetterRuns.Get().(*deadLetterRun)
	r.vhost = (*VHost)(h)
	r.deaths.queue, r.deaths.now = from.Name, now
	for i := range ds {
		if i > 0 && r.route.fit.applies() && alike(&ds[i-1], &ds[i]) {
			r.routeAlike(&ds[i-1], ds[i:])
			continue
		}
		r.routeOne(ds[i:])
	}
	r.out.publish(t)
	r.release()
}

// deadLetterRun republishes the dead letters of one call. Runs are pooled for their buffers.
type deadLetterRun struct {
	vhost  *VHost
	deaths deathWriter
	block  blockWriter
	route  routeMemo
	out    outgoing

	props   []byte        // of the current message, with its death added
	message parts.Message // the current one, for routing

	sent  queue.Message // what the last message was republished as, if to any queue
	slots []int         // the batches in out that it was added to
}

var deadLetterRuns = sync.Pool{New: func() any {
	r := &deadLetterRun{}
	r.out.index = map[*queue.Mailbox]int{}
	return r
}}

// routeOne republishes ds[0]. The others are still to come; block sizes are chosen for all of them.
func (r *deadLetterRun) routeOne(ds []queue.DeadLetter) {
	d := &ds[0]
	idx, err := amqp.IndexProps(d.Props)
	if err != nil { // cannot happen: the session checked them
		d.Outcome = telemetry.Unroutable
		return
	}
	cc := ccKeys(d, idx.Headers(d.Props))
	known := r.route.appliesTo(d, cc)
	if !known || len(r.route.queues) > 0 {
		r.block.reserve(len(d.Props)+len(d.Body)+deathSize, ds)
		r.props = r.deaths.append(r.block.free(), d, cc)
	}
	if !known {
		r.resolve(d, cc)
	}
	if d.Outcome = r.route.outcome; d.Outcome == telemetry.DeadLettered {
		r.send(d, &idx)
	}
}

// routeMemo is where the last message went. The next message often goes there, too.
type routeMemo struct {
	target   *hook.Target
	key      []byte
	reusable bool // target and key alone decided the route
	fit      reuse

	outcome telemetry.Outcome // for all its messages, unless there is a cycle
	routing *queue.RoutingInfo
	queues  []*queue.Mailbox
	slots   []int // of queues, in outgoing
}

// appliesTo reports whether d, with these CC keys, goes where the last message went.
func (m *routeMemo) appliesTo(d *queue.DeadLetter, cc []string) bool {
	if !m.reusable || m.target != d.Target {
		return false
	}
	return d.Target.HasKey || len(cc)+len(d.BCC) == 0 && string(m.key) == string(d.Key)
}

// resolve finds the queues that d goes to.
func (r *deadLetterRun) resolve(d *queue.DeadLetter, cc []string) {
	m := &r.message
	*m = parts.Message{Key: d.Target.Key, Props: r.props, Body: d.Body, Now: r.deaths.now, Admitted: d.Admitted}
	routing := &queue.RoutingInfo{Exchange: d.Target.Exchange, Key: d.Target.Key}
	if !d.Target.HasKey {
		m.Key, m.More = string(d.Key), slices.Concat(cc, d.BCC)
		routing.Key, routing.CC, routing.BCC = m.Key, cc, slices.Clone(d.BCC)
	}
	memo := &r.route
	memo.queues, memo.fit, memo.outcome = r.vhost.routeInternal(d.Target.Exchange, m, memo.queues[:0])
	d.Admitted = d.Admitted || m.Passed
	memo.target, memo.key, memo.routing = d.Target, append(memo.key[:0], m.Key...), routing
	memo.reusable = memo.fit == sameKeys && len(m.More) == 0
	memo.slots = memo.slots[:0]
	for _, q := range memo.queues {
		memo.slots = append(memo.slots, r.out.slot(q))
	}
}

// send adds d to the batches of its queues, except where it would close a cycle.
func (r *deadLetterRun) send(d *queue.DeadLetter, idx *amqp.PropIndex) {
	history := r.deaths.recorder.History()
	r.slots = r.slots[:0]
	for i, q := range r.route.queues {
		if name := q.Config().Name; history.Cycle(name) {
			r.vhost.warnOfCycle(history, name)
			continue
		}
		r.slots = append(r.slots, r.route.slots[i])
	}
	if len(r.slots) == 0 {
		d.Outcome = telemetry.Cycle
		return
	}
	m := queue.Message{
		Routing: r.route.routing, Seq: d.Seq, Props: r.block.commit(r.props),
		Flags: d.Flags&(queue.Persistent|queue.Traced) | queue.HasDeathHistory | queue.HasHeaders,
	}
	if priority, ok := idx.Priority(d.Props); ok {
		m.Priority, m.Flags = priority, m.Flags|queue.HasPriority
	}
	d.Outcome = telemetry.DeadLettered
	r.add(d, m)
}

// add adds m, with d's body, to the batches in slots.
func (r *deadLetterRun) add(d *queue.DeadLetter, m queue.Message) {
	m.Body = r.block.copy(d.Body)
	for _, slot := range r.slots {
		r.out.add(slot, m, r.block.block)
	}
	r.sent, d.Sent = m, len(r.slots)
}

// alike reports whether b differs from a in nothing but body and number. Messages that leave a queue together mostly do: one
// client published them, and they died of one cause. Then only the first of them is routed and gets its death written; the
// others share its properties.
func alike(a, b *queue.DeadLetter) bool {
	return a.Target == b.Target && a.Reason == b.Reason && a.Flags == b.Flags && len(a.BCC)+len(b.BCC) == 0 &&
		bytes.Equal(a.Props, b.Props) && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Exchange, b.Exchange)
}

// routeAlike republishes ds[0], which is alike the message before it, to the same queues.
func (r *deadLetterRun) routeAlike(before *queue.DeadLetter, ds []queue.DeadLetter) {
	d := &ds[0]
	d.Outcome = before.Outcome
	if before.Sent == 0 {
		return
	}
	m := r.sent
	m.Seq = d.Seq
	r.block.reserve(len(d.Body), ds) // the batches hold the block that has the properties
	r.add(d, m)
}

// release returns r to the pool. It retains no queue and no message.
func (r *deadLetterRun) release() {
	r.out.reset()
	r.block.release()
	clear(r.deaths.keys[:cap(r.deaths.keys)])
	clear(r.route.queues)
	r.route = routeMemo{key: r.route.key, queues: r.route.queues[:0], slots: r.route.slots}
	r.vhost, r.props, r.message, r.sent = nil, nil, parts.Message{}, queue.Message{}
	deadLetterRuns.Put(r)
}
