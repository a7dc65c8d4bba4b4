package game

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// step is something that can happen with a queue. It says what has happened; "" = nothing.
type step struct {
	weight int
	do     func(*game, *place) string
	full   bool // also while the disk is full
}

// steps returns what can happen. The last three do not happen while the power goes.
func steps() []step {
	return []step{
		{24, func(g *game, p *place) string { return g.publish(1, p) }, true},
		{10, func(g *game, p *place) string { return g.publish(2, p) }, false},
		{6, (*game).consume, true},
		{3, (*game).cancel, true},
		{2, (*game).closeChannel, true},
		{24, (*game).settle, true},
		{14, (*game).fetch, true},
		{16, (*game).pass, true},
		{6, (*game).commit, false},
		{2, (*game).purge, false},
		{1, (*game).delete, false},
		{4, (*game).declare, false},
		{3, (*game).policy, false},
		{2, (*game).redrive, false},
		{4, (*game).operate, false},
		{3, (*game).churn, false},
		{1, (*game).flood, false},
		{1, (*game).fill, true},
		{3, (*game).stop, false},
		{2, (*game).losePower, true},
	}
}

// act draws something, and does it.
func (g *game) act() string {
	all, p := steps(), g.queues[g.rng.IntN(len(g.queues))]
	if g.midst {
		all = all[:len(all)-3]
	}
	n := g.rng.IntN(130)
	for _, s := range all {
		if n -= s.weight; n >= 0 {
			continue
		}
		if g.full && !s.full {
			if g.rng.IntN(3) == 0 {
				return g.empty()
			}
			return ""
		}
		if p.wasID == nil {
			return g.declare(p)
		}
		return s.do(g, p)
	}
	return ""
}

// declare declares what is not there, and opens the channels after a start.
func (g *game) declare(*place) string {
	if g.channels == nil {
		g.channels = map[uint16]*channel{}
		for n := range uint16(6) {
			g.openChannel(n + 1)
		}
		g.b.say(1, &amqp.QueueDeclare{Queue: churn, Durable: true}, &amqp.ExchangeDeclare{
			Exchange: agenda, Type: "x-delayed-message", Durable: true, Arguments: amqp.Table{{Key: "x-delayed-type", Value: "direct"}},
		})
	}
	for _, p := range g.queues {
		if g.b.vhost.Mailbox(p.name) == nil {
			g.b.say(1, &amqp.QueueDeclare{Queue: p.name, Durable: p.durable, Arguments: p.args})
			p.used = g.b.clock()
		}
		g.b.say(1, &amqp.QueueBind{Queue: p.name, Exchange: agenda, RoutingKey: p.name})
	}
	return "declare"
}

func (g *game) openChannel(n uint16) {
	g.b.say(n, &amqp.ChannelOpen{})
	switch n {
	case 1:
		g.b.say(n, &amqp.ConfirmSelect{})
	case 2:
		g.b.say(n, &amqp.TxSelect{})
	}
	g.channels[n] = &channel{n: n}
}

// publish publishes a few messages to a queue, or to the agenda for it.
func (g *game) publish(ch uint16, to *place) string {
	if len(g.messages) > 80 && ch == 1 {
		return g.purge(to)
	} else if len(g.messages) > 80 {
		return ""
	}
	said, all := []string{fmt.Sprintf("publish on %d to %s:", ch, to.name)}, []byte(nil)
	entry, exchange := to, ""
	if g.rng.IntN(5) == 0 && g.agenda.wasID != nil {
		entry, exchange = g.agenda, agenda
	}
	for range 1 + g.rng.IntN(5) {
		m, props := g.compose(entry, to)
		said = append(said, m.String())
		all = g.append(all, ch, m, exchange, &props)
	}
	g.b.feed(all)
	return strings.Join(said, " ")
}

