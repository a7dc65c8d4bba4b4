package vhost

import (
	"slices"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/route"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// TraceExchange receives a copy of every message that is published to or delivered from a
// traced vhost [RabbitMQ: firehose.html]. Clients cannot publish to it.
const TraceExchange = "amq.rabbitmq.trace"

// Route appends to dst the queues for a message that is published to the exchange, each
// once. reusable means that the result depends on exchange and keys alone, and is valid as
// long as Generation returns the same as before the call. Route sets the message's
// Exchange, and does not retain the message.
func (t *topology) Route(exchange string, m *parts.Message, dst []*queue.Mailbox) (_ []*queue.Mailbox, reusable bool, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	x, err := t.publishable(exchange)
	if err != nil {
		return dst, false, err
	}
	m.Published = true
	dst, fit, err := t.queuesOf(x, m, dst)
	if err != nil {
		return dst, false, err
	}
	for _, q := range dst {
		if err := t.checkLog(q.Config()); err != nil {
			return dst, false, err
		}
	}
	return dst, fit == sameKeys, nil
}

// Publishable returns an error if Route would return it for every message to an exchange;
// nil if that depends on the message.
func (t *topology) Publishable(exchange string) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	x, err := t.publishable(exchange)
	if err != nil {
		return err
	}
	return t.checkRoutable(x)
}

// publishable returns an exchange that clients may publish to. The caller holds mu.
func (t *topology) publishable(exchange string) (*exchange, error) {
	if err := t.life.checkMoved(); err != nil {
		return nil, err
	}
	x := t.exchanges[exchange]
	if x == nil {
		return nil, t.life.noExchange(exchange)
	}
	if x.Internal {
		return nil, refuse(AccessRefused, "cannot publish to internal %s", t.exchangeName(exchange))
	}
	return x, nil
}

// reuse says which other messages may use a route, as long as Generation returns the same as before it was looked up.
type reuse uint8

const (
	noOther   reuse = iota // none
	keptOut                // none: a filter did not admit the message
	sameProps              // messages with the same keys and properties
	sameKeys               // messages with the same keys
)

// applies reports whether the route is valid for messages with the same keys and properties.
func (r reuse) applies() bool { return r >= sameProps }

// routeInternal is Route for messages that the broker publishes, which may go to internal
// exchanges. The outcome is the one for a dead letter. A message that cannot be routed goes
// nowhere.
func (t *topology) routeInternal(exchange string, m *parts.Message, dst []*queue.Mailbox) ([]*queue.Mailbox, reuse, telemetry.Outcome) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	x := t.exchanges[exchange]
	if x == nil {
		return dst, sameKeys, telemetry.NoExchange
	}
	return t.routeFrom(x, m, dst)
}

// routeFrom is routeInternal for a message to an exchange. The caller holds mu.
func (t *topology) routeFrom(x *exchange, m *parts.Message, dst []*queue.Mailbox) ([]*queue.Mailbox, reuse, telemetry.Outcome) {
	queues, fit, err := t.queuesOf(x, m, dst)
	switch {
	case err != nil:
		return dst, noOther, telemetry.Unroutable
	case len(queues) > len(dst):
		return queues, fit, telemetry.DeadLettered
	case fit == keptOut:
		return queues, fit, telemetry.Filtered
	}
	return queues, fit, telemetry.Unroutable
}

// routing follows one message through exchanges. Routings are pooled for their buffers.
type routing struct {
	topology *topology
	message  *parts.Message
	list     []destination           // destinations of the message so far, including the exchanges on its way
	seen     route.Seen[destination] // of list
	headers  func() amqp.RawTable

	publishing hook.Publishing // message, as plugins see it
	planned    hook.Plan       // of the last schedule that was asked
	prepared   bool            // publishing is set
	volatile   bool            // a plugin wants to be asked about each message
	keptOut    bool            // a filter of an exchange did not admit the message
	probing    bool            // only whether the message would be routed anywhere is wanted; nothing may change
	numbers    []hook.Destination
}

