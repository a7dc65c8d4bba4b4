package vhost

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// DeadLetter publishes the messages that a queue gave up to where its plugins say. It is part of [queue.Host]. A message
// for an exchange that does not exist is dropped, one for an exchange that leads nowhere too, and one that would go round
// for ever does not enter the queue where it would [RabbitMQ: dlx.html]. Messages for the same queue leave as one batch, in
// order.
func (v *VHost) DeadLetter(from *queue.Config, now hook.Instant, ds []queue.DeadLetter, t queue.Tracking) {
	b := burials.Get().(*deadLetterRun)
	b.vhost, b.from, b.now = v, from, now
	for i := range ds {
		b.rest = ds[i:]
		if i > 0 && alike(&ds[i-1], &ds[i]) {
			b.follow(&ds[i-1], &ds[i])
			continue
		}
		b.routeOne(&ds[i])
	}
	b.publish(t)
	b.release()
}

// deadLetterRun is one run of dead-lettering and the memory it works in.
type deadLetterRun struct {
	vhost    *VHost
	from     *queue.Config
	now      hook.Instant
	recorder death.Recorder
	keys     [][]byte

	// The message at hand.
	props []byte // with the death recorded
	read  bool   // its headers were looked at to route it

	// Where the last message went: the next one may go there, too.
	target *hook.Target
	key    []byte
	same   bool // nothing but target and key decided
	exists bool // the exchange does
	origin *queue.RoutingInfo
	shells []*queue.Mailbox
	places []int // of shells, in outs

	outs  []out
	index map[*queue.Mailbox]int // places in outs, once they are many

	sent queue.Message // what the last message became, if it went anywhere
	to   []int         // of outs: where it went

	block *block.Block // new bytes go here
	used  int
	rest  []queue.DeadLetter // the message at hand, and those after it

	headers func() amqp.RawTable
}

// out is what leaves for one queue.
type out struct {
	shell *queue.Mailbox
	batch *queue.Batch
}

var burials = sync.Pool{New: func() any {
	b := &deadLetterRun{}
	b.headers = b.newHeaders
	return b
}}

// routeOne sends one message on its way.
func (b *deadLetterRun) routeOne(d *queue.DeadLetter) {
	idx, err := amqp.IndexProps(d.Props)
	if err != nil { // a session checked them
		d.Outcome = telemetry.Unroutable
		return
	}
	cc := b.copies(d, idx.Headers(d.Props))
	known := b.knows(d, cc)
	if !known || len(b.shells) > 0 {
		b.record(d, cc)
	}
	if !known {
		b.resolve(d, cc)
	}
	switch {
	case !b.exists:
		d.Outcome = telemetry.NoExchange
	case len(b.shells) == 0:
		d.Outcome = telemetry.Unroutable
	default:
		b.send(d, &idx)
	}
}

// copies returns the keys in the CC header, as long as they count: once a message was routed by another key than its own
// they do not. Whether it was shows in its last death, which has the keys it was published with before.
func (b *deadLetterRun) copies(d *queue.DeadLetter, headers amqp.RawTable) []string {
	cc, _, err := death.SenderSelected(headers)
	if err != nil || len(cc) == 0 || d.Flags&queue.HasDeathHistory == 0 {
		return cc
	}
	before := lastKeys(headers)
	if len(before) <= len(cc) || before[0] != any(string(d.Key)) {
		return nil
	}
	return cc
}

func lastKeys(headers amqp.RawTable) amqp.Array {
	v, _, _ := headers.Lookup("x-death")
	deaths, _ := v.(amqp.Array)
	if len(deaths) == 0 {
		return nil
	}
	last, _ := deaths[0].(amqp.Table)
	keys, _ := last.Lookup("routing-keys")
	list, _ := keys.(amqp.Array)
	return list
}

// record writes the message's properties with its death into the block.
func (b *deadLetterRun) record(d *queue.DeadLetter, cc []string) {
	b.keys = death.Keys(b.keys[:0], d.Key, cc, d.BCC)
	b.recorder.Prepare(death.Death{Queue: b.from.Name, Reason: d.Reason, Exchange: d.Exchange, Keys: b.keys, At: b.now})
	b.room(len(d.Props) + len(d.Body) + recordSize)
	// It fails on properties that cannot be scanned alone, and these were.
	b.props, _ = b.recorder.Append(b.block.Buf[b.used:b.used], d.Props, d.Flags&queue.HasDeathHistory != 0)
}

// room sees to it that the block has room for about size more bytes.
func (b *deadLetterRun) room(size int) {
	if b.block != nil && b.used+size <= len(b.block.Buf) {
		return
	}
	const most = 256 << 10
	if b.block != nil {
		b.block.Release()
	}
	b.block, b.used = block.New(max(size, expected(b.rest, most))), 0
}

// knows says whether the message goes where the one before it went.
func (b *deadLetterRun) knows(d *queue.DeadLetter, cc []string) bool {
	if !b.same || b.target != d.Target {
		return false
	}
	return d.Target.HasKey || len(cc)+len(d.BCC) == 0 && string(b.key) == string(d.Key)
}