// compose draws a message.
func (g *game) compose(entry, to *place) (m *message, props amqp.Properties) {
	g.last++
	m = &message{
		id: g.last, entry: entry, to: to, size: 8 + g.rng.IntN(200), priority: uint8(g.rng.IntN(5)), persistent: g.rng.IntN(5) > 0, visited: map[*place]bool{},
	}
	props.Priority, props.DeliveryMode = m.priority, 1
	if m.persistent {
		props.DeliveryMode = 2
	}
	props.Set(amqp.PropPriority, amqp.PropDeliveryMode, amqp.PropHeaders)
	header := func(key string, v any) { props.Headers = append(props.Headers, amqp.Field{Key: key, Value: v}) }
	if g.rng.IntN(4) == 0 {
		m.ttl = hook.LimitOf(g.rng.Int64N(2500))
		props.Expiration = strconv.FormatInt(m.ttl.N(), 10)
		props.Set(amqp.PropExpiration)
	}
	if g.rng.IntN(3) == 0 {
		m.dup = strconv.Itoa(g.rng.IntN(6))
		header("x-deduplication-header", m.dup)
	}
	if g.rng.IntN(3) == 0 {
		m.hold = time.Duration(g.rng.IntN(2000)) * time.Millisecond
	}
	if entry != g.agenda {
		header("x-deliver-after", m.hold.Milliseconds())
		return m, props
	}
	header("x-delay", m.hold.Milliseconds())
	if g.rng.IntN(3) == 0 {
		m.identity, m.cancels = strconv.Itoa(g.rng.IntN(4)), g.rng.IntN(3) == 0
		header("x-schedule-id", m.identity)
		header("x-schedule-cancel", m.cancels)
	}
	return m, props
}

// flood publishes so many messages that a part of the queue is full, all of which are held for a moment.
func (g *game) flood(to *place) string {
	if len(g.messages) > 80 {
		return ""
	}
	var all []byte
	props := amqp.Properties{DeliveryMode: 1, Headers: amqp.Table{{Key: "x-deliver-after", Value: int64(10)}}}
	props.Set(amqp.PropDeliveryMode, amqp.PropHeaders)
	for range 2100 {
		g.last++
		m := &message{id: g.last, entry: to, to: to, size: 8, hold: 10 * time.Millisecond, visited: map[*place]bool{}}
		all = g.append(all, 1, m, "", &props)
	}
	g.b.feed(all)
	return "flood " + to.name
}

// append appends the frames that publish a message.
func (g *game) append(all []byte, ch uint16, m *message, exchange string, props *amqp.Properties) []byte {
	all = amqp.AppendMethod(all, ch, &amqp.BasicPublish{Exchange: exchange, RoutingKey: m.to.name})
	all = amqp.AppendContentHeader(all, ch, uint64(m.size), props.Append(nil))
	all = amqp.AppendBody(all, ch, append(binary.BigEndian.AppendUint64(nil, m.id), make([]byte, m.size-8)...), 131072)
	if g.messages[m.id] = m; ch == 2 {
		g.transaction = append(g.transaction, m)
		return all
	}
	g.published++
	g.unconfirmed[g.published] = m
	g.send(m)
	return all
}

// send has the broker get a message, which may replace another in the agenda.
func (g *game) send(m *message) {
	if m.sent = g.step; m.identity == "" {
		return
	}
	for _, o := range g.messages {
		if o != m && o.identity == m.identity && o.sent > 0 {
			o.note(g.agenda, withdrawn)
		}
	}
}

func (g *game) consume(p *place) string {
	c := g.channels[uint16(3+g.rng.IntN(4))]
	if len(c.consumers) > 2 {
		return ""
	}
	g.last++
	k := &consumer{tag: "consumer-" + strconv.FormatUint(g.last, 10), from: p, noAck: g.rng.IntN(5) == 0, limit: g.rng.IntN(4)}
	if len(c.consumers) == 0 {
		c.limit = g.rng.IntN(5)
		g.b.say(c.n, &amqp.BasicQos{PrefetchCount: uint16(c.limit), Global: true})
	}
	c.consumers = append(c.consumers, k)
	g.b.say(c.n, &amqp.BasicQos{PrefetchCount: uint16(k.limit)}, &amqp.BasicConsume{Queue: p.name, ConsumerTag: k.tag, NoAck: k.noAck})
	return fmt.Sprintf("%s consumes %s on %d: no-ack %t, prefetch %d, %d on the channel", k.tag, p.name, c.n, k.noAck, k.limit, c.limit)
}

