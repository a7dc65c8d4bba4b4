package vhost

import (
	"iter"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
)

// CompactDefinitions rewrites the log of definitions, if that is worthwhile. The vhost is locked for one part at a time. Nothing
// durable is added between parts; queues may be deleted.
func (v *VHost) CompactDefinitions() {
	if v.definitionLog == nil || !v.definitionLog.NeedsCompaction() {
		return
	}
	needed := false
	v.exclusively(func() {
		v.changes.begin(exclusive)
		needed = v.definitionLog.NeedsCompaction() && v.logs() // no other change compacted while this one waited
	})
	defer v.exclusively(func() { v.changes.end(exclusive) })
	if needed {
		v.definitionLog.Rewrite(v.parts())
	}
}

// Definitions returns the definitions of everything durable.
func (v *VHost) Definitions() (all []byte) {
	for part := range v.parts() {
		all = append(all, part...)
	}
	return all
}

// parts yields the definitions of everything durable in parts. It holds mu for reading while it makes and yields a part, which is valid
// until the next one. An object that is deleted between two parts is missing in the later ones.
func (v *VHost) parts() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var b []byte
		appenders := v.definitionAppenders()
		part := func() (more bool) {
			v.mu.RLock()
			defer v.mu.RUnlock()
			for b = b[:0]; len(appenders) > 0 && len(b) < definition.PartSize; appenders = appenders[1:] {
				b = appenders[0](b)
			}
			return len(b) == 0 || yield(b)
		}
		for more := true; more && len(appenders) > 0; {
			more = part()
		}
	}
}

// definitionAppenders returns functions that append the definitions of everything durable, in an order in which they can be replayed. A
// function skips an object that no longer exists. Its caller holds mu.
func (v *VHost) definitionAppenders() (all []func(b []byte) []byte) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	add := func(appendTo func(b []byte) []byte) { all = append(all, appendTo) }
	add(func(b []byte) []byte { return amqp.AppendTable(b, v.defineVHost()) })
	for _, x := range v.exchanges {
		if _, always := Predeclared(x.Name); x.Durable && !always {
			add(func(b []byte) []byte { return v.appendExchange(b, x) })
		}
	}
	for name, e := range v.queues {
		if e.mailbox.Config().Storage != nil {
			add(func(b []byte) []byte { return v.appendQueue(b, name) })
		}
	}
	for name := range v.pending { // none is new, because no change is under way, but some may be about to be deleted
		add(func(b []byte) []byte { return v.appendQueue(b, name) })
	}
	for _, x := range v.exchanges { // once all their sources are defined
		if x.Durable {
			add(func(b []byte) []byte { return v.appendBindings(b, destination{exchange: x}) })
		}
	}
	for _, kind := range policyKinds {
		for _, p := range v.policies.Load().List(kind) {
			add(func(b []byte) []byte { return amqp.AppendTable(b, v.definePolicy(kind, p)) })
		}
	}
	for k, value := range v.parameters {
		add(func(b []byte) []byte { return amqp.AppendTable(b, v.defineParameter(opSetParameter, k, value)) })
	}
	return all
}

func (v *VHost) appendExchange(b []byte, x *exchange) []byte {
	if v.exchanges[x.Name] != x {
		return b
	}
	b = amqp.AppendTable(b, v.defineExchange(x))
	if x.AutoDelete && x.schedule != nil && x.schedule.unbound {
		b = amqp.AppendTable(b, v.defineUnbound(x))
	}
	return b
}

// appendQueue appends a durable queue with its bindings, or a pending one.
func (v *VHost) appendQueue(b []byte, name string) []byte {
	if p := v.pending[name]; p != nil {
		return amqp.AppendTable(b, v.defineQueue(p.config))
	}
	m := v.queues[name].mailbox
	if m == nil || m.Config().Storage == nil {
		return b
	}
	b = amqp.AppendTable(b, v.defineQueue(m.Config()))
	return v.appendBindings(b, destination{queue: m})
}

// appendBindings appends the durable bindings to a destination, unless it was deleted.
func (v *VHost) appendBindings(b []byte, to destination) []byte {
	if to.exchange != nil && v.exchanges[to.exchange.Name] != to.exchange {
		return b
	}
	sources := v.sourcesOf(to)
	if sources == nil {
		return b
	}
	for _, x := range *sources {
		if !v.isBindingLogged(x, to) {
			continue
		}
		for r := range x.table.Of(to) {
			of := bindingOf(x, r)
			b = amqp.AppendTable(b, v.define(opBind, of.fields()...))
		}
	}
	return b
}
