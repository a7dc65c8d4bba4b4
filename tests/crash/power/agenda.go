package power

import (
	"strconv"

	"github.com/curfewmq/curfew/core/amqp"
)

// agenda is an exchange that holds messages, and is deleted and declared again.
const agenda = "x.agenda"

// setHold has a message held.
func (m *message) setHold(props *amqp.Properties) {
	header := "x-deliver-after"
	if m.scheduled {
		header = "x-delay"
	}
	props.Headers = amqp.Table{{Key: header, Value: m.hold.Milliseconds()}}
	if m.whose {
		props.Headers = append(props.Headers, amqp.Field{Key: "x-schedule-id", Value: m.identity()})
	}
	props.Set(amqp.PropHeaders)
}

func (m *message) identity() string { return "message " + strconv.FormatUint(m.id, 10) }

// declareVia has the admin declare the exchange of a place.
func (r *run) declareVia(p *place) {
	r.asked = &question{p: p, what: "open"}
	r.admin.say(1, &amqp.ExchangeDeclare{
		Exchange: p.via, Type: "x-delayed-message", Durable: true, Arguments: amqp.Table{{Key: "x-delayed-type", Value: "direct"}},
	})
	r.admin.say(1, &amqp.QueueBind{Queue: p.name, Exchange: p.via, RoutingKey: p.name})
}

// administerAgenda has the admin delete the agenda, or declare it again, now and then.
func (r *run) administerAgenda() (done bool) {
	for _, p := range r.places {
		if p.via != agenda || !p.there || r.random.IntN(12) > 0 {
			continue
		}
		if !p.open {
			r.declareVia(p)
			return true
		}
		q := &question{p: p, what: "discard"}
		for _, m := range r.ledger.messages {
			if m.home == p && m.scheduled && m.seen == 0 && !m.excused {
				m.excused = true
				m.note(r.ledger, "its exchange is to be deleted")
				q.excused = append(q.excused, m)
			}
		}
		p.open = false
		r.asked = q
		r.admin.say(1, &amqp.ExchangeDelete{Exchange: p.via})
		return true
	}
	return false
}

// kept says that the agenda is not deleted now, because what it has released waits for space on the disk: it has all that it held.
func (r *run) kept(q *question) {
	q.p.open = true
	for _, m := range q.excused {
		m.excused = false
		m.note(r.ledger, "its exchange is not deleted")
	}
}

// discarded says that the agenda is deleted: what it surely held is gone.
func (r *run) discarded(p *place) {
	r.ledger.counts.Discarded++
	now := r.broker.clock()
	for _, m := range r.ledger.messages {
		if m.home == p && m.scheduled && m.confirmed != 0 && m.excused && m.seen == 0 && !r.doubled(m) && now < m.sent.Add(m.hold) {
			r.goneFor(m, r.mark(0))
			m.note(r.ledger, "its exchange is deleted")
		}
	}
}

// doubled reports whether a message may be in its queue, too, while its exchange holds it: with several logs, after a life that ended.
func (r *run) doubled(m *message) bool { return !m.single && m.life < r.ledger.life }

// goneFor says that a message is gone for good once a log is on the disk.
func (r *run) goneFor(m *message, as mark) {
	if !m.gone {
		m.gone, m.goneAs = true, [3]mark{as, as, as}
	}
}

// composeCancel adds the cancellation of a message that the exchange of a place may hold.
func (r *run) composeCancel(b []byte, c *client, p *place) []byte {
	var target *message
	for _, id := range sortedKeys(r.ledger.messages) {
		m := r.ledger.messages[id]
		if m.home == p && m.whose && m.confirmed != 0 && m.due && !m.excused && !m.gone && m.acked == nil && (target == nil || r.random.IntN(3) == 0) {
			target = m
		}
	}
	if target == nil {
		return b
	}
	l := r.ledger
	l.last++
	m := &message{id: l.last, from: c.number, home: p, life: l.life, sent: r.broker.clock(), gone: true}
	l.messages[m.id] = m
	target.excused = true
	target.note(l, "to be cancelled")
	r.sentBy[c] = append(r.sentBy[c], &sending{m: m, cancels: target})
	props := amqp.Properties{MessageID: strconv.FormatUint(m.id, 10), DeliveryMode: 2, Headers: amqp.Table{
		{Key: "x-schedule-cancel", Value: true}, {Key: "x-schedule-id", Value: target.identity()},
	}}
	props.Set(amqp.PropMessageID, amqp.PropDeliveryMode, amqp.PropHeaders)
	text := body(m.id, 0)
	b = amqp.AppendMethod(b, 1, &amqp.BasicPublish{Exchange: p.via, RoutingKey: p.name, Mandatory: true})
	b = amqp.AppendContentHeader(b, 1, uint64(len(text)), props.Append(nil))
	return amqp.AppendBody(b, 1, text, 131072)
}

// cancelConfirmed takes in the confirm of a cancellation. If that was returned, there was nothing to cancel.
func (r *run) cancelConfirmed(s *sending, taken bool) {
	m := s.cancels
	switch now := r.broker.clock(); {
	case !taken:
		m.note(r.ledger, "its cancellation is refused")
	case s.m.returned:
		r.ledger.counts.TooLate++
		m.note(r.ledger, "cancelled in vain")
		if m.due && !m.gone && m.seen == 0 && now < m.sent.Add(m.hold) && m.home.open {
			r.ledger.breach("there was nothing to cancel: %v", m)
		}
	default:
		r.ledger.counts.Cancelled++
		if m.seen == r.ledger.life && m.whole() {
			r.ledger.breach("cancelled what had left: %v", m)
		}
		m.note(r.ledger, "cancelled")
		if !r.doubled(m) {
			r.goneFor(m, r.mark(m.home.log))
		}
	}
}