func (g *game) cancel(*place) string {
	c := g.channels[uint16(3+g.rng.IntN(4))]
	if len(c.consumers) == 0 {
		return ""
	}
	k := c.consumers[g.rng.IntN(len(c.consumers))]
	g.b.say(c.n, &amqp.BasicCancel{ConsumerTag: k.tag})
	c.consumers = slices.DeleteFunc(c.consumers, func(o *consumer) bool { return o == k })
	k.from.used = g.b.clock()
	return "cancel " + k.tag
}

func (g *game) closeChannel(*place) string {
	c := g.channels[uint16(2+g.rng.IntN(5))]
	g.b.say(c.n, &amqp.ChannelClose{ReplyCode: 200})
	g.leave(c)
	g.openChannel(c.n)
	return fmt.Sprintf("close channel %d", c.n)
}

// leave gives back what a channel has.
func (g *game) leave(c *channel) {
	for _, d := range c.unsettled {
		g.finish(d, returned)
	}
	for _, k := range c.consumers {
		k.from.used = g.b.clock()
	}
	if c.n == 2 {
		g.forget()
	}
}

// forget gives up the transaction.
func (g *game) forget() {
	for _, m := range g.transaction {
		if m.sent == 0 {
			delete(g.messages, m.id)
		}
	}
	g.transaction = nil
}

// finish notes how a delivery has come to an end.
func (g *game) finish(d *delivery, w what) {
	s := d.m.stay
	if d.id != d.at.id || (s == nil || s.holder != d) && !d.m.everywhere {
		return // its lease has ended, or its queue is gone
	}
	if s != nil && s.holder == d {
		s.holder = nil
	}
	if d.m.note(d.at, w); w == acked {
		d.at.acked++
	}
}

// settle settles deliveries of one channel: any of them, or all up to one.
func (g *game) settle(*place) string {
	c := g.channels[uint16(1+g.rng.IntN(6))]
	open := slices.DeleteFunc(slices.Clone(c.unsettled), func(d *delivery) bool { return d.pending != 0 })
	if len(open) == 0 {
		return ""
	}
	d, multiple := open[g.rng.IntN(len(open))], g.rng.IntN(4) == 0
	w, m := returned, amqp.Method(&amqp.BasicNack{DeliveryTag: d.tag, Multiple: multiple, Requeue: true})
	switch g.rng.IntN(5) {
	case 0, 1:
		w, m = acked, &amqp.BasicAck{DeliveryTag: d.tag, Multiple: multiple}
	case 2:
		w, m = rejected, &amqp.BasicNack{DeliveryTag: d.tag, Multiple: multiple}
	case 3:
		multiple, m = false, &amqp.BasicReject{DeliveryTag: d.tag, Requeue: true}
	}
	for _, o := range open {
		if o == d || multiple && o.tag < d.tag {
			o.pending = w
		}
	}
	if c.n != 2 {
		g.carryOut(c)
	}
	g.b.say(c.n, m)
	return fmt.Sprintf("on %d: %s %+v", c.n, m.Name(), m)
}

// carryOut ends the deliveries that are settled.
func (g *game) carryOut(c *channel) {
	c.unsettled = slices.DeleteFunc(c.unsettled, func(d *delivery) bool {
		if d.pending != 0 {
			g.finish(d, d.pending)
		}
		return d.pending != 0
	})
}

