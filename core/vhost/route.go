package vhost

import (
	"slices"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
)

// TraceExchange receives a copy of every message that is published to or delivered from a traced vhost [RabbitMQ: firehose.html].
// Clients cannot publish to it.
const TraceExchange = "amq.rabbitmq.trace"

// Tracing reports whether the vhost is traced.
func (v *VHost) Tracing() bool { return v.tracing.Load() }

// message is what routing looks at.
type message struct {
	key     string
	extra   []string // further keys: CC and BCC
	headers func() amqp.RawTable
}

// Route appends to dst the queues that a message published to the exchange goes to, each once. extra are further routing keys.
// headers may be nil. As long as headers is not called, the result depends on exchange and keys alone, and is valid while
// Generation returns what it returned before the call.
func (v *VHost) Route(exchange, key string, headers func() amqp.RawTable, extra []string, dst []*queue.Mailbox) ([]*queue.Mailbox, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x := v.exchanges[exchange]
	if x == nil {
		return dst, v.noExchange(exchange)
	}
	if x.Internal {
		return dst, refuse(AccessRefused, "cannot publish to internal %s", v.exchangeName(exchange))
	}
	dst = v.queuesOf(x, message{key, extra, headers}, dst)
	for _, q := range dst {
		if err := checkLog(q.Config()); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// RouteCopy appends to dst the queues that the trace exchange routes the copy of a message to, by the copy's key and headers.
func (v *VHost) RouteCopy(key string, headers func() amqp.RawTable, dst []*queue.Mailbox) []*queue.Mailbox {
	dst, _ = v.routeInternal(TraceExchange, message{key: key, headers: headers}, dst)
	return dst
}

// routeInternal is Route for messages that the broker publishes, which may go to internal exchanges. exists is false if there is
// no such exchange.
func (v *VHost) routeInternal(exchange string, m message, dst []*queue.Mailbox) (queues []*queue.Mailbox, exists bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x := v.exchanges[exchange]
	if x == nil {
		return dst, false
	}
	return v.queuesOf(x, m, dst), true
}

// matchBuffer is a pooled list of the destinations of one message, including the exchanges on its way.
type matchBuffer struct{ list []destination }

var matchBuffers = sync.Pool{New: func() any { return new(matchBuffer) }}

// queuesOf follows a message from x through bindings and alternate exchanges. The caller holds mu.
func (v *VHost) queuesOf(x *exchange, m message, dst []*queue.Mailbox) []*queue.Mailbox {
	if x.isDefault() && len(m.extra) == 0 {
		if q := v.queueNamed(m.key); q != nil {
			return append(dst, q)
		}
		return dst
	}
	b := matchBuffers.Get().(*matchBuffer)
	list := v.match(x, &m, b.list[:0])
	for i := 0; i < len(list); i++ { // list grows by what its exchanges lead to, but by no destination twice
		switch d := list[i]; {
		case d.queue != nil:
			dst = append(dst, d.queue)
		case d.exchange != x:
			list = v.match(d.exchange, &m, list)
		}
	}
	b.release(list)
	return dst
}

func (b *matchBuffer) release(list []destination) {
	const maxRetained = 4096
	if cap(list) > maxRetained {
		return
	}
	clear(list)
	b.list = list
	matchBuffers.Put(b)
}

// match appends the destinations of x or, if it has none for m, its alternate exchange. It skips what is in list already.
func (v *VHost) match(x *exchange, m *message, list []destination) []destination {
	before := len(list)
	list = v.matchKeys(x, m, list)
	if len(list) > before || !x.hasAlternate {
		return list
	}
	if before > 0 && len(v.matchKeys(x, m, nil)) > 0 {
		return list // x does have destinations, and all were in list
	}
	alternate := v.exchanges[x.alternate]
	d := destination{exchange: alternate}
	if alternate == nil || slices.Contains(list, d) {
		return list
	}
	return append(list, d)
}

func (v *VHost) matchKeys(x *exchange, m *message, list []destination) []destination {
	if x.isDefault() {
		return v.matchNames(m, list)
	}
	list = x.table.Match(list, amqp.BytesOf(m.key), m.headers)
	for _, key := range m.extra {
		list = x.table.Match(list, amqp.BytesOf(key), m.headers)
	}
	return list
}

// matchNames matches for the default exchange: every key is the name of a queue.
func (v *VHost) matchNames(m *message, list []destination) []destination {
	seen := make(map[destination]struct{}, len(list)+len(m.extra)+1)
	for _, d := range list {
		seen[d] = struct{}{}
	}
	add := func(key string) {
		d := destination{queue: v.queueNamed(key)}
		if _, listed := seen[d]; d.queue != nil && !listed {
			seen[d] = struct{}{}
			list = append(list, d)
		}
	}
	add(m.key)
	for _, key := range m.extra {
		add(key)
	}
	return list
}

// queueNamed returns the queue that the default exchange routes to; nil if it does not exist. Then the next new queue may have
// that name, and changes the generation. The caller holds mu, at least for reading.
func (v *VHost) queueNamed(name string) *queue.Mailbox {
	e, ok := v.queues[name]
	if !ok && !v.unroutedName.Load() {
		v.unroutedName.Store(true)
	}
	return e.mailbox
}

// Successors replaces each queue in place by the one that has its name now, and leaves out those whose name is unused.
func (v *VHost) Successors(queues []*queue.Mailbox) []*queue.Mailbox {
	v.mu.RLock()
	defer v.mu.RUnlock()
	successors := queues[:0]
	for _, q := range queues {
		if e, ok := v.queues[q.Config().Name]; ok {
			successors = append(successors, e.mailbox)
		}
	}
	return successors
}
