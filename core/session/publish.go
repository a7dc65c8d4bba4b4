package session

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/queue"
)

// publisher is a channel's part that publishes: it receives a message, routes it, and
// collects it in the round, in the transaction or, if it extends a delivery lease, nowhere.
// It belongs to the connection's reader, except for sharedCounts.
type publisher struct {
	*shared
	out   *outlet
	tx    *transaction
	reply *replyQueue
	held  *unsettled // deliveries whose leases its messages extend

	content   content
	props     parsedProps  // of the properties received last
	lastRoute *cachedRoute // of the last message
	single    cachedRoute  // of the last message that was routed without the cache
	uncached  targets      // targets of the last message that had no cached ones

	confirms     confirms
	skipTraces   int // messages without a context to skip before the next one is sampled
	counts       publishCounts
	sharedCounts publishCounters // counts as of the last flush, for other goroutines
	listed       bool            // in the round
}

func (p *publisher) init(c *Conn, ch *channel) {
	p.shared, p.out = &c.shared, &ch.outlet
	p.tx, p.reply, p.held = &ch.tx, &ch.reply, &ch.deliveries.unsettled
	p.confirms.out, p.confirms.vhost = p.out, p.vhost
	p.skipTraces = p.observer.skipCount()
}

// publish handles basic.publish, which begins a message.
func (p *publisher) publish(args []byte) error {
	exchange, key, mandatory, immediate, err := amqp.ParsePublish(args)
	if err != nil {
		return err
	}
	if immediate {
		return amqp.Errorf(amqp.ReplyNotImplemented, "immediate=true")
	}
	r, err := p.route(exchange, key)
	if err != nil {
		return err
	}
	p.content.stage, p.content.route, p.content.mandatory = awaitContentHeader, r, mandatory
	if !p.listed {
		p.listed = true
		p.round.begun(p)
	}
	return nil
}

// complete publishes the current message, which has been received. Its body lies in block.
func (p *publisher) complete(body []byte, block *block.Block) error {
	defer p.dropContent()
	p.content.body = body
	if p.content.route.info == leaseInfo {
		return p.extend()
	}
	to, err := p.resolve(p.content.route)
	if err != nil {
		return err
	}
	p.round.notePublished()
	p.counts.published++
	m := queue.Message{
		Routing: to.info, Props: p.content.props, Body: body,
		Expiration: p.props.expiration, Wait: p.props.wait, Priority: p.props.priority, Flags: p.props.flags,
		Passes: p.content.passes, Planned: p.content.planned,
	}
	queues := to.targets.queues
	if p.observer.watches() {
		p.observe(&m, queues)
	}
	cancels := p.content.cancels && p.content.mandatory
	if cancels {
		m.Flags |= queue.Mandatory
	}
	if p.tx.isOn() {
		return p.addToTransaction(&m, queues)
	}
	if m.Flags&queue.Traced != 0 {
		p.observer.published(&m, leads(&m, queues), p.contextInjected())
	}
	routed := leads(&m, queues)
	p.counts.routed += uint64(routed)
	if routed == 0 {
		p.unroutable(&m, p.content.mandatory)
	}
	var publisher *confirms
	if p.confirms.isOn() {
		publisher = &p.confirms
		m.Seq = publisher.next(len(queues))
	}
	m.Block = block
	if at := p.content.hold; at != 0 && m.Wait == 0 {
		m.Wait, m.Planned = queue.WaitUntil(at), true
	}
	if cancels {
		p.publishCancellation(&m, queues[0])
		return nil
	}
	p.round.publish(queues, to.slots, publisher, &m, p.blockRefs())
	return nil
}

// leads returns how many of the queues that a message goes to will keep it.
func leads(m *queue.Message, queues []*queue.Mailbox) int {
	n := len(queues)
	if !m.Passes || !m.Planned {
		return n
	}
	for _, q := range queues {
		if q.Config().Schedule != nil {
			n--
		}
	}
	return n
}

// blockRefs returns the blocks that the current message lies in.
func (p *publisher) blockRefs() *blockRefs {
	return &blockRefs{p.content.held, p.content.parts, p.round.body()}
}

// unroutable counts a message without queues, and returns it if it is mandatory [AMQP 1.8.3.10].
func (p *publisher) unroutable(m *queue.Message, mandatory bool) {
	if !mandatory {
		p.counts.dropped++
		return
	}
	p.counts.returned++
	o := p.out.lock()
	defer o.mu.Unlock()
	o.pending = p.out.appendReturn(o.pending, m)
	o.kick()
}

// track prepares the confirms of messages that are about to be handed to their queues.
func (p *publisher) track() { p.confirms.track() }

// flush prepares the end of a round, and reports whether a message is incomplete.
func (p *publisher) flush() (incomplete bool) {
	p.track()
	p.share()
	p.keepContent()
	p.listed = p.content.stage != awaitMethod
	return p.listed
}

// addToTransaction adds the current message to the transaction.
func (p *publisher) addToTransaction(m *queue.Message, queues []*queue.Mailbox) error {
	size, err := p.tx.add(m, queues, p.content.mandatory, p.contextInjected(), maxTransaction*p.srv.MessageMax)
	p.round.buffer(size)
	return err
}

// share makes the counts visible to other goroutines.
func (p *publisher) share() { p.counts.share(&p.sharedCounts) }

// committing counts the messages of a transaction, and returns mandatory ones without a queue to the client.
func (p *publisher) committing(ms []pendingMessage) {
	for i := range ms {
		m := &ms[i]
		routed := leads(&m.Message, m.queues)
		p.counts.routed += uint64(routed)
		if routed == 0 {
			p.unroutable(&m.Message, m.mandatory)
		}
	}
	p.counts.share(&p.sharedCounts)
}

// committed returns the mandatory messages of a transaction that found nothing to cancel, and records the spans of traced messages.
func (p *publisher) committed(ms []pendingMessage) {
	for i := range ms {
		if ms[i].lost {
			p.unroutable(&ms[i].Message, true)
		}
	}
	p.counts.share(&p.sharedCounts)
	for i := range ms {
		if m := &ms[i]; m.Flags&queue.Traced != 0 {
			p.observer.published(&m.Message, leads(&m.Message, m.queues), m.contextInjected)
		}
	}
}

// propsMax limits the bytes of properties that the client may publish: by its own frame size, or by the largest one if it is a [Direct].
func (p *publisher) propsMax() int {
	if p.out.frameMax == directFrameMax {
		return p.srv.propsMax()
	}
	return p.out.frameMax - contentOverhead
}