func (g *game) fetch(p *place) string {
	if p.config.Kind == queue.Quorum && p.config.SingleActive {
		return "" // RabbitMQ does not allow that
	}
	c := g.channels[uint16(1+g.rng.IntN(2))]
	g.fetched, p.used = &consumer{from: p, noAck: g.rng.IntN(4) == 0}, g.b.clock()
	g.b.say(c.n, &amqp.BasicGet{Queue: p.name, NoAck: g.fetched.noAck})
	return fmt.Sprintf("fetch from %s on %d: no-ack %t", p.name, c.n, g.fetched.noAck)
}

// commit ends the transaction, one way or the other.
func (g *game) commit(*place) string {
	if g.rng.IntN(4) == 0 {
		for _, d := range g.channels[2].unsettled {
			d.pending = 0
		}
		g.forget()
		g.b.say(2, &amqp.TxRollback{})
		return "roll back"
	}
	for _, m := range g.transaction {
		g.send(m)
	}
	g.carryOut(g.channels[2])
	g.b.say(2, &amqp.TxCommit{})
	return "commit"
}

// pass lets time pass.
func (g *game) pass(*place) string {
	d := time.Duration(1+g.rng.IntN(60)) * time.Millisecond
	switch g.rng.IntN(12) {
	case 0:
		d *= 20
	case 1:
		d *= 200
	}
	g.sleep(d)
	return "pass " + d.String()
}

// sleep sleeps in small parts, to know when things were delivered.
func (g *game) sleep(d time.Duration) {
	for end := g.b.clock().Add(d); g.b.clock() < end; g.listen() {
		time.Sleep(min(20*time.Millisecond, end.Sub(g.b.clock())))
	}
}

func (g *game) purge(p *place) string {
	p.purged = true
	g.b.say(1, &amqp.QueuePurge{Queue: p.name})
	return "purge " + p.name
}

func (g *game) delete(p *place) string {
	p.deleted = true
	g.b.say(1, &amqp.QueueDelete{Queue: p.name})
	return "delete " + p.name
}

// policy sets a policy for a queue, or clears it.
func (g *game) policy(p *place) string {
	settings := map[string]any{}
	if g.rng.IntN(2) == 0 {
		settings["max-length"] = g.rng.IntN(8)
	}
	if g.rng.IntN(2) == 0 {
		settings["message-ttl"] = g.rng.IntN(3000)
	}
	if g.rng.IntN(2) == 0 {
		settings["expiry-strategy"] = strategies[g.rng.IntN(4)]
	}
	for _, q := range g.queues {
		q.changed = true
	}
	var err error
	if len(settings) == 0 {
		_, err = g.b.vhost.ClearPolicy(policies.User, "policy")
	} else {
		var parsed *policies.Policy
		body, _ := json.Marshal(map[string]any{"pattern": p.name, "definition": settings, "apply-to": "queues"})
		if parsed, err = g.b.rules.Parse(policies.User, "policy", body); err == nil {
			_, err = g.b.vhost.SetPolicy(policies.User, parsed)
		}
	}
	if err != nil && !g.midst {
		g.fail("policy: %v", err)
	}
	return fmt.Sprintf("policy %v for %s", settings, p.name)
}

// redrive has what is ready moved to another queue, or to where it died.
func (g *game) redrive(from *place) string {
	to := g.queues[g.rng.IntN(len(g.queues))]
	if to.wasID == nil || from == to || from.redrive != nil {
		return ""
	}
	r := &vhost.RedriveRequest{From: from.name, To: vhost.ToQueue, Queue: to.name, MayPublish: func(string, string) error { return nil }}
	if from.movedTo = []*place{to}; g.rng.IntN(2) == 0 {
		r.To, r.Queue, from.movedTo = vhost.ToSource, "", g.queues
	}
	plan, err := g.b.vhost.Redrives().Plan(r, g.b.clock().AddMillis(1000))
	if err == nil {
		from.redrive, err = g.b.vhost.Redrives().Start(r, &plan)
	}
	return fmt.Sprintf("redrive from %s to %q: %v", from.name, r.Queue, err)
}

