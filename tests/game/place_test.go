package game

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// place is a queue of the game, or the agenda: an exchange that holds messages.
type place struct {
	name    string
	args    amqp.Table
	durable bool
	dead    *place // where its dead letters go; nil = nowhere
	expires time.Duration
	used    hook.Instant // its lease began then

	// What a look has shown, after the step and before it:
	id, wasID       any // of the queue that has the name; nil = there is none
	config          *queue.Config
	stats, wasStats queue.Stats
	isNew           bool   // its counters have begun anew
	active          string // tags of the consumers that are served
	line            []*sighting
	ids             []uint64     // of the messages in line
	fullAt          hook.Instant // when it may have held released messages back

	// What was done in this step:
	purged, deleted, changed bool
	wrote                    bool              // a persistent message was confirmed
	redrive                  *vhost.RedriveJob // that runs
	movedTo                  []*place          // by it
	acked, taken, delivered  uint64
	lastOut                  int // the last index in line of which a message was delivered; -1 = none was
}

const (
	agenda = "agenda"
	churn  = "churn"
)

var strategies = []any{"deadline", "rabbitmq", "lavinmq", "ottermq"}

// layout draws the queues.
func (g *game) layout() {
	for i := range 2 + g.rng.IntN(3) {
		g.queues = append(g.queues, &place{name: "q" + strconv.Itoa(i), durable: true, lastOut: -1})
	}
	g.agenda = &place{name: agenda, durable: true, lastOut: -1}
	g.places = append(slices.Clone(g.queues), g.agenda)
	between := func(least, most int) any { return int64(least + g.rng.IntN(most-least)) }
	for _, p := range g.queues {
		// some gives one queue in so many an argument with one of the values.
		some := func(in int, key string, values ...any) (given bool) {
			if given = g.rng.IntN(in) == 0; given {
				p.args = append(p.args, amqp.Field{Key: key, Value: values[g.rng.IntN(len(values))]})
			}
			return given
		}
		if some(4, "x-queue-type", "quorum") {
			some(1, "x-delivery-limit", between(1, 4))
		} else {
			p.durable = g.rng.IntN(6) > 0
			some(3, "x-max-priority", int64(3))
		}
		some(1, "x-expiry-strategy", strategies...)
		some(3, "x-single-active-consumer", true)
		some(3, "x-message-ttl", between(0, 3000))
		some(3, "x-max-length", between(0, 8))
		some(5, "x-max-length-bytes", between(100, 3000))
		some(4, "x-message-deduplication", true)
		some(4, "x-delivery-lease", between(50, 1500))
		some(6, "x-delivery-delay", between(1, 500))
		if some(3, "x-delayed-retry-type", "failed", "returned", "all") {
			some(1, "x-delayed-retry-min", between(1, 800))
			some(1, "x-delayed-retry-max", between(800, 3000))
		}
		if some(6, "x-expires", int64(4000)) {
			p.expires = 4 * time.Second
		}
		p.dead = g.queues[g.rng.IntN(len(g.queues))]
		switch {
		case g.rng.IntN(4) == 0:
			p.dead = nil
		case some(4, "x-dead-letter-strategy", "at-least-once"):
			some(1, "x-overflow", "reject-publish")
		}
		if p.dead != nil {
			some(1, "x-dead-letter-exchange", "")
			some(1, "x-dead-letter-routing-key", p.dead.name)
		}
		if _, has := p.args.Lookup("x-overflow"); !has {
			some(1, "x-overflow", "drop-head", "reject-publish", "reject-publish-dlx")
		}
	}
}

func (p *place) String() string { return fmt.Sprintf("%s%v", p.name, p.args) }

func (p *place) find(v *vhost.VHost) *queue.Mailbox {
	if p.name != agenda {
		return v.Mailbox(p.name)
	}
	m, _ := v.Schedule(agenda)
	return m
}

// limit returns a setting that is in force, of the arguments and the policy.
func (p *place) limit(key string) hook.Limit {
	v, _ := p.config.Settings(key)
	if n, ok := hook.Int(v); ok {
		return hook.LimitOf(n)
	}
	return 0
}

// millis returns such a setting as a time; 0 = there is none.
func (p *place) millis(key string) time.Duration {
	if l := p.limit(key); l.Set() {
		return time.Duration(l.N()) * time.Millisecond
	}
	return 0
}

func (p *place) limited() bool {
	return p.limit("max-length").Set() || p.limit("max-length-bytes").Set()
}

func (p *place) overflow() string {
	v, _ := p.config.Settings("overflow")
	if s, ok := v.(string); ok && !(s == "reject-publish-dlx" && p.config.Kind == queue.Quorum) {
		return s
	}
	return "drop-head"
}

// deadline returns when a message expires that has entered the queue, ready; 0 = never.
func (p *place) deadline(m *message, entered hook.Instant) hook.Instant {
	l := p.limit("message-ttl")
	if m.ttl.Set() && p.config.Strategy == "ottermq" {
		l = m.ttl
	}
	if l = l.Min(m.ttl); !l.Set() {
		return 0
	}
	at := entered.AddMillis(l.N())
	if p.config.Strategy == "lavinmq" {
		at -= at % hook.Instant(100*time.Millisecond)
	}
	return at
}

// patient reports whether the queue has a message wait for as long as there are consumers, whatever its deadline.
func (p *place) patient(m *message) bool {
	l := p.limit("message-ttl").Min(m.ttl)
	return p.config.Strategy == "lavinmq" && l.Set() && l.N() == 0
}

// expired reports whether the queue may have been deleted because nobody used it.
func (p *place) expired(now hook.Instant) bool { return p.expires > 0 && now >= p.used.Add(p.expires) }

// grew reports whether the queue may have counted something in this step.
func (p *place) grew(count func(*queue.Counters) uint64) bool {
	return p.isNew || count(&p.stats.Counters) > count(&p.wasStats.Counters)
}

// lost reports whether messages have left the queue for a reason in this step.
func (p *place) lost(r hook.Reason) bool {
	return p.grew(func(c *queue.Counters) uint64 { return c.Dropped[r] + c.DeadLettered[r] })
}

// redriven reports whether a redrive runs.
func (p *place) redriven() bool {
	if p.redrive == nil {
		return false
	}
	s, _ := p.redrive.Status()
	return s.State == queue.RedriveRunning
}

// channel is one of the connection. The first publishes and fetches, the second has transactions, the others have consumers.
type channel struct {
	n         uint16
	limit     int // of all its consumers; 0 = none
	consumers []*consumer
	unsettled []*delivery
}

type consumer struct {
	tag   string // "" = basic.get
	from  *place
	noAck bool
	limit int // 0 = none
}

// delivery is a message that a client has.
type delivery struct {
	m       *message
	at      *place
	id      any // of the queue that was there
	tag     uint64
	by      *consumer
	ends    [2]hook.Instant // its lease, between these times; 0 = it has none
	pending what            // how a transaction settles it
}

// waiting returns a consumer that has to get what is ready in a queue; nil = there is none.
func (c *channel) waiting(p *place) *consumer {
	all, of := 0, map[*consumer]int{}
	for _, d := range c.unsettled {
		if of[d.by]++; d.by.tag != "" {
			all++
		}
	}
	for _, k := range c.consumers {
		room := k.noAck || (k.limit == 0 || of[k] < k.limit) && (c.limit == 0 || all < c.limit)
		if k.from == p && room && slices.Contains(strings.Fields(p.active), k.tag) {
			return k
		}
	}
	return nil
}
