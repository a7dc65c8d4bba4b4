// Package modulushash offers the exchange type x-modulus-hash: each message goes to one of the bound queues, by the hash of its
// routing keys modulo the number of bindings.
package modulushash

import (
	"cmp"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.modulushash. It has no settings.
type Config struct{}

// Factory makes the plugin.
var Factory = hook.NewFactory("modulushash", Config{}, func(Config) (hook.Plugin, error) { return plugin{}, nil })

type plugin struct{ hook.NoHooks }

// ExchangeTypes implements [hook.ExchangeTyper].
func (plugin) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{
		Name:        "x-modulus-hash",
		Description: "Modulus Hashing Exchange",
		New:         func(*hook.Exchange) hook.Router { return &router{} },
	}}
}

// router holds the destinations of the bindings, sorted, so that a restart of the broker does not change where messages go.
// It implements [hook.Router].
type router struct {
	bound []bound
	all   []hook.Destination // destinations of bound, repeated for each binding; made by Prepare
}

type bound struct {
	toExchange bool
	name       string
	dest       hook.Destination
	bindings   int
}

var _ hook.Preparer = (*router)(nil)

// compare sorts exchanges before queues, as RabbitMQ does.
func compare(a, b bound) int {
	if a.toExchange != b.toExchange {
		if a.toExchange {
			return -1
		}
		return 1
	}
	return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.dest, b.dest))
}

// find returns the position of a binding's destination, or where it would be inserted.
func (r *router) find(b *hook.Binding) (i int, found bool) {
	return slices.BinarySearchFunc(r.bound, bound{toExchange: b.ToExchange, name: b.Name, dest: b.Destination}, compare)
}

func (r *router) Bind(b *hook.Binding) {
	i, found := r.find(b)
	if !found {
		r.bound = slices.Insert(r.bound, i, bound{toExchange: b.ToExchange, name: b.Name, dest: b.Destination})
	}
	r.bound[i].bindings++
}

func (r *router) Unbind(b *hook.Binding) {
	i, found := r.find(b)
	if !found {
		return
	}
	if r.bound[i].bindings--; r.bound[i].bindings == 0 {
		r.bound = slices.Delete(r.bound, i, i+1)
	}
}

// Prepare implements [hook.Preparer].
func (r *router) Prepare() {
	r.all = r.all[:0]
	for i := range r.bound {
		for range r.bound[i].bindings {
			r.all = append(r.all, r.bound[i].dest)
		}
	}
}

func (r *router) Route(m *hook.Publishing, dst []hook.Destination) []hook.Destination {
	if len(r.all) == 0 {
		return dst
	}
	return append(dst, r.all[hash(m)%uint64(len(r.all))])
}

// hash hashes the routing keys of m: FNV-1a over each key and a zero after it, then the finaliser of SplitMix64, because the
// lower bits of FNV alone depend on few other bits. The result decides where messages go, and must never change.
func hash(m *hook.Publishing) uint64 {
	const offset, prime = 0xcbf29ce484222325, 0x100000001b3
	h := uint64(offset)
	add := func(key string) {
		for i := range len(key) {
			h = (h ^ uint64(key[i])) * prime
		}
		h *= prime // the zero
	}
	add(m.Key)
	for _, key := range m.More {
		add(key)
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