var routings = sync.Pool{New: func() any {
	r := &routing{}
	r.headers = r.readHeaders // once: a method value allocates
	return r
}}

func (r *routing) readHeaders() amqp.RawTable {
	r.prepare()
	return amqp.RawTable(r.publishing.Part(hook.PartHeaders)) // which notes that they were read
}

// prepare makes the message readable by plugins.
func (r *routing) prepare() {
	if r.prepared {
		return
	}
	r.prepared = true
	m := r.message
	if m.Now == 0 {
		m.Now = r.topology.clock()
	}
	r.publishing.Now, r.publishing.Key, r.publishing.More, r.publishing.Again = m.Now, m.Key, m.More, m.Admitted
	r.publishing.Bind(m)
}

// queuesOf follows a message from x through bindings and alternate exchanges. The caller holds mu.
func (t *topology) queuesOf(x *exchange, m *parts.Message, dst []*queue.Mailbox) (_ []*queue.Mailbox, fit reuse, err error) {
	m.Exchange = x.Name
	if x.isDefault() && len(m.More) == 0 {
		if q := t.queueNamed(m.Key); q != nil {
			dst = append(dst, q)
		}
		return dst, sameKeys, nil
	}
	r := routings.Get().(*routing)
	r.topology, r.message = t, m
	dst, err = r.follow(x, dst)
	fit = r.fit()
	r.release()
	return dst, fit, err
}

// follow appends the queues that the message reaches from x.
func (r *routing) follow(x *exchange, dst []*queue.Mailbox) ([]*queue.Mailbox, error) {
	if err := r.match(x); err != nil {
		return dst, err
	}
	for i := 0; i < len(r.list); i++ { // list grows by the destinations of its exchanges, each once
		switch d := r.list[i]; {
		case d.queue != nil:
			dst = append(dst, d.queue)
		case d.exchange != x:
			if err := r.match(d.exchange); err != nil {
				return dst, err
			}
		}
	}
	return dst, nil
}

// fit returns which other messages the route is valid for.
func (r *routing) fit() reuse {
	switch {
	case !r.prepared:
		return sameKeys
	case r.keptOut:
		return keptOut
	case r.volatile || r.message.BodyRead:
		return noOther
	case r.publishing.Read():
		return sameProps
	}
	return sameKeys
}

// release returns r to the pool. It retains nothing of the message.
func (r *routing) release() {
	const maxRetained = 4096
	if cap(r.list) > maxRetained || cap(r.numbers) > maxRetained {
		return
	}
	clear(r.list)
	r.seen.Reset()
	r.list, r.topology, r.message, r.probing = r.list[:0], nil, nil, false
	if r.prepared {
		r.publishing, r.planned, r.prepared, r.volatile, r.keptOut = hook.Publishing{}, hook.Plan{}, false, false, false
	}
	routings.Put(r)
}

// match adds the destinations of x or, if it has none for the message, its alternate
// exchange. It skips destinations that are listed already. It is called once for each
// exchange on the message's way.
func (r *routing) match(x *exchange) error {
	if x.filters != nil && !r.probing && r.message.Released != x.Name {
		if admitted, err := r.admit(x); !admitted {
			return err
		}
	}
	if x.schedule != nil && !r.probing && r.message.Released == "" {
		if planned, err := r.plan(x); planned || err != nil {
			return err
		}
	}
	matched, err := r.matchKeys(x)
	if matched || !x.hasAlternate || err != nil {
		return err
	}
	d := destination{exchange: r.topology.exchange(x.alternate)}
	if d.exchange != nil && !slices.Contains(r.list, d) {
		r.list = append(r.list, d)
	}
	return nil
}

