package drain

import (
	"cmp"
	"slices"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
)

// place is a queue, or an exchange that holds messages, and what is in it.
type place struct {
	vhost, name string
	exchange    bool
	queue.Stats
	stopped bool // its log has failed: nothing is delivered or settled any more
	doomed  int  // messages that a stop of the broker loses
}

// left returns how many messages consumers are about to take or to settle. A queue that is stopped counts as unacknowledged what was so
// when it stopped, for a restart finds these messages; nobody can settle them before.
func (p *place) left() int {
	if p.stopped {
		return 0
	}
	if p.Consumers == 0 {
		return p.Unacked
	}
	return p.Ready + p.Unacked
}

// messages returns how many messages there are.
func (p *place) messages() int { return p.Ready + p.Unacked + p.Held + p.Discarded }

// kept returns how many messages stay although the broker is drained, and outlive its stop.
func (p *place) kept() int { return max(p.messages()-p.left()-p.doomed, 0) }

// Counts are what a broker has at one moment.
type Counts struct {
	Left int // messages that consumers are about to take or to settle

	places []place
}

// count looks at all queues that have messages, and at what exchanges hold.
func count(all []*vhost.VHost) (c Counts) {
	var p place
	look := func(q *queue.Queue) { p.Stats, p.stopped = q.Stats(), q.Stopped() != nil } // one closure for all queues
	for _, v := range all {
		for _, list := range [...][]*queue.Mailbox{v.Mailboxes(), v.Schedules()} {
			for _, m := range list {
				p = place{}
				if m.Look(look) != nil || p.messages() == 0 {
					continue // it was deleted, or is empty
				}
				p.describe(m.Config())
				c.Left += p.left()
				c.places = append(c.places, p)
			}
		}
	}
	return c
}

// describe names the place, and counts what a stop loses: what is in a queue that is not durable, and what is not persistent. All that
// a durable exchange holds is.
func (p *place) describe(cfg *queue.Config) {
	p.vhost, p.name, p.exchange = cfg.VHost, cfg.Name, cfg.Schedule != nil
	switch {
	case !cfg.Durable || cfg.Exclusive:
		p.doomed = p.messages()
	case !p.exchange:
		p.doomed = max(p.messages()-p.Persistent, 0)
	}
}

// most is how many places a list names.
const most = 10

// list adds up a part of what places have, and names the places with the most.
func (c *Counts) list(part func(*place) int) jsonobj.Object {
	var some []*place
	messages := 0
	for i := range c.places {
		if n := part(&c.places[i]); n > 0 {
			messages += n
			some = append(some, &c.places[i])
		}
	}
	slices.SortFunc(some, func(a, b *place) int {
		return cmp.Or(cmp.Compare(part(b), part(a)), cmp.Compare(a.vhost, b.vhost), cmp.Compare(a.name, b.name))
	})
	names := []jsonobj.Object{}
	for _, p := range some[:min(len(some), most)] {
		noun := "queue"
		if p.exchange {
			noun = "exchange"
		}
		names = append(names, jsonobj.Object{
			{"vhost", p.vhost}, {noun, p.name}, {"messages", part(p)}, {"ready", p.Ready}, {"unacked", p.Unacked}, {"held", p.Held}, {"consumers", p.Consumers},
		})
	}
	return jsonobj.Object{{"messages", messages}, {"places", len(some)}, {"most", names}}
}
