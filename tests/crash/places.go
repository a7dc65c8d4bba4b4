package crash

import (
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// place is a durable queue that the clients use.
type place struct {
	name     string
	ttl      time.Duration // of every message in it; 0 = none
	levels   uint8         // x-max-priority; 0 = none
	limit    int           // x-max-length; 0 = none
	careful  bool          // its dead leave it once they have arrived, so that a crash may leave them in both places
	dead     *place        // where its dead messages go
	source   *place        // whose dead messages come here
	attended bool          // clients consume it
}

// circle reports whether dead messages come back after they died once more.
func (p *place) circle() bool { return p.dead != nil && p.dead.dead == p }

// origin is where all messages of a place were published to, or died.
func (p *place) origin() *place {
	if p.source != nil {
		return p.source
	}
	return p
}

// The exchanges, all durable.
const (
	direct = "jobs"   // direct: every place that is published to, by its name
	events = "events" // fanout
	graves = "graves" // direct: the dead-letter exchange
)

// layout is what the clients declare.
type layout struct {
	places []*place // sources before those that their dead messages go to
	routes []route
}

// route is a way to publish, and where it leads.
type route struct {
	exchange, key string
	to            []*place
	expirations   bool // messages may have an expiration of their own
}

// newLayout has a queue for each way in which messages live and die.
func newLayout() *layout {
	l := &layout{}
	l.add(direct, &place{name: "plain", attended: true})
	l.add(direct, &place{name: "short", limit: 30}).bury("short.dead", true)
	l.add(direct, &place{name: "careful", ttl: 300 * time.Millisecond, careful: true}).bury("careful.dead", true)
	l.add(direct, &place{name: "urgent", levels: 4, attended: true}).bury("urgent.dead", true)
	l.add(direct, &place{name: "work", ttl: 1500 * time.Millisecond, attended: true}).bury("work.dead", true)
	l.add(direct, &place{name: "timed", ttl: 150 * time.Millisecond}).bury("timed.dead", true)
	l.add(direct, &place{name: "parked", ttl: 4 * time.Second}).bury("parked.dead", false)
	tasks := l.add(direct, &place{name: "tasks", attended: true})
	again := tasks.bury("tasks.again", false)
	again.ttl, again.dead = 120*time.Millisecond, tasks
	l.fan(&place{name: "events.kept", attended: true})
	l.fan(&place{name: "events.brief", ttl: 600 * time.Millisecond, attended: true}).bury("events.dead", true)
	for _, p := range l.places {
		if p.dead != nil {
			l.places = append(l.places, p.dead)
		}
	}
	return l
}

// add adds a place with a route of its own.
func (l *layout) add(exchange string, p *place) *place {
	l.places = append(l.places, p)
	l.routes = append(l.routes, route{exchange: exchange, key: p.name, to: []*place{p}, expirations: p.ttl > 0 || p.levels > 0})
	return p
}

// fan adds a place that the fanout exchange leads to.
func (l *layout) fan(p *place) *place {
	l.places = append(l.places, p)
	i := len(l.routes) - 1
	if l.routes[i].exchange != events {
		l.routes = append(l.routes, route{exchange: events, key: "any"})
		i++
	}
	l.routes[i].to = append(l.routes[i].to, p)
	return p
}

// bury gives a place another one for its dead messages.
func (p *place) bury(name string, attended bool) *place {
	p.dead = &place{name: name, source: p, attended: attended}
	return p.dead
}

// straight is the route to one place by the default exchange.
func (p *place) straight() *route { return &route{key: p.name, to: []*place{p}} }

func (p *place) arguments() amqp091.Table {
	args := amqp091.Table{"x-expires": time.Hour.Milliseconds()}
	if p.ttl > 0 {
		args["x-message-ttl"] = p.ttl.Milliseconds()
	}
	if p.levels > 0 {
		args["x-max-priority"] = p.levels
	}
	if p.limit > 0 {
		args["x-max-length"] = p.limit
	}
	if p.careful {
		args["x-queue-type"], args["x-dead-letter-strategy"], args["x-overflow"] = "quorum", "at-least-once", "reject-publish"
	}
	if p.dead != nil {
		args["x-dead-letter-exchange"] = graves
		args["x-dead-letter-routing-key"] = p.dead.name
	}
	return args
}

// declare declares everything. Over and over it changes nothing.
func (l *layout) declare(ch *amqp091.Channel) error {
	for name, kind := range map[string]string{direct: "direct", events: "fanout", graves: "direct"} {
		if err := ch.ExchangeDeclare(name, kind, true, false, false, false, nil); err != nil {
			return err
		}
	}
	for _, p := range l.places {
		if _, err := ch.QueueDeclare(p.name, true, false, false, false, p.arguments()); err != nil {
			return err
		}
	}
	return l.bind(ch)
}

func (l *layout) bind(ch *amqp091.Channel) error {
	for _, p := range l.places {
		if p.dead == nil {
			continue
		}
		if err := ch.QueueBind(p.dead.name, p.dead.name, graves, false, nil); err != nil {
			return err
		}
	}
	for _, r := range l.routes {
		for _, p := range r.to {
			if err := ch.QueueBind(p.name, r.key, r.exchange, false, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
