package vhost

import (
	"slices"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
)

// message is what routing looks at.
type message struct {
	key     string
	extra   []string // further keys: CC and BCC
	headers func() amqp.RawTable
}

// Route appends to dst the queues that a message published to the exchange goes to, each once. extra are further routing
// keys. headers may be nil; as long as it is not called, the result depends on nothing but exchange and keys, and is good
// for as long as Generation returns what it returned before the call.
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
	return dst, allUsable(dst)
}

// routeInternal is Route for dead letters, which may go through internal exchanges. ok is false if there is no such exchange.
func (v *VHost) routeInternal(exchange string, m message, dst []*queue.Mailbox) (queues []*queue.Mailbox, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x := v.exchanges[exchange]
	if x == nil {
		return dst, false
	}
	return v.queuesOf(x, m, dst), true
}

// matchBuffer is where a message goes, exchanges on the way included. It is borrowed for the time of routing.
type matchBuffer struct{ list []destination }

var matchBuffers = sync.Pool{New: func() any { return new(matchBuffer) }}

// queuesOf follows a message from x through bindings and alternate exchanges. The caller holds mu.
func (v *VHost) queuesOf(x *exchange, m message, dst []*queue.Mailbox) []*queue.Mailbox {
	if x.table == nil && len(m.extra) == 0 {
		if e, ok := v.queue(m.key); ok {
			return append(dst, e.mailbox)
		}
		return dst
	}
	f := matchBuffers.Get().(*matchBuffer)
	list := v.match(x, &m, f.list[:0])
	for i := 0; i < len(list); i++ { // it grows by what exchanges in it lead to, but never by one that is in it
		switch d := list[i]; {
		case d.queue != nil:
			dst = append(dst, d.queue)
		case d.exchange != x:
			list = v.match(d.exchange, &m, list)
		}
	}
	f.release(list)
	return dst
}

func (f *matchBuffer) release(list []destination) {
	const large = 4096 // a list that grew this big is not worth keeping
	if cap(list) > large {
		return
	}
	clear(list)
	f.list = list
	matchBuffers.Put(f)
}

// match appends what one exchange leads to, or else its alternate exchange. What is in list already is not added again.
func (v *VHost) match(x *exchange, m *message, list []destination) []destination {
	before := len(list)
	list = v.matchKeys(x, m, list)
	if len(list) > before || !x.hasAlternate {
		return list
	}
	if before > 0 && len(v.matchKeys(x, m, nil)) > 0 {
		return list // it led to something, which was in the list
	}
	alternate := v.exchanges[x.alternate]
	d := destination{exchange: alternate}
	if alternate == nil || slices.Contains(list, d) {
		return list
	}
	return append(list, d)
}

func (v *VHost) matchKeys(x *exchange, m *message, list []destination) []destination {
	if x.table == nil {
		return v.matchNames(m, list)
	}
	list = x.table.Match(list, amqp.BytesOf(m.key), m.headers)
	for _, key := range m.extra {
		list = x.table.Match(list, amqp.BytesOf(key), m.headers)
	}
	return list
}

// matchNames is what the default exchange does: every key is the name of a queue.
func (v *VHost) matchNames(m *message, list []destination) []destination {
	seen := make(map[destination]struct{}, len(list)+len(m.extra)+1)
	for _, d := range list {
		seen[d] = struct{}{}
	}
	add := func(key string) {
		e, ok := v.queue(key)
		d := destination{queue: e.mailbox}
		if _, listed := seen[d]; ok && !listed {
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

// queue finds the queue that the default exchange leads to, and takes note if there is none: the next one that is created
// may be it. The caller holds mu, if only for reading.
func (v *VHost) queue(name string) (queueEntry, bool) {
	e, ok := v.queues[name]
	if !ok && !v.unroutedName.Load() {
		v.unroutedName.Store(true)
	}
	return e, ok
}

// Successors replaces queues by those that have their names now, and leaves out those that have none.
func (v *VHost) Successors(shells []*queue.Mailbox) []*queue.Mailbox {
	v.mu.RLock()
	defer v.mu.RUnlock()
	now := shells[:0]
	for _, s := range shells {
		if e, ok := v.queues[s.Config().Name]; ok {
			now = append(now, e.mailbox)
		}
	}
	return now
}
