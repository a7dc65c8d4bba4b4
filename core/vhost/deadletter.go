package vhost

import (
	"bytes"
	"cmp"
	"slices"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// DeadLetter republishes dead letters to the exchanges that their targets name. A message
// is dropped if its exchange does not exist or routes it to no queue; it does not enter a
// queue where it would close a cycle [RabbitMQ: dlx.html]. Messages for the same queue
// leave as one batch, in order. A message that is redriven did not die: its x-death stays,
// and it closes no cycle.
func (h *queueHost) DeadLetter(from *queue.Config, now hook.Instant, ds []queue.DeadLetter, t queue.Tracking) {
	r := deadLetterRuns.Get().(*deadLetterRun)
	r.host, r.topology, r.from = h, h.topology, from
	r.deaths.queue, r.deaths.now = from.Name, now
	for i := range ds {
		if i > 0 && r.route.fit.applies() && alike(&ds[i-1], &ds[i]) {
			r.routeAlike(&ds[i-1], ds[i:])
			continue
		}
		r.routeOne(ds[i:])
	}
	r.out.publish(t, ds)
	r.release()
}

// deadLetterRun republishes the dead letters of one call. Runs are pooled for their buffers.
type deadLetterRun struct {
	host     *queueHost
	topology *topology
	from     *queue.Config
	deaths   deathWriter
	redriver death.Redriver
	block    blockWriter
	route    routeMemo
	out      outgoing

	props   []byte        // of the current message, with its death added
	message parts.Message // the current one, for routing

	sent  queue.Message      // the last message as it was republished, if to any queue
	slots []int              // the batches in out that it was added to
	fewer *telemetry.Entered // names of the queues of the last message that entered only some of its queues
}

var deadLetterRuns = sync.Pool{New: func() any {
	r := &deadLetterRun{}
	r.out.index = map[*queue.Mailbox]int{}
	return r
}}

// routeOne republishes ds[0]. The rest of ds comes later; the sizes of blocks take all of it into account.
func (r *deadLetterRun) routeOne(ds []queue.DeadLetter) {
	d := &ds[0]
	idx, err := amqp.IndexProps(d.Props)
	if err != nil { // cannot happen: the session checked them
		d.Outcome = telemetry.Unroutable
		return
	}
	cc := ccKeys(d, idx.Headers(d.Props))
	known := r.route.appliesTo(d, cc) && (d.Reason != hook.ReasonReleased || r.route.routing.Exchange == string(d.Exchange))
	if !known || len(r.route.queues) > 0 {
		r.block.reserve(len(d.Props)+len(d.Body)+deathSize, ds)
		r.props = r.appendProps(r.block.free(), d, &idx, cc)
	}
	if !known {
		r.resolve(d, cc)
	}
	if d.Outcome = r.route.outcome; d.Outcome == telemetry.DeadLettered {
		r.send(d, &idx)
	}
}

// appendProps appends d's properties to dst, with its death added.
func (r *deadLetterRun) appendProps(dst []byte, d *queue.DeadLetter, idx *amqp.PropIndex, cc []string) []byte {
	switch d.Reason {
	case hook.ReasonReleased:
		return appendReleased(dst, d.Props, idx, r.from.Schedule.Negates())
	case hook.ReasonRedriven:
	default:
		return r.deaths.append(dst, d, cc)
	}
	dst, _ = r.redriver.Append(dst, d.Props, r.deaths.now) // it fails only on properties that cannot be indexed, and these were
	return dst
}

// routeMemo is the route of the last message. The next message often has the same route.
type routeMemo struct {
	target   *hook.Target
	key      []byte
	reusable bool // target and key alone decided the route
	fit      reuse

	outcome telemetry.Outcome // of all messages with this route, unless there is a cycle
	routing *queue.RoutingInfo
	queues  []*queue.Mailbox
	slots   []int              // of queues, in outgoing
	entered *telemetry.Entered // names of queues; nil if there are none
	refuses bool               // one of the queues may refuse the message
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
	// With Mandatory, an exchange does not hold a message that it could route nowhere,
	// because the sender keeps it then.
	m.Mandatory = d.Reason == hook.ReasonRedriven || d.Target.AtLeastOnce
	routing := &queue.RoutingInfo{Exchange: d.Target.Exchange, Key: d.Target.Key}
	if !d.Target.HasKey {
		m.Key, m.More = string(d.Key), slices.Concat(cc, d.BCC)
		routing.Key, routing.CC, routing.BCC = m.Key, cc, slices.Clone(d.BCC)
	}
	memo := &r.route
	if d.Reason == hook.ReasonReleased {
		routing.Exchange = string(d.Exchange) // it may have come through another one
		memo.queues, memo.fit, memo.outcome = r.topology.routeReleased(r.from, m, memo.queues[:0])
	} else {
		memo.queues, memo.fit, memo.outcome = r.topology.routeInternal(d.Target.Exchange, m, memo.queues[:0])
	}
	d.Admitted = d.Admitted || m.Passed
	memo.target, memo.key, memo.routing = d.Target, append(memo.key[:0], m.Key...), routing
	memo.reusable = memo.fit == sameKeys && len(m.More) == 0
	memo.slots, memo.refuses = memo.slots[:0], false
	for _, q := range memo.queues {
		memo.refuses = memo.refuses || q.MayRefuse()
		memo.slots = append(memo.slots, r.out.slot(q))
	}
	memo.entered = enteredOf(memo.entered, r.out.batches, memo.slots)
}

// send adds d to the batches of its queues, except where it would close a cycle.
func (r *deadLetterRun) send(d *queue.DeadLetter, idx *amqp.PropIndex) {
	if d.Reason == hook.ReasonReleased {
		r.sendReleased(d, idx)
		return
	}
	r.slots = r.slots[:0]
	flags := d.Flags & (queue.Persistent | queue.Traced | queue.HasDeathHistory)
	if d.Reason == hook.ReasonRedriven {
		r.slots = append(r.slots, r.route.slots...)
	} else {
		r.avoidCycles()
		flags |= queue.HasDeathHistory
	}
	if len(r.slots) == 0 {
		d.Outcome = telemetry.Cycle
		return
	}
	m := queue.Message{Routing: cmp.Or(d.Routing, r.route.routing), Seq: d.Seq, Props: r.block.commit(r.props), Flags: flags | queue.HasHeaders}
	if expiration, ok := idx.Expiration(d.Props); ok && d.Reason == hook.ReasonRedriven {
		m.Expiration, _ = r.topology.chain.CheckExpiration(expiration) // the session has checked it
	}
	if priority, ok := idx.Priority(d.Props); ok {
		m.Priority, m.Flags = priority, m.Flags|queue.HasPriority
	}
	d.Outcome = telemetry.DeadLettered
	r.add(d, m)
}

// leaveOutThoseThatHave removes from slots the batches of the queues that have the message
// already.
func (r *deadLetterRun) leaveOutThoseThatHave(d *queue.DeadLetter) {
	r.slots = slices.DeleteFunc(r.slots, func(slot int) bool { return d.Has(r.out.batches[slot].mailbox) })
}

// avoidCycles sets slots to the batches of the queues where the message closes no cycle.
func (r *deadLetterRun) avoidCycles() {
	history := r.deaths.recorder.History()
	for i, q := range r.route.queues {
		// The queue of an exchange's schedule has the exchange's name, but is no queue for the cycle rule.
		if c := q.Config(); c.Schedule == nil && history.Cycle(c.Name) {
			r.host.warnOfCycle(history, c.Name)
			continue
		}
		r.slots = append(r.slots, r.route.slots[i])
	}
}

// add adds m, with d's body, to the batches in slots.
func (r *deadLetterRun) add(d *queue.DeadLetter, m queue.Message) {
	d.Entered = r.route.entered
	if len(r.slots) < len(r.route.slots) { // some of the queues would close a cycle
		d.Entered = enteredOf(r.fewer, r.out.batches, r.slots)
		r.fewer = d.Entered
	}
	if d.Partly() {
		r.leaveOutThoseThatHave(d)
	}
	m.Body = r.block.copy(d.Body)
	for _, slot := range r.slots {
		r.out.add(slot, m, r.block.block)
	}
	r.sent, d.Sent, d.MayBeRefused = m, len(r.slots), r.route.refuses && d.Reason != hook.ReasonReleased
}

// alike reports whether b differs from a only in body and number. Most messages that leave
// a queue together are alike: one client published them, and they died for the same reason.
// Then only the first message is routed and gets its death written; the others share its
// properties.
func alike(a, b *queue.DeadLetter) bool {
	return !a.Partly() && !b.Partly() && a.Target == b.Target && a.Reason == b.Reason && a.Routing == b.Routing && a.Flags == b.Flags && len(a.BCC)+len(b.BCC) == 0 &&
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
	r.host, r.topology, r.from, r.props, r.message, r.sent, r.fewer = nil, nil, nil, nil, parts.Message{}, queue.Message{}, nil
	deadLetterRuns.Put(r)
}

// outgoing collects the messages that a run republishes: one batch for each queue.
type outgoing struct {
	batches []queueBatch
	index   map[*queue.Mailbox]int // of batches; empty while they are few
}

type queueBatch struct {
	mailbox *queue.Mailbox
	batch   *queue.Batch // nil until the first message
}

// slot returns the index of a queue's batch.
func (o *outgoing) slot(m *queue.Mailbox) int {
	const few = 16
	if len(o.batches) < few {
		if i := slices.IndexFunc(o.batches, func(b queueBatch) bool { return b.mailbox == m }); i >= 0 {
			return i
		}
	} else if i, ok := o.index[m]; ok {
		return i
	}
	slot := len(o.batches)
	o.batches = append(o.batches, queueBatch{mailbox: m})
	switch {
	case slot+1 == few:
		for i, b := range o.batches {
			o.index[b.mailbox] = i
		}
	case slot+1 > few:
		o.index[m] = slot
	}
	return slot
}

// add adds a message, which refers to b, to a queue's batch.
func (o *outgoing) add(slot int, m queue.Message, b *block.Block) {
	to := &o.batches[slot]
	if to.batch == nil {
		to.batch = queue.NewBatch()
	}
	to.batch.Hold(b)
	to.batch.Messages = append(to.batch.Messages, m)
}

// publish publishes every batch, all with the same tracking, if there is space for all. The batches were made of ds.
func (o *outgoing) publish(t queue.Tracking, ds []queue.DeadLetter) {
	used := slices.DeleteFunc(o.batches, func(b queueBatch) bool { return b.batch == nil })
	if !t.Expect(len(used), ds) {
		for _, b := range used {
			b.batch.Discard()
		}
		return
	}
	for _, b := range used {
		b.batch.Tracking = t
		b.mailbox.PublishAsync(b.batch)
	}
}

// reset forgets all batches.
func (o *outgoing) reset() {
	const many = 4096 // a map that grew larger would have to be cleared after every run
	if len(o.index) > many {
		o.index = map[*queue.Mailbox]int{}
	}
	clear(o.index)
	clear(o.batches)
	o.batches = o.batches[:0]
}

// enteredOf names the queues of batches; nil if there are none. If before has the same
// names, enteredOf returns before: most messages of a run go to the same queues, however
// each is routed.
func enteredOf(before *telemetry.Entered, batches []queueBatch, slots []int) *telemetry.Entered {
	var names [telemetry.MostEntered]string
	n, more := 0, 0
	for _, slot := range slots {
		c := batches[slot].mailbox.Config()
		switch {
		case c.Schedule != nil: // an exchange's schedule: not a queue, even if a queue has the exchange's name
		case n == len(names):
			more++
		default:
			names[n] = c.Name
			n++
		}
	}
	switch {
	case n == 0:
		return nil
	case before != nil && before.More == more && slices.Equal(before.Names, names[:n]):
		return before
	}
	return &telemetry.Entered{Names: slices.Clone(names[:n]), More: more}
}
