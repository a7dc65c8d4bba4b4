package vhost

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
)

// CompactDefinitions writes the definitions of everything there is, in place of all that was written so far, if that is worth it. The
// vhost is locked for a part of them at a time. Nothing durable comes meanwhile; queues may go.
func (v *VHost) CompactDefinitions() {
	if v.definitionLog == nil || !v.definitionLog.NeedsCompaction() {
		return
	}
	v.mu.Lock()
	v.changes.begin(exclusive)
	worthwhile := v.definitionLog.NeedsCompaction() && !v.deleted // nobody else did it meanwhile
	v.mu.Unlock()
	if worthwhile {
		v.definitionLog.Rewrite(v.parts())
	}
	v.mu.Lock()
	v.changes.end(exclusive)
	v.mu.Unlock()
}

// Definitions returns the definitions of everything durable, as it is written.
func (v *VHost) Definitions() []byte {
	return slices.Concat(slices.Collect(func(yield func([]byte) bool) {
		for b := range v.parts() {
			if !yield(slices.Clone(b)) {
				return
			}
		}
	})...)
}

// parts yields the definitions of everything durable in parts, each with mu held for reading and good until the next one.
// What goes in between is in none of those that follow.
func (v *VHost) parts() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		exchanges, queues, parameters := v.durables() // before a part is begun, which holds mu
		w := partWriter{v: v, yield: yield}
		w.write(func(b []byte) []byte { return amqp.AppendTable(b, define(opVHost, v.name, v.metadata.fields()...)) })
		for _, x := range exchanges {
			w.write(func(b []byte) []byte { return v.appendExchange(b, x) })
		}
		for _, name := range queues {
			w.write(func(b []byte) []byte { return v.appendQueue(b, name) })
		}
		for _, x := range exchanges { // now that all of them are known
			w.write(func(b []byte) []byte { return v.appendBindings(b, destination{exchange: x}, x.sources) })
		}
		s := v.policies.Load()
		for _, kind := range policyKinds {
			for _, p := range s.List(kind) {
				w.write(func(b []byte) []byte { return amqp.AppendTable(b, v.definePolicy(kind, p)) })
			}
		}
		for k, value := range parameters {
			w.write(func(b []byte) []byte {
				return amqp.AppendTable(b, v.defineParameter(opSetParameter, k, amqp.Field{Key: fieldValue, Value: string(value)}))
			})
		}
		w.flush()
	}
}

// durables lists what is durable: exchanges, the names of queues, and parameters.
func (v *VHost) durables() (exchanges []*exchange, queues []string, parameters map[parameterKey]json.RawMessage) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, x := range v.exchanges {
		if x.Durable {
			exchanges = append(exchanges, x)
		}
	}
	queues = make([]string, 0, len(v.queues))
	for name, e := range v.queues {
		if e.mailbox.Config().Storage != nil {
			queues = append(queues, name)
		}
	}
	queues = slices.AppendSeq(queues, maps.Keys(v.pending)) // none comes now, but some may be on their way out
	return exchanges, queues, maps.Clone(v.parameters)
}

// appendExchange is for a caller who holds mu, as what follows.
func (v *VHost) appendExchange(b []byte, x *exchange) []byte {
	if v.exchanges[x.Name] != x || isPredeclared(x.Name) {
		return b
	}
	return amqp.AppendTable(b, v.defineExchange(&x.Exchange))
}

// appendQueue adds a queue that is still there, with its bindings, or still defined.
func (v *VHost) appendQueue(b []byte, name string) []byte {
	if c := v.pending[name]; c != nil {
		return amqp.AppendTable(b, v.defineQueue(c.config))
	}
	e, ok := v.queues[name]
	if !ok || e.mailbox.Config().Storage == nil {
		return b
	}
	b = amqp.AppendTable(b, v.defineQueue(e.mailbox.Config()))
	if e.extras == nil {
		return b
	}
	return v.appendBindings(b, destination{queue: e.mailbox}, e.extras.sources)
}

// appendBindings adds the bindings that lead to a destination.
func (v *VHost) appendBindings(b []byte, to destination, sources []*exchange) []byte {
	if to.exchange != nil && v.exchanges[to.exchange.Name] != to.exchange {
		return b
	}
	for _, x := range sources {
		if !v.isBindingLogged(x, to) {
			continue
		}
		for r := range x.table.Of(to) {
			b = amqp.AppendTable(b, v.defineBinding(opBind, bindingOf(x, r)))
		}
	}
	return b
}

// partWriter yields what is written to it in parts, with the vhost's mu held for reading while a part is made and yielded.
type partWriter struct {
	v     *VHost
	yield func([]byte) bool
	b     []byte
	held  bool
	ended bool // nobody wants more
}

// write adds what appendTo appends.
func (w *partWriter) write(appendTo func(b []byte) []byte) {
	if w.ended {
		return
	}
	if !w.held {
		w.v.mu.RLock()
		w.held = true
	}
	if w.b = appendTo(w.b); len(w.b) >= definition.PartSize {
		w.flush()
	}
}

// flush yields what there is.
func (w *partWriter) flush() {
	if !w.held {
		return
	}
	if len(w.b) > 0 {
		w.ended = !w.yield(w.b)
	}
	w.b = w.b[:0]
	w.v.mu.RUnlock()
	w.held = false
}