// matchKeys matches all keys of the message, and reports whether any leads somewhere.
func (r *routing) matchKeys(x *exchange) (matched bool, err error) {
	m := r.message
	switch {
	case x.isDefault():
		r.list, matched = r.topology.matchNames(m, r.list)
		return matched, nil
	case x.router != nil || x.missing:
		return r.askRouter(x)
	}
	r.list, matched = x.table.MatchKeys(r.list, &r.seen, amqp.BytesOf(m.Key), m.More, r.headers)
	return matched, nil
}

// admit asks the filters of x about the message.
func (r *routing) admit(x *exchange) (admitted bool, err error) {
	r.prepare()
	r.volatile = true
	if r.message.Admitted {
		return true, nil
	}
	admitted, failed := x.filters.Admit(&r.publishing)
	if failed != "" {
		return false, r.topology.notRouted(failed, x)
	}
	r.keptOut = r.keptOut || !admitted
	r.message.Passed = r.message.Passed || admitted
	return admitted, nil
}

// askRouter adds the destinations that a plugin chooses.
func (r *routing) askRouter(x *exchange) (matched bool, err error) {
	if err := r.topology.checkRoutable(x); err != nil {
		return false, err
	}
	if r.probing && x.router.Volatile {
		return r.addAll(x), nil
	}
	r.prepare()
	r.volatile = r.volatile || x.volatile
	r.publishing.Filtered = false
	numbers, ok := x.router.Route(&r.publishing, r.numbers[:0])
	if !ok {
		return false, r.topology.notRouted(x.router.Plugin(), x)
	}
	if x.volatile && !r.probing {
		r.noteAnswer(x)
	}
	list, matched, invalid := x.table.Translate(r.list, numbers)
	if invalid > 0 && !r.probing {
		x.router.CountInvalid(invalid)
	}
	r.list = list
	if cap(r.numbers) < len(numbers) { // the plugin's slice is not retained: it may be the plugin's own
		r.numbers = make([]hook.Destination, 0, len(numbers))
	}
	return matched, nil
}

// noteAnswer notes whether a Router dropped the message or let it pass.
func (r *routing) noteAnswer(x *exchange) {
	if !r.publishing.Filtered {
		r.message.Passed = true
		return
	}
	r.publishing.Filtered, r.keptOut = false, true
	x.router.CountFiltered()
}

// matchNames matches for the default exchange: every key is the name of a queue. It reports
// whether any queue has such a name.
func (t *topology) matchNames(m *parts.Message, list []destination) (_ []destination, matched bool) {
	seen := make(map[destination]struct{}, len(list)+len(m.More)+1)
	for _, d := range list {
		seen[d] = struct{}{}
	}
	add := func(key string) {
		d := destination{queue: t.queueNamed(key)}
		matched = matched || d.queue != nil
		if _, listed := seen[d]; d.queue != nil && !listed {
			seen[d] = struct{}{}
			list = append(list, d)
		}
	}
	add(m.Key)
	for _, key := range m.More {
		add(key)
	}
	return list, matched
}

// queueNamed returns the queue that the default exchange routes to; nil if it does not
// exist. In that case a new queue, which may have that name, changes the generation. The
// caller holds mu, at least for reading.
func (t *topology) queueNamed(name string) *queue.Mailbox {
	e, ok := t.queues.get(name)
	if !ok && !t.unroutedName.Load() {
		t.unroutedName.Store(true)
	}
	return e.mailbox
}

// Successors replaces each queue in place by the queue that has its name now, and leaves
// out queues with names that are unused.
func (t *topology) Successors(queues []*queue.Mailbox) []*queue.Mailbox {
	t.mu.RLock()
	defer t.mu.RUnlock()
	successors := queues[:0]
	for _, q := range queues {
		if q.Config().Schedule != nil {
			if x := t.exchanges[q.Config().Name]; x != nil && x.schedule != nil {
				successors = append(successors, x.schedule.mailbox)
			}
			continue
		}
		if e, ok := t.queues.get(q.Config().Name); ok {
			successors = append(successors, e.mailbox)
		}
	}
	return successors
}
