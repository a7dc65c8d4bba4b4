package drain

import (
	"cmp"
	"slices"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
)

// place is a queue, or an exchange that holds messages, with its counts.
type place struct {
	vhost, name string
	exchange    bool
	queue.Stats
	stopped bool // its log has failed: it delivers and settles nothing any more
	doomed  int  // messages that are lost when the broker stops
}

// left returns how many messages consumers will take or settle. A stopped queue has none: its unacknowledged messages cannot be settled,
// and are there again after a restart.
func (p *place) left() int {
	if p.stopped {
		return 0
	}
	if p.Consumers == 0 {
		return p.Unacked
	}
	return p.Ready + p.Unacked
}

func (p *place) messages() int { return p.Ready + p.Unacked + p.Held + p.Discarded }

// kept returns how many messages remain in the drained broker and survive its stop.
func (p *place) kept() int { return max(p.messages()-p.left()-p.doomed, 0) }

// Counts are the messages of a broker at one moment.
type Counts struct {
	Left int // messages that consumers will take or settle

	places []place
}

// count counts the messages of all queues, and of exchanges that hold messages.
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

// describe sets the place's name and the number of messages that are lost at a stop: all messages of a queue that is not durable, and the
// transient messages of a durable one. A durable exchange holds only persistent messages.
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

// list adds up one number of all places, and names the places where it is highest.
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
