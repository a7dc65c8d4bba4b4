package power

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// live has clients at work for a while.
func (r *run) live() {
	r.hire()
	r.trouble()
	pinned := r.random.IntN(3)
	for range 50 + r.random.IntN(600) {
		r.act(pinned)
		r.step()
		if r.broken() {
			return
		}
	}
}

// trouble makes the disk small, or has it fail once, now and then.
func (r *run) trouble() {
	switch r.random.IntN(8) {
	case 0:
		r.ailing = true
		r.ledger.counts.Small++
		r.fs.SetSpace(int64(r.random.IntN(120 << 10)))
	case 1:
		r.ailing = true
		r.ledger.counts.Faults++
		r.ledger.faulty = true
		kinds := []crashfs.OpKind{crashfs.OpSync, crashfs.OpSync, crashfs.OpWrite, crashfs.OpRename, crashfs.OpSyncDir, crashfs.OpAllocate, crashfs.OpCreate, crashfs.OpRemove}
		r.fs.FailNth(kinds[r.random.IntN(len(kinds))], r.random.IntN(100))
	}
}

// hire connects clients.
func (r *run) hire() {
	for n := range 2 {
		c := r.broker.connect(10*r.ledger.life + n + 1000)
		c.say(1, &amqp.ChannelOpen{})
		c.say(1, &amqp.ConfirmSelect{})
		r.publishers = append(r.publishers, c)
	}
	for range 1 + r.random.IntN(3) {
		r.consume(r.publishers[r.random.IntN(2)])
	}
	r.settle()
}

// consume opens a channel with consumers for several places, which has little room.
func (r *run) consume(c *client) {
	k := &consumer{client: c, ch: uint16(2 + len(r.consumers))}
	r.consumers = append(r.consumers, k)
	c.say(k.ch, &amqp.ChannelOpen{})
	c.say(k.ch, &amqp.BasicQos{PrefetchCount: uint16(1 + r.random.IntN(8)), Global: r.random.IntN(2) == 0})
	for range 1 + r.random.IntN(3) {
		p := r.places[r.random.IntN(len(r.places))]
		if p.name == "old" || p.isChurn() || p.careful || p.lease > 0 && r.random.IntN(2) == 0 || !p.there {
			continue
		}
		k.places = append(k.places, p)
		c.say(k.ch, &amqp.BasicConsume{Queue: p.name, ConsumerTag: p.name + "/" + strconv.Itoa(len(k.places))})
	}
}

// act does one thing.
func (r *run) act(pinned int) {
	n := r.random.IntN(100)
	switch {
	case n < 40:
		if r.disk.pending() > 0 && (pinned > 0 || n < 8) {
			r.change()
		}
	case n < 55:
		r.publish(r.publishers[r.random.IntN(len(r.publishers))])
	case n < 68:
		r.read(r.broker.clients[r.random.IntN(len(r.broker.clients))])
	case n < 80:
		r.answer()
	case n < 90:
		time.Sleep(time.Duration(1+r.random.IntN(12_000_000)) * time.Nanosecond)
	case n < 92:
		time.Sleep(time.Duration(1+r.random.IntN(400_000_000)) * time.Nanosecond)
	case n < 97:
		r.administer()
	case n < 98:
		r.depart()
	default:
		r.look(false)
	}
}

// publish publishes a few messages in one go, or more.
func (r *run) publish(c *client) {
	if c.closed != nil || len(c.chunks) > 8 {
		return
	}
	var b []byte
	for range 1 + r.random.IntN(6) {
		p := r.places[r.random.IntN(len(r.places))]
		if p.source != nil || p.name == "old" && r.random.IntN(4) > 0 || p.isChurn() && !p.there || p.via != "" && !p.open || r.asked != nil && r.asked.p == p {
			continue
		}
		if p.via != "" && r.random.IntN(4) == 0 {
			b = r.composeCancel(b, c, p)
			continue
		}
		b = r.compose(b, c, p, nil)
	}
	if len(b) > 0 {
		c.chunk(b)
	}
}

