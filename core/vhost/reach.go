package vhost

import (
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/route"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Reach is the set of queues that dead letters with a target would reach through the
// present bindings.
type Reach struct {
	NoExchange bool // the target's exchange does not exist
	// ByName means that the default exchange gets the messages, with their own keys: each
	// goes to the queue that has its key as a name.
	ByName bool
	// Keyed means that an exchange on the way looks at keys: messages with another key may get elsewhere.
	Keyed  bool
	Queues []Reached // sorted: certain ones first, then by name
	Others int       // queues that were left out, because there are too many
}

// Reached is a queue that dead letters get to.
type Reached struct {
	Queue   string
	Certain bool     // all messages get there; otherwise only those with certain keys or headers, or chosen by a plugin
	Via     []string // exchanges on the way, after the target's; the last ones, if there are more than maxVia
	Holder  string   // exchange on the way that can hold messages for a time; "" = none
}

// maxVia is how many exchanges on the way to a queue are named.
const maxVia = 8

// Reach follows dead letters with a target through bindings and alternate exchanges. It
// needs no message, and changes nothing. If the target has no key, messages keep their own
// keys, which are unknown here. It names at most most queues.
func (t *topology) Reach(target *hook.Target, most int) (r Reach) {
	w := reachWalk{topology: t, target: target, reach: &r, queues: map[*queue.Mailbox]*reachStep{}, exchanges: map[*exchange]bool{}}
	w.walk()
	r.Queues = w.list(most)
	r.Others = len(w.queues) - len(r.Queues)
	return r
}

// LeadsTo returns the names of the queues to which a message that the broker publishes to
// an exchange would be routed now, and the outcome for a dead letter. If a plugin chooses
// anew for each message, it returns all queues that the plugin may choose; exchanges hold
// nothing, and filters are not asked. LeadsTo changes nothing.
func (t *topology) LeadsTo(exchange string, m *parts.Message) (queues []string, outcome telemetry.Outcome) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	x := t.exchanges[exchange]
	if x == nil {
		return nil, telemetry.NoExchange
	}
	m.Exchange = x.Name
	probe := routings.Get().(*routing)
	probe.topology, probe.message, probe.probing = t, m, true
	found, err := probe.follow(x, nil)
	probe.release()
	for _, q := range found {
		if cfg := q.Config(); cfg.Schedule == nil {
			queues = append(queues, cfg.Name)
		}
	}
	if err != nil || len(found) == 0 {
		return nil, telemetry.Unroutable
	}
	return queues, telemetry.DeadLettered
}

// walk follows messages to all queues that they reach.
func (w *reachWalk) walk() {
	w.topology.mu.RLock()
	defer w.topology.mu.RUnlock()
	x := w.topology.exchange(w.target.Exchange)
	if x == nil {
		w.reach.NoExchange = true
		return
	}
	w.enter(x, &reachStep{certain: true})
	for len(w.next) > 0 { // an exchange is entered at most twice: once because messages may reach it, and once because they certainly do
		x, step := w.next[0].exchange, w.next[0].step
		w.next = w.next[1:]
		w.leave(x, step)
	}
}

// reachWalk follows messages through exchanges.
type reachWalk struct {
	topology  *topology
	target    *hook.Target
	reach     *Reach
	queues    map[*queue.Mailbox]*reachStep // that are reached
	exchanges map[*exchange]bool            // that are reached; true = certainly
	next      []reachNext
}

type reachNext struct {
	exchange *exchange
	step     *reachStep
}

// reachStep is a step on the way of messages. It does not change once it has been passed on.
type reachStep struct {
	certain bool
	via     *exchange  // the exchange that they come from; nil at the beginning
	before  *reachStep // the step before
	holder  string
}

// enter notes that messages get to an exchange, unless it is known.
func (w *reachWalk) enter(x *exchange, s *reachStep) {
	if certain, known := w.exchanges[x]; known && (certain || !s.certain) {
		return
	}
	w.exchanges[x] = s.certain
	w.next = append(w.next, reachNext{x, s})
}

// leave follows messages out of an exchange.
func (w *reachWalk) leave(x *exchange, s *reachStep) {
	step := reachStep{certain: s.certain && x.filters == nil, via: x, before: s, holder: s.holder}
	if x.schedule != nil {
		step.holder = x.Name
	}
	certain, possible, byName := w.match(x)
	w.to(certain, step)
	some := step
	some.certain = false
	w.to(possible, some)
	w.reach.ByName = w.reach.ByName || byName
	if len(certain) > 0 || !x.hasAlternate {
		return
	}
	if alternate := w.topology.exchange(x.alternate); alternate != nil {
		step.certain = step.certain && len(possible) == 0 && !byName
		w.enter(alternate, &step)
	}
}

