package power

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// census fetches everything there is, and gives it back.
func (r *run) census() {
	r.settle()
	time.Sleep(time.Millisecond) // exchanges release what became due before the broker started with their first tick
	r.settle()
	if r.broken() {
		return
	}
	r.look(true)
	c := r.broker.connect(900)
	c.say(1, &amqp.ChannelOpen{})
	r.settle()
	found := map[uint64][]sight{}
	for _, p := range r.places {
		if !p.there {
			continue
		}
		p.used = r.broker.clock()
		r.fetchAll(c, p, found)
	}
	r.ledger.stock(found, r.markOf)
	c.leave(r.broker.clock())
	r.broker.clients = slices.DeleteFunc(r.broker.clients, func(o *client) bool { return o == c })
	r.settle()
}

// fetchAll gets what a place holds.
func (r *run) fetchAll(c *client, p *place, found map[uint64][]sight) {
	const many = 20
	last := map[int]uint64{}
	for {
		var gets []amqp.Method
		for range many {
			gets = append(gets, &amqp.BasicGet{Queue: p.name})
		}
		c.say(1, gets...)
		empty := 0
		for range 100 {
			r.step()
			for _, e := range c.hear() {
				switch e.method.(type) {
				case *amqp.BasicGetEmpty:
					empty++
				case *amqp.BasicGetOK:
					r.sight(p, &e, found, last)
				case *amqp.ChannelClose, *amqp.ConnectionClose:
					r.ledger.breach("census: %s: %+v", p.name, e.method)
					return
				}
			}
			if c.idle() {
				break
			}
			if r.disk.pending() > 0 {
				r.change()
			}
		}
		if empty > 0 {
			return
		}
	}
}

func (r *run) sight(p *place, e *event, found map[uint64][]sight, last map[int]uint64) {
	id, reason, wrong := identify(e)
	if wrong != "" {
		r.ledger.breach("in %s: %s", p.name, wrong)
		return
	}
	found[id] = append(found[id], sight{p, reason})
	m := r.ledger.messages[id]
	if m == nil || m.home != p || m.hold > 0 {
		return
	}
	if id < last[m.from] {
		r.ledger.breach("out of order in %s: after %d comes %v", p.name, last[m.from], m)
	}
	last[m.from] = id
}

// body is what a message has, and no other.
func body(id uint64, size int) []byte {
	text := "message " + strconv.FormatUint(id, 10) + " "
	b := []byte(strings.Repeat(text, size/len(text)+1))
	return b[:max(size, len(text))]
}

// identify tells which message it is, of what it died, and what is wrong with it.
func identify(e *event) (id uint64, reason, wrong string) {
	id, err := strconv.ParseUint(e.props.MessageID, 10, 64)
	if err != nil || string(e.body) != string(body(id, len(e.body))) {
		return id, "", fmt.Sprintf("message %q is damaged: %d bytes, %.40q", e.props.MessageID, len(e.body), e.body)
	}
	deaths, _ := e.props.Headers.Lookup("x-death")
	list, _ := deaths.(amqp.Array)
	if len(list) == 0 {
		return id, "", ""
	}
	first, _ := list[0].(amqp.Table)
	why, _ := first.Lookup("reason")
	reason, _ = why.(string)
	return id, reason, ""
}