// compose adds a message to a place.
func (r *run) compose(b []byte, c *client, p *place, proves []*held) []byte {
	l := r.ledger
	l.last++
	m := &message{
		id: l.last, from: c.number, home: p, number: p.number, to: p.number, shard: p.shard, size: 20 + r.random.IntN(900), life: l.life,
		sent: r.broker.clock(), transient: r.random.IntN(25) == 0, excused: p.doomed,
	}
	if r.random.IntN(60) == 0 {
		m.size = r.random.IntN(12 << 10)
	}
	if (p.name == "plain" || p.name == "work") && r.random.IntN(4) == 0 {
		m.lifetime = time.Duration(20+r.random.IntN(300)) * time.Millisecond
	}
	if (p.holds || p.via != "") && proves == nil && r.random.IntN(5) > 0 {
		m.hold, m.scheduled, m.single = time.Duration(1+r.random.IntN(700))*time.Millisecond, p.via != "", r.shards == 1
		m.whose = m.scheduled && r.random.IntN(2) == 0
		l.counts.Held++
	}
	l.messages[m.id] = m
	l.counts.Sent++
	m.note(l, "sent")
	r.sentBy[c] = append(r.sentBy[c], &sending{m: m, proves: proves})
	props := amqp.Properties{MessageID: strconv.FormatUint(m.id, 10), DeliveryMode: 2}
	if m.transient {
		props.DeliveryMode = 1
	}
	props.Set(amqp.PropMessageID, amqp.PropDeliveryMode)
	if m.lifetime > 0 {
		props.Expiration = strconv.FormatInt(m.lifetime.Milliseconds(), 10)
		props.Set(amqp.PropExpiration)
	}
	route := &amqp.BasicPublish{RoutingKey: p.name, Mandatory: true}
	if m.hold > 0 {
		route.Exchange = p.via
		m.setHold(&props)
	}
	text := body(m.id, m.size)
	b = amqp.AppendMethod(b, 1, route)
	b = amqp.AppendContentHeader(b, 1, uint64(len(text)), props.Append(nil))
	return amqp.AppendBody(b, 1, text, 131072)
}

// answer settles something that a consumer holds.
func (r *run) answer() {
	if len(r.consumers) == 0 {
		return
	}
	k := r.consumers[r.random.IntN(len(r.consumers))]
	if len(k.held) == 0 || k.gone || k.closed != nil || len(k.chunks) > 8 {
		return
	}
	i := r.random.IntN(len(k.held))
	if r.random.IntN(2) == 0 {
		i = 0
	}
	n := r.random.IntN(100)
	several := r.random.IntN(8) == 0
	var hs []*held
	if several {
		hs = slices.Clone(k.held[:i+1])
	} else {
		hs = []*held{k.held[i]}
	}
	tag := k.held[i].tag
	k.held = slices.DeleteFunc(k.held, func(h *held) bool { return slices.Contains(hs, h) })
	switch {
	case n < 55:
		for _, h := range hs {
			r.acked(h)
		}
		k.say(k.ch, &amqp.BasicAck{DeliveryTag: tag, Multiple: several})
	case n < 75:
		for _, h := range hs {
			h.m.note(r.ledger, "rejected in %s", h.at.name)
			h.m.holder = nil
			if h.at == h.m.home {
				h.m.rejects++
			} else {
				h.m.excused = true // it dies where the dead are, for good
			}
			r.ledger.counts.Rejected++
		}
		k.say(k.ch, &amqp.BasicNack{DeliveryTag: tag, Multiple: several})
	default:
		for _, h := range hs {
			h.m.note(r.ledger, "given back to %s", h.at.name)
			h.m.holder = nil
			r.ledger.counts.Requeued++
		}
		k.say(k.ch, &amqp.BasicNack{DeliveryTag: tag, Multiple: several, Requeue: true})
	}
	if len(r.unproven) > 3 {
		r.prove(k)
	}
}

func (r *run) acked(h *held) {
	m := h.m
	m.note(r.ledger, "acknowledged in %s", h.at.name)
	m.holder, m.acked, m.ackedBy, m.ackLife = nil, h.at, h, r.ledger.life
	r.ledger.counts.Acked++
	r.unproven = append(r.unproven, h)
}

// prove publishes a message behind what was acknowledged on the same connection in the same place.
func (r *run) prove(k *consumer) {
	h := r.unproven[0]
	if h.c != k.client || h.at.doomed {
		r.unproven = r.unproven[1:]
		return
	}
	var proves []*held
	r.unproven = slices.DeleteFunc(r.unproven, func(o *held) bool {
		if o.c == h.c && o.at == h.at {
			proves = append(proves, o)
			return true
		}
		return false
	})
	if h.at.source != nil || h.at.careful { // only what is published to
		return
	}
	k.chunk(r.compose(nil, k.client, h.at, proves))
}