// to notes that messages get to destinations.
func (w *reachWalk) to(list []destination, s reachStep) {
	for _, d := range list {
		if d.exchange != nil {
			w.enter(d.exchange, &s)
			continue
		}
		if before := w.queues[d.queue]; before == nil || !before.certain && s.certain {
			w.queues[d.queue] = &s
		}
	}
}

// match returns the destinations of all messages, and the destinations of messages that are
// unknown here. byName means that each goes to the queue that its key names.
func (w *reachWalk) match(x *exchange) (certain, possible []destination, byName bool) {
	t := w.target
	w.reach.Keyed = w.reach.Keyed || x.keyed()
	switch {
	case w.topology.checkRoutable(x) != nil:
		return nil, nil, false
	case x.isDefault():
		if e, ok := w.topology.queues.get(t.Key); t.HasKey && ok {
			certain = append(certain, destination{queue: e.mailbox})
		}
		return certain, nil, !t.HasKey
	case x.router != nil:
		if certain, ok := w.ask(x); ok {
			return certain, nil, false
		}
		return nil, w.all(x, nil), false
	}
	switch x.table.Kind() {
	case route.Fanout:
		certain, _ = x.table.Match(nil, nil, nil)
		return certain, nil, false
	case route.Headers:
		certain, _ = x.table.Match(nil, nil, func() amqp.RawTable { return nil })
		return certain, w.all(x, certain), false
	}
	if t.HasKey {
		certain, _ = x.table.Match(nil, amqp.BytesOf(t.Key), nil)
		return certain, nil, false
	}
	if x.table.Kind() == route.Topic {
		certain = w.everyKey(x)
	}
	return certain, w.all(x, certain), false
}

// keyed reports whether the exchange looks at routing keys, as far as is known.
func (x *exchange) keyed() bool {
	if x.isDefault() || x.router != nil || x.missing {
		return true
	}
	kind := x.table.Kind()
	return kind != route.Fanout && kind != route.Headers
}

// ask asks the plugin of an exchange's type. ok is false if the answer depends on more than the target's key.
func (w *reachWalk) ask(x *exchange) (certain []destination, ok bool) {
	if !w.target.HasKey || x.router.Volatile {
		return nil, false
	}
	r := routings.Get().(*routing)
	defer r.release()
	r.topology, r.message = w.topology, &parts.Message{Exchange: w.target.Exchange, Key: w.target.Key}
	r.prepare()
	numbers, ok := x.router.Route(&r.publishing, nil)
	if !ok || r.publishing.Read() {
		return nil, false
	}
	certain, _, _ = x.table.Translate(nil, numbers)
	return certain, true
}

// everyKey returns the destinations of a topic exchange that are bound for all keys.
func (w *reachWalk) everyKey(x *exchange) (list []destination) {
	for b := range x.table.All() {
		if b.Key == "#" {
			list = append(list, b.Destination)
		}
	}
	return list
}

// all returns the destinations of an exchange's bindings, except the known ones.
func (w *reachWalk) all(x *exchange, known []destination) (list []destination) {
	seen := make(map[destination]struct{}, len(known))
	for _, d := range known {
		seen[d] = struct{}{}
	}
	for d := range x.table.Destinations() {
		if _, ok := seen[d]; !ok {
			list = append(list, d)
		}
	}
	return list
}

// reachedBy is a queue that was reached, and how.
type reachedBy struct {
	queue string
	step  *reachStep
}

// compare orders queues: certain ones first, then by name.
func (a reachedBy) compare(b reachedBy) int {
	if a.step.certain != b.step.certain {
		if a.step.certain {
			return -1
		}
		return 1
	}
	return strings.Compare(a.queue, b.queue)
}

// list returns the first of the queues that were reached, in order. It does not sort the
// others: there may be many more.
func (w *reachWalk) list(most int) []Reached {
	first := make([]reachedBy, 0, most+1)
	for m, s := range w.queues {
		q := reachedBy{m.Config().Name, s}
		if len(first) == most && (most == 0 || q.compare(first[most-1]) > 0) {
			continue
		}
		i, _ := slices.BinarySearchFunc(first, q, reachedBy.compare)
		first = slices.Insert(first, i, q)
		first = first[:min(len(first), most)]
	}
	all := make([]Reached, len(first))
	for i, q := range first {
		all[i] = Reached{Queue: q.queue, Certain: q.step.certain, Via: q.step.names(), Holder: q.step.holder}
	}
	return all
}

// names returns the exchanges on the way in order, without the first.
func (s *reachStep) names() (via []string) {
	for ; s.before != nil && s.before.via != nil && len(via) < maxVia; s = s.before {
		via = append(via, s.via.Name)
	}
	slices.Reverse(via)
	return via
}