// resolve finds the queues the message goes to.
func (b *deadLetterRun) resolve(d *queue.DeadLetter, cc []string) {
	m := message{key: d.Target.Key, headers: b.headers}
	b.origin = &queue.RoutingInfo{Exchange: d.Target.Exchange, Key: d.Target.Key}
	if !d.Target.HasKey {
		m.key, m.extra = string(d.Key), slices.Concat(cc, d.BCC)
		b.origin.Key, b.origin.CC, b.origin.BCC = m.key, cc, slices.Clone(d.BCC)
	}
	b.read = false
	b.shells, b.exists = b.vhost.routeDead(d.Target.Exchange, m, b.shells[:0])
	b.target, b.key = d.Target, append(b.key[:0], m.key...)
	b.same = !b.read && len(m.extra) == 0
	b.places = b.places[:0]
	for _, s := range b.shells {
		b.places = append(b.places, b.place(s))
	}
}

// newHeaders are the headers that exchanges see: those with the death in them.
func (b *deadLetterRun) newHeaders() amqp.RawTable {
	b.read = true
	idx, err := amqp.IndexProps(b.props)
	if err != nil {
		return nil
	}
	return idx.Headers(b.props)
}

// place finds what leaves for a queue.
func (b *deadLetterRun) place(s *queue.Mailbox) int {
	const few = 16
	if len(b.outs) < few {
		if i := slices.IndexFunc(b.outs, func(o out) bool { return o.shell == s }); i >= 0 {
			return i
		}
	} else {
		b.note()
		if i, ok := b.index[s]; ok {
			return i
		}
		b.index[s] = len(b.outs)
	}
	b.outs = append(b.outs, out{shell: s})
	return len(b.outs) - 1
}

// note begins the index of outs.
func (b *deadLetterRun) note() {
	if len(b.index) > 0 {
		return
	}
	if b.index == nil {
		b.index = map[*queue.Mailbox]int{}
	}
	for i, o := range b.outs {
		b.index[o.shell] = i
	}
}

// send adds the message to what leaves for its queues, but for those where it would close a cycle.
func (b *deadLetterRun) send(d *queue.DeadLetter, idx *amqp.PropIndex) {
	p := queue.Message{Routing: b.origin, Seq: d.Seq, Flags: d.Flags&(queue.Persistent|queue.Traced) | queue.HasDeathHistory | queue.HasHeaders}
	if priority, ok := idx.Priority(d.Props); ok {
		p.Priority, p.Flags = priority, p.Flags|queue.HasPriority
	}
	history := b.recorder.History()
	b.to = b.to[:0]
	for i, s := range b.shells {
		if name := s.Config().Name; history.Cycle(name) {
			b.vhost.warn(history, name)
			continue
		}
		b.to = append(b.to, b.places[i])
	}
	d.Outcome = telemetry.Cycle
	if len(b.to) > 0 {
		d.Outcome = telemetry.DeadLettered
		b.keepProps(&p)
		b.deliver(d, p)
	}
}

// deliver adds the message, whose body is not kept yet, to what leaves for the queues that it goes to.
func (b *deadLetterRun) deliver(d *queue.DeadLetter, p queue.Message) {
	b.keepBody(&p, d.Body)
	for _, place := range b.to {
		b.outs[place].add(p, b.block)
	}
	b.sent, d.Sent = p, len(b.to)
}

// keepProps makes the new properties part of the block.
func (b *deadLetterRun) keepProps(p *queue.Message) {
	p.Props = slices.Clip(b.props)
	if unsafe.SliceData(b.props) == unsafe.SliceData(b.block.Buf[b.used:]) { // else they had no room in it
		b.used += len(b.props)
	}
}

// keepBody makes a copy of the body part of the block, if it has room.
func (b *deadLetterRun) keepBody(p *queue.Message, body []byte) {
	if len(body) > len(b.block.Buf)-b.used {
		p.Body = slices.Clone(body)
		return
	}
	end := b.used + copy(b.block.Buf[b.used:], body)
	p.Body = b.block.Buf[b.used:end:end]
	b.used = end
}

func (o *out) add(p queue.Message, block *block.Block) {
	if o.batch == nil {
		o.batch = queue.NewBatch()
	}
	o.batch.Hold(block)
	o.batch.Messages = append(o.batch.Messages, p)
}

// publish sends the batches, all with the same tracking.
func (b *deadLetterRun) publish(t queue.Tracking) {
	batches := 0
	for _, o := range b.outs {
		if o.batch != nil {
			o.batch.Tracking = t
			batches++
		}
	}
	t.Removal.Expect(batches)
	for _, o := range b.outs {
		if o.batch != nil {
			o.shell.PublishAsync(o.batch)
		}
	}
	if b.block != nil {
		b.block.Release()
	}
}

// release gives b back. It keeps no queue and no message.
func (b *deadLetterRun) release() {
	clear(b.outs)
	clear(b.shells)
	const many = 4096
	if len(b.index) > many {
		b.index = nil // it would have to be cleared after every run
	}
	clear(b.index)
	clear(b.keys[:cap(b.keys)])
	b.outs, b.shells = b.outs[:0], b.shells[:0]
	b.vhost, b.from, b.props, b.target, b.origin, b.block, b.rest = nil, nil, nil, nil, nil, nil, nil
	b.sent = queue.Message{}
	b.same = false
	burials.Put(b)
}

// warn logs a cycle the first time.
func (v *VHost) warn(h *death.History, name string) {
	if v.cycles.First(h, name) {
		v.log.Warn(h.Warning(name), "queue", name) //nolint:sloglint // RabbitMQ's text: operators look for it
	}
}