// administer has the admin do something.
func (r *run) administer() {
	if r.asked != nil || r.admin.closed != nil || r.administerAgenda() {
		return
	}
	if n := r.random.IntN(30); n == 0 {
		p := r.places[r.random.IntN(len(r.places))]
		if p.there && p.name != "old" && !p.doomed {
			r.doom(p)
			r.asked = &question{p: p, what: "purge"}
			r.admin.say(1, &amqp.QueuePurge{Queue: p.name})
		}
		return
	}
	var absent []*place
	for _, p := range r.places {
		if p.lease > 0 && !p.there {
			absent = append(absent, p)
		}
	}
	if len(absent) > 0 && r.random.IntN(2) == 0 {
		r.declare(absent[0])
		return
	}
	p := r.churn[r.random.IntN(len(r.churn))]
	if !p.there {
		r.declare(p)
		return
	}
	r.doom(p)
	p.sure = false
	r.asked = &question{p: p, what: "delete"}
	r.admin.say(1, &amqp.QueueDelete{Queue: p.name})
}

// doom lets the messages in a place be gone.
func (r *run) doom(p *place) {
	p.doomed = true
	for _, m := range r.ledger.messages {
		if m.home == p || m.home.dead == p {
			m.excused = true
		}
	}
}

// depart closes a channel, which gives back what it holds, or opens another.
func (r *run) depart() {
	if len(r.consumers) > 6 {
		return
	}
	if len(r.consumers) == 0 || r.random.IntN(2) == 0 {
		if c := r.publishers[r.random.IntN(2)]; c.closed == nil {
			r.consume(c)
		}
		return
	}
	k := r.consumers[r.random.IntN(len(r.consumers))]
	if k.gone || k.closed != nil {
		return
	}
	for _, h := range k.held {
		h.m.note(r.ledger, "given back with the channel")
		h.m.holder = nil
	}
	r.left(k)
	k.say(k.ch, &amqp.ChannelClose{ReplyCode: 200})
}

// left is called when a channel is closed, or is about to be.
func (r *run) left(k *consumer) {
	for _, h := range k.held {
		h.m.holder = nil
	}
	k.held, k.gone = nil, true
	for _, p := range k.serving {
		p.busy--
		p.used = r.broker.clock()
	}
	k.serving = nil
}

// dropped is called when the broker has closed a channel, some time since its client was last read: what the client has answered there
// may have come too late to be heeded, and leases may run since then.
func (r *run) dropped(k *consumer) {
	for _, m := range r.ledger.messages {
		if h := m.ackedBy; h != nil && h.c == k.client && h.ch == k.ch && !m.ackSure {
			m.note(r.ledger, "acknowledged in vain, perhaps")
			m.acked, m.ackedBy, m.excused = nil, nil, true
		}
	}
	before := make([]hook.Instant, len(k.serving))
	for i, p := range k.serving {
		before[i] = p.used
	}
	serving := k.serving
	r.left(k)
	for i, p := range serving {
		p.used = max(before[i], k.heard)
	}
}

// place is what a consumer of the channel reads from.
func (k *consumer) place(tag string) *place {
	_, n, _ := strings.Cut(tag, "/")
	i, err := strconv.Atoi(n)
	if err != nil {
		panic(err)
	}
	return k.places[i-1]
}

// hear takes in what the broker says.
func (r *run) hear(c *client, e *event) {
	if r.disk.isDark() {
		return // nobody hears it
	}
	r.trace("%d/%d %T %v %s", c.number, e.channel, e.method, e.method, e.props.MessageID)
	switch m := e.method.(type) {
	case *amqp.BasicAck:
		r.confirmed(c, m.DeliveryTag, m.Multiple, true)
	case *amqp.BasicNack:
		r.confirmed(c, m.DeliveryTag, m.Multiple, false)
	case *amqp.BasicReturn:
		id, _, _ := identify(e)
		r.ledger.messages[id].returned = true
		r.ledger.messages[id].note(r.ledger, "returned")
	case *amqp.BasicDeliver:
		r.delivered(c, e, m)
	case *amqp.BasicCancel:
		r.cancelled(c, e.channel, m.ConsumerTag)
	case *amqp.BasicConsumeOK:
		for _, k := range r.consumers {
			if k.client == c && k.ch == e.channel && !k.gone {
				p := k.place(m.ConsumerTag)
				p.busy++
				k.serving = append(k.serving, p)
			}
		}
	case *amqp.ChannelClose:
		r.refused(c, e.channel, m)
	case *amqp.ConnectionClose:
		r.ledger.breach("client %d: the broker closed its connection: %+v", c.number, m)
	default:
		if c == r.admin {
			r.answered(e.method)
		}
	}
}

