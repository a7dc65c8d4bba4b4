package queue

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// goneBuffer is memory for the report of one message that leaves to the hooks. It is
// apart from the other buffers of the turn, because messages leave while these are in
// use.
type goneBuffer struct {
	message [1]hook.Message
	stored  [1]leaving
	view    messageView
}

// left reports to the hooks that a watched message leaves. It must be called before the
// record is freed.
func (g *goneBuffer) left(q *Queue, ref Ref, s *slot) {
	if !q.hooks.WantsGone() {
		return
	}
	g.stored[0] = leaving{ref: ref, record: q.store.read(*s)}
	g.view = messageView{queue: q, stored: g.stored[:]}
	r := &g.stored[0].record
	g.tell(q, hook.Message{Size: len(r.body), Priority: amqp.Priority(r.props)})
}

// departs reports to the hooks that a message, if it is watched, has left for its
// dead-letter exchange. From there a copy may come back before the queue has removed the
// message.
func (g *goneBuffer) departs(q *Queue, ref Ref) {
	s := q.at(ref).slot()
	if s.flags&watched != 0 {
		s.flags &^= watched
		g.left(q, ref, s)
	}
}

// stays reports to the hooks that a message stays after its departure was reported. It
// watches the message again if the hooks want that.
func (g *goneBuffer) stays(q *Queue, now hook.Instant, h handle) {
	if !q.hooks.WantsStay() {
		return
	}
	views, vs := q.present(now, []Ref{h.ref}, hook.WhyHead)
	q.hooks.Stay(now, views, vs)
	q.buf.view = messageView{}
	if vs[0].Watch {
		h.slot().flags |= watched
	}
}

// keptOut reports to the hooks that a watched message, the only one of ms, does not
// enter.
func (g *goneBuffer) keptOut(q *Queue, ms []Message) {
	if !q.hooks.WantsGone() {
		return
	}
	g.view = messageView{queue: q, incoming: ms}
	g.tell(q, hook.Message{Size: len(ms[0].Body), Priority: ms[0].Priority})
}

func (g *goneBuffer) tell(q *Queue, m hook.Message) {
	g.message[0] = m
	g.message[0].Bind(&g.view, 0)
	q.hooks.Gone(g.message[:])
	*g = goneBuffer{}
}

// allGone reports to the hooks that all messages have left.
func (g *goneBuffer) allGone(q *Queue) {
	if q.hooks.WantsGone() {
		q.hooks.Gone(nil)
	}
}

// unwatch clears the flag of all watched messages when the last plugin with OnGone is
// removed: a plugin that gets OnGone later does not know these messages, and would take
// them for others. It takes time in proportion to the messages.
func (c *contents) unwatch() {
	for l := range c.levels {
		f := &c.levels[l]
		for seq, s := f.messageFrom(0); s != nil; seq, s = f.messageFrom(seq + 1) {
			s.flags &^= watched
		}
	}
}

// purged reports to the hooks that the watched ready messages leave, before they are
// purged. That takes time in proportion to them, unless all messages of the queue are
// ready.
func (g *goneBuffer) purged(q *Queue) {
	if !q.hooks.WantsGone() {
		return
	}
	if q.unacked+q.held()+q.waiting() == 0 {
		q.hooks.Gone(nil)
		return
	}
	for l := range q.levels {
		f := &q.levels[l]
		for seq, s := f.messageFrom(0); s != nil; seq, s = f.messageFrom(seq + 1) {
			if s.is(stateReady) && s.flags&watched != 0 {
				g.left(q, ref(l, seq), s)
			}
		}
	}
}