// operate has an operator cancel a held message, or move it to another time.
func (g *game) operate(p *place) string {
	if g.rng.IntN(2) == 0 {
		p = g.agenda
	}
	i := slices.IndexFunc(p.line, func(s *sighting) bool { return s.state == queue.MessageHeld })
	if i < 0 {
		return ""
	}
	m, until, cancels := g.messages[p.ids[i]], g.b.clock().AddMillis(g.rng.Int64N(1000)), g.rng.IntN(2) == 0
	_ = p.find(g.b.vhost).Do(func(q *queue.Queue, now hook.Instant) { // a deleted queue has none
		if cancels {
			m.note(p, withdrawn)
			q.CancelHeld(now, m.was.ref)
		} else {
			m.note(p, moved)
			q.MoveHeld(now, m.was.ref, until)
		}
	})
	return fmt.Sprintf("operate on %v in %s: cancel %t, until %d", m, p.name, cancels, until)
}

// churn writes so much to the log that all that is in it is relocated.
func (g *game) churn(*place) string {
	var all []byte
	props := amqp.Properties{DeliveryMode: 2}
	props.Set(amqp.PropDeliveryMode)
	n := 20 + g.rng.IntN(80)
	for range n {
		g.published++
		all = amqp.AppendMethod(all, 1, &amqp.BasicPublish{RoutingKey: churn})
		all = amqp.AppendContentHeader(all, 1, 600, props.Append(nil))
		all = amqp.AppendBody(all, 1, make([]byte, 600), 131072)
	}
	g.b.feed(all)
	g.b.say(1, &amqp.QueuePurge{Queue: churn})
	return fmt.Sprintf("churn %d", n)
}

func (g *game) fill(*place) string {
	g.full = true
	g.disk.SetSpace(g.rng.Int64N(20 << 10))
	return "fill the disk"
}

func (g *game) empty() string {
	g.disk.SetSpace(1 << 60)
	g.sleep(10 * time.Second)
	g.emptied = true
	return "the disk has space"
}

// stop starts the broker again. What was held before all was relocated may have been delivered since, and nothing else.
func (g *game) stop(*place) string {
	if g.rng.IntN(2) == 0 {
		g.churn(nil)
		g.listen()
		g.sleep(2 * time.Second)
	}
	for _, c := range g.channels {
		g.leave(c)
	}
	if err := g.b.end(false); err != nil {
		g.fail("the broker does not end well: %v", err)
	}
	g.disk = g.disk.Kill()
	g.restart()
	return "stop and start"
}

// losePower has the power go, between two steps or in the midst of one.
func (g *game) losePower(*place) string {
	said := "lose power"
	if !g.full && g.rng.IntN(3) > 0 {
		n := g.rng.IntN(12)
		g.midst = true
		g.disk.CutPower(n)
		said += fmt.Sprintf(" at change %d of: %s", n, g.act())
		g.listen()
		g.midst = false
	}
	g.crashed = true
	g.disk = g.disk.LosePower()
	for _, m := range g.messages {
		if m.stay != nil {
			m.stay.holder, m.stay.doubtful = nil, m.stay.doubtful || !m.stay.written
		}
	}
	_ = g.b.end(true)
	g.restart()
	return said
}

// restart starts the broker again, now and then by a clock that was set.
func (g *game) restart() {
	g.disk.SetSpace(1 << 60)
	g.emptied, g.restarted, g.ended = g.full, true, g.b.clock()
	time.Sleep(time.Duration(g.rng.IntN(300)) * time.Millisecond)
	if g.rng.IntN(3) == 0 {
		g.off += time.Duration(g.rng.IntN(3000)-1500) * time.Millisecond
	}
	g.forget()
	g.channels, g.published = nil, 0
	clear(g.unconfirmed)
	b, err := open(g.disk, g.off)
	if err != nil {
		g.fail("the broker does not start: %v", err)
	}
	g.b = b
	for _, p := range g.places {
		p.used = b.clock()
	}
	g.declare(nil)
}