// refused is called when the broker closes a channel.
func (r *run) refused(c *client, ch uint16, why *amqp.ChannelClose) {
	if c == r.admin && r.asked != nil && why.ReplyCode == amqp.ReplyNotFound { // it expired
		c.say(ch, &amqp.ChannelCloseOK{})
		c.say(ch, &amqp.ChannelOpen{})
		r.asked.p.doomed = false
		r.asked = nil
		return
	}
	if c == r.admin && r.asked != nil && r.asked.what == "discard" && why.ReplyCode == amqp.ReplyPreconditionFailed &&
		strings.Contains(why.ReplyText, "has released messages that wait for space on the disk") {
		c.say(ch, &amqp.ChannelCloseOK{})
		c.say(ch, &amqp.ChannelOpen{})
		r.kept(r.asked)
		r.asked = nil
		return
	}
	if strings.Contains(why.ReplyText, agenda) && why.ReplyCode == amqp.ReplyNotFound && slices.Contains(r.publishers, c) && ch == 1 {
		r.sentBy[c] = nil // it was deleted
		c.say(1, &amqp.ChannelCloseOK{})
		c.say(1, &amqp.ChannelOpen{})
		c.say(1, &amqp.ConfirmSelect{})
		return
	}
	broken := r.ailing && why.ReplyCode == amqp.ReplyInternalError
	for _, k := range r.consumers {
		if k.client == c && k.ch == ch && (broken || why.ReplyCode == amqp.ReplyNotFound) {
			c.say(ch, &amqp.ChannelCloseOK{})
			r.dropped(k)
			return
		}
	}
	if broken {
		c.closed = why
		return
	}
	r.ledger.breach("client %d: the broker closed channel %d: %+v", c.number, ch, why)
}

// cancelled is called when a consumer's queue is gone.
func (r *run) cancelled(c *client, ch uint16, tag string) {
	for _, k := range r.consumers {
		if k.client != c || k.ch != ch {
			continue
		}
		p := k.place(tag)
		if p.lease == 0 && !p.doomed {
			r.ledger.breach("%s is gone", tag)
		}
		if j := slices.Index(k.serving, p); j >= 0 {
			k.serving = slices.Delete(k.serving, j, j+1)
			p.busy--
		}
	}
}

// confirmed takes in a confirm, or that messages were refused.
func (r *run) confirmed(c *client, tag uint64, multiple, taken bool) {
	all := r.sentBy[c]
	first := tag
	if multiple {
		first = 1
	}
	for n := first; n <= tag; n++ {
		s := all[n-1]
		if s.done {
			continue
		}
		s.done = true
		if s.cancels != nil {
			r.cancelConfirmed(s, taken)
			continue
		}
		if !taken {
			r.ledger.counts.Refused++
			s.m.note(r.ledger, "refused")
			s.m.gone = true
			continue
		}
		r.identify(s.m.home) // it may have come since, and its declaration not been answered yet
		r.ledger.confirm(s.m, r.markFor(s.m))
		if s.m.returned || s.m.transient {
			continue // that says nothing of the disk
		}
		for _, h := range s.proves {
			if h.m.ackedBy == h {
				h.m.ackSure, h.m.ackAs = true, r.markOf(h.at)
				h.m.note(r.ledger, "surely acknowledged")
			}
		}
	}
}

// delivered takes in a delivery.
func (r *run) delivered(c *client, e *event, d *amqp.BasicDeliver) {
	r.ledger.counts.Delivered++
	id, reason, wrong := identify(e)
	m := r.ledger.messages[id]
	if wrong != "" || m == nil {
		r.ledger.breach("delivered by %s: message %d: %s", d.ConsumerTag, id, wrong)
		return
	}
	for _, k := range r.consumers {
		if k.client != c || k.ch != e.channel {
			continue
		}
		if k.gone {
			return // it was given back since
		}
		p := k.place(d.ConsumerTag)
		m.note(r.ledger, "delivered from %s to %d/%d as %d", p.name, c.number, e.channel, d.DeliveryTag)
		r.ledger.arrived(m, p, reason)
		if h := m.holder; h != nil && m.whole() && !h.c.closing(h.ch) {
			r.ledger.breach("held twice: %v", m)
		}
		if m.acked != nil && m.ackLife == r.ledger.life && m.whole() {
			r.ledger.breach("delivered after it was acknowledged: %v", m)
		}
		m.holder = &held{m, c, e.channel, d.DeliveryTag, p}
		k.held = append(k.held, m.holder)
		return
	}
}
