package game

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// listen notes what the broker says.
func (g *game) listen() {
	events, err := g.b.hear()
	if err != nil {
		g.fail("%v", err)
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.closes() - b.closes() }) // what the channel had may have been delivered since
	for i := range events {
		g.heard(&events[i])
	}
	g.heardAt = g.b.clock()
}

// closes orders what closes a channel before everything else.
func (e *event) closes() int {
	if _, ok := e.method.(*amqp.ChannelClose); ok {
		return -1
	}
	return 0
}

func (g *game) heard(e *event) {
	c := g.channels[e.channel]
	switch m := e.method.(type) {
	case *amqp.BasicAck:
		g.confirm(m.DeliveryTag, m.Multiple, true)
	case *amqp.BasicNack:
		g.confirm(m.DeliveryTag, m.Multiple, false)
	case *amqp.BasicDeliver:
		i := slices.IndexFunc(c.consumers, func(k *consumer) bool { return k.tag == m.ConsumerTag })
		if i < 0 {
			return // the channel was closed
		}
		g.deliver(c, c.consumers[i], e.body, m.DeliveryTag, m.Redelivered)
	case *amqp.BasicGetOK:
		g.deliver(c, g.fetched, e.body, m.DeliveryTag, m.Redelivered)
	case *amqp.BasicCancel:
		c.consumers = slices.DeleteFunc(c.consumers, func(k *consumer) bool { return k.tag == m.ConsumerTag })
	case *amqp.TxCommitOK:
		for _, m := range g.transaction {
			m.confirm()
		}
		g.transaction = nil
	case *amqp.ChannelClose:
		if g.midst {
			return
		}
		if e.channel != 2 || m.ReplyCode != amqp.ReplyPreconditionFailed {
			g.fail("channel %d was closed: %s", e.channel, m.ReplyText)
		}
		for _, m := range g.transaction {
			m.perhaps = true
		}
		g.b.say(2, &amqp.ChannelCloseOK{})
		g.leave(c)
		g.openChannel(2)
	case *amqp.ConnectionClose:
		g.fail("the connection was closed: %s", m.ReplyText)
	}
}

func (m *message) confirm() {
	m.confirmed = true
	m.entry.wrote = m.entry.wrote || m.persistent
}

func (g *game) confirm(tag uint64, multiple, taken bool) {
	for _, n := range slices.Sorted(maps.Keys(g.unconfirmed)) {
		if n != tag && !(multiple && n < tag) {
			continue
		}
		if m := g.unconfirmed[n]; taken {
			m.confirm()
		} else {
			m.refused = true
		}
		delete(g.unconfirmed, n)
	}
}

// deliver notes a delivery, and fails if the message is early, late, overtakes another, belongs to a client, or has the wrong flag.
func (g *game) deliver(c *channel, k *consumer, body []byte, tag uint64, redelivered bool) {
	now, p, id := g.b.clock(), k.from, binary.BigEndian.Uint64(body)
	m := g.messages[id]
	if m == nil {
		g.fail("message %d was delivered from %s, and had left", id, p)
	}
	s := m.stay
	if s != nil && s.holder != nil && !m.everywhere {
		if ends := s.holder.ends[0]; ends == 0 || ends > now {
			g.fail("%v was delivered from %s, and a client has it", m, p)
		}
		g.finish(s.holder, returned)
	}
	cameBack := m.was != nil && m.was.state == queue.MessageLeaving && len(m.facts) == 0 // a dead letter to its own queue may have waited for space
	if s == nil || s.at != p || m.did(p, acked|taken|rejected) || cameBack {
		s = &stay{at: p, restarted: g.restarted}
		m.stay = s
	}
	if w := m.was; w != nil && w.at == p && s.seen && !m.everywhere && len(m.facts) == 0 && p.movedTo == nil { // not gone and come back
		switch {
		case w.state == queue.MessageHeld && w.hold > now, w.state == queue.MessageReady && w.deadline != 0 && w.deadline <= g.heardAt && !p.changed && !p.patient(m):
			g.fail("%v was delivered at %d: %v", m, now, w)
		case w.state == queue.MessageReady && w.index < p.lastOut:
			g.fail("%v was delivered behind number %d: %v", m, p.lastOut, w)
		case w.state == queue.MessageReady:
			p.lastOut = w.index
		}
	}
	if again := s.delivered > 0; m.everywhere {
		s.delivered = g.step
	} else if redelivered && !again && !s.restarted || !redelivered && again && !s.doubtful {
		g.fail("%v was delivered from %s with redelivered=%t; first in step %d", m, p, redelivered, s.delivered)
	} else if !again {
		s.delivered = g.step
	}
	if k.noAck {
		p.taken++
		m.note(p, taken)
		return
	}
	p.delivered++
	m.note(p, delivered)
	s.holder = &delivery{m: m, at: p, id: p.id, tag: tag, by: k}
	if l := p.config.DeliveryLease; l > 0 {
		s.holder.ends = [2]hook.Instant{g.heardAt.Add(l), now.Add(l)}
	}
	c.unsettled = append(c.unsettled, s.holder)
}

// endLeases gives back what a channel had for too long.
func (g *game) endLeases(c *channel) {
	c.unsettled = slices.DeleteFunc(c.unsettled, func(d *delivery) bool {
		is := d.m.is
		left := is == nil || is.at != d.at || is.state != queue.MessageUnacked
		ended := d.ends[0] != 0 && (d.ends[1] <= g.now || d.ends[0] <= g.now && left)
		if ended {
			g.finish(d, returned)
		}
		return ended
	})
}
