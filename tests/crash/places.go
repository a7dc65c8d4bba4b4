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
	classic  bool          // it is a classic queue though it is careful
	retry    time.Duration // what comes back waits at least so long; 0 = not at all
	careful  bool          // its dead leave it once they have arrived, so that a crash may leave them in both places
	dead     *place        // where its dead messages go
	source   *place        // whose dead messages come here
	redriven bool          // its dead are sent back
	attended bool          // clients consume it
}

// circle reports whether dead messages come back: after they died once more, or because they are sent back.
func (p *place) circle() bool { return p.dead != nil && p.dead.dead == p || p.redriven }

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
	later  = "later"  // x-delayed-message, direct
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
	holds         bool // messages may be held, by the exchange later or in their queue
}

// newLayout has a queue for each way in which messages live and die.
func newLayout() *layout {
	l := &layout{}
	l.add(direct, &place{name: "plain", attended: true})
	l.add(direct, &place{name: "short", limit: 30}).bury("short.dead", true)
	l.add(direct, &place{name: "careful", ttl: 300 * time.Millisecond, careful: true}).bury("careful.dead", true)
	l.add(direct, &place{name: "diligent", ttl: 300 * time.Millisecond, careful: true, classic: true}).bury("diligent.dead", true)
	l.add(direct, &place{name: "urgent", levels: 4, attended: true}).bury("urgent.dead", true)
	l.add(direct, &place{name: "work", ttl: 1500 * time.Millisecond, attended: true}).bury("work.dead", true)
	l.add(direct, &place{name: "timed", ttl: 150 * time.Millisecond}).bury("timed.dead", true)
	l.add(direct, &place{name: "parked", ttl: 4 * time.Second}).bury("parked.dead", false)
	l.add(direct, &place{name: "shelf", ttl: 200 * time.Millisecond, redriven: true, attended: true}).bury("shelf.dead", true)
	tasks := l.add(direct, &place{name: "tasks", attended: true})
	again := tasks.bury("tasks.again", false)
	again.ttl, again.dead = 120*time.Millisecond, tasks
	l.fan(&place{name: "events.kept", attended: true})
	l.fan(&place{name: "events.brief", ttl: 600 * time.Millisecond, attended: true}).bury("events.dead", true)
	l.add(direct, &place{name: "held", attended: true})
	l.hold()
	l.add(direct, &place{name: "retried", retry: 40 * time.Millisecond, attended: true})
	l.add(later, &place{name: "calendar", attended: true})
	l.hold()
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

// hold has messages of the last route held.
func (l *layout) hold() { l.routes[len(l.routes)-1].holds = true }

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
	if p.retry > 0 {
		args["x-delayed-retry-type"], args["x-delayed-retry-min"], args["x-delayed-retry-max"] = "all", p.retry.Milliseconds(), 4*p.retry.Milliseconds()
	}
	if p.careful {
		args["x-dead-letter-strategy"], args["x-overflow"] = "at-least-once", "reject-publish"
	}
	if p.careful && !p.classic {
		args["x-queue-type"] = "quorum"
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
	if err := declareDelayed(ch, later); err != nil {
		return err
	}
	for _, p := range l.places {
		if _, err := ch.QueueDeclare(p.name, true, false, false, false, p.arguments()); err != nil {
			return err
		}
	}
	return l.bind(ch)
}

func declareDelayed(ch *amqp091.Channel, exchange string) error {
	return ch.ExchangeDeclare(exchange, "x-delayed-message", true, false, false, false, amqp091.Table{"x-delayed-type": "direct"})
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
