package power

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// question is something that the admin has asked for.
type question struct {
	p       *place
	what    string
	excused []*message // because the exchange is to be deleted that holds them
}

// layout has a queue for each way in which messages live and die. Those that are alike have different times: what is due at one
// instant is done in any order.
func (r *run) layout() {
	for _, p := range []*place{
		{name: "old"},
		{name: "plain"},
		{name: "timed", ttl: 61 * time.Millisecond, dead: &place{name: "timed.dead"}},
		{name: "brief", ttl: 83 * time.Millisecond},
		{name: "short", limit: 5, dead: &place{name: "short.dead"}},
		{name: "work", ttl: 5077 * time.Millisecond, dead: &place{name: "work.dead"}},
		{name: "careful", ttl: 103 * time.Millisecond, careful: true, dead: &place{name: "careful.dead"}},
		{name: "leased", lease: 701 * time.Millisecond, dead: &place{name: "leased.dead"}},
		{name: "leased.careful", lease: 907 * time.Millisecond, ttl: 613 * time.Millisecond, careful: true, dead: &place{name: "leased.careful.dead"}},
		{name: "held", holds: true},
		{name: "later", via: "x.later"},
		{name: "agenda", via: agenda},
	} {
		if p.dead != nil {
			p.dead.source = p
			r.places = append(r.places, p.dead)
		}
		r.places = append(r.places, p)
	}
	for n := range 3 {
		r.churn = append(r.churn, &place{name: "churn." + strconv.Itoa(n)})
	}
	r.places = append(r.places, r.churn...)
}

func (p *place) isChurn() bool { return strings.HasPrefix(p.name, "churn.") }

func (p *place) arguments(padding int) amqp.Table {
	var args amqp.Table
	add := func(key string, v any) { args = append(args, amqp.Field{Key: key, Value: v}) }
	if p.ttl > 0 {
		add("x-message-ttl", p.ttl.Milliseconds())
	}
	if p.limit > 0 {
		add("x-max-length", int64(p.limit))
	}
	if p.lease > 0 {
		add("x-expires", p.lease.Milliseconds())
	}
	if p.careful && p.lease == 0 { // of both types
		add("x-queue-type", "quorum")
	}
	if p.careful {
		add("x-dead-letter-strategy", "at-least-once")
		add("x-overflow", "reject-publish")
	}
	if p.dead != nil {
		add("x-dead-letter-exchange", "")
		add("x-dead-letter-routing-key", p.dead.name)
	}
	if padding > 0 {
		add("padding", strings.Repeat("x", padding))
	}
	return args
}

// declareAll declares what is not there but is to be.
func (r *run) declareAll() {
	c := r.broker.connect(800)
	r.admin = c
	c.say(1, &amqp.ChannelOpen{})
	r.settle()
	for _, p := range r.places {
		if !p.there && !p.isChurn() && !r.broken() {
			r.declare(p)
			r.settle()
		}
	}
	for _, p := range r.places {
		if p.via != "" && !p.open && !r.broken() {
			r.declareVia(p)
			r.settle()
		}
	}
}

// declare has the admin declare a place.
func (r *run) declare(p *place) {
	p.used = r.broker.clock()
	p.sure, p.ended = false, false
	padding := 0
	if p.isChurn() {
		padding = 200 + r.random.IntN(3000)
	}
	r.asked = &question{p: p, what: "declare"}
	r.admin.say(1, &amqp.QueueDeclare{Queue: p.name, Durable: true, Arguments: p.arguments(padding)})
}

// answered is called for what the admin is told.
func (r *run) answered(m amqp.Method) {
	q := r.asked
	if q == nil {
		return
	}
	switch m.(type) {
	case *amqp.QueueDeclareOK:
		q.p.there, q.p.sure, q.p.as = true, true, r.mark(0)
		r.identify(q.p)
		r.ledger.counts.Declared++
	case *amqp.QueueDeleteOK:
		q.p.there, q.p.sure, q.p.as, q.p.doomed = false, true, r.mark(0), false
		r.ledger.counts.Deleted++
	case *amqp.ExchangeDeclareOK:
		return // its binding is under way
	case *amqp.QueueBindOK:
		q.p.open = true
		r.identify(q.p)
	case *amqp.ExchangeDeleteOK:
		r.discarded(q.p)
	case *amqp.QueuePurgeOK:
		q.p.doomed = false
		r.ledger.counts.Purged++
	default:
		return
	}
	r.asked = nil
}

// look finds out which places there are, and complains if that cannot be. What it sees is certain when nothing moves.
func (r *run) look(still bool) {
	now := r.broker.clock()
	for _, p := range r.places {
		if r.asked != nil && r.asked.p == p {
			continue // it comes, or goes
		}
		there := r.identify(p)
		expired := p.ended || p.over(now) || r.deserted(p, now)
		p.ended = p.ended && !there
		switch {
		case there == p.there, !p.sure:
		case there:
			r.ledger.breach("queue %s is back", p.name)
		case expired:
			r.ledger.counts.Leases++
		default:
			r.ledger.breach("queue %s is gone, lease %v, used %v ago", p.name, p.lease, now.Sub(p.used))
		}
		if there != p.there || !p.sure {
			if !there {
				r.excuse(p)
				r.emptied(p)
			}
			p.there, p.sure, p.as = there, still, r.mark(0)
		}
	}
}

// deserted reports whether a place's lease may have run out because the broker closed the channels of its consumers, unheard yet.
func (r *run) deserted(p *place, now hook.Instant) bool {
	used := p.used
	for _, k := range r.consumers {
		if slices.Contains(k.serving, p) {
			if !k.closing(k.ch) {
				return false
			}
			used = max(used, k.heard)
		}
	}
	return p.lease > 0 && now >= used.Add(p.lease)
}

// identify finds out which queue a place is, and reports whether there is one.
func (r *run) identify(p *place) bool {
	s, err := r.broker.vhost.Queue(p.name, 0)
	if err != nil {
		return false
	}
	at := s.Config().Storage
	p.shard = at.Shard
	if h, err := r.broker.vhost.Schedule(p.via); p.via != "" && err == nil {
		p.log = h.Config().Storage.Shard
	}
	if p.id != at.ID {
		p.id = at.ID
		p.number++
	}
	return true
}

// excuse lets the messages of a queue that went be gone.
func (r *run) excuse(p *place) {
	expired := p.lease > 0 && p.sure && !p.doomed
	for _, m := range r.ledger.messages {
		if m.home == p && m.number == p.number && !expired || p.source == m.home && m.home != nil && p.source != nil {
			m.excused = true
		}
	}
}

// emptied lets the messages of a queue be gone, the lease of which may have run out: that empties it first, and it may be there yet.
func (r *run) emptied(p *place) {
	for _, m := range r.ledger.messages {
		m.excused = m.excused || m.home == p && m.number == p.number && !r.bury
	}
}
