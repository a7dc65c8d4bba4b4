// Package random offers the exchange type x-random: each message goes to one of the bound queues, chosen at random.
package random

import (
	"math/rand/v2"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.random. It has no settings.
type Config struct{}

// Factory makes the plugin.
var Factory = hook.NewFactory("random", Config{}, func(Config) (hook.Plugin, error) { return plugin{}, nil })

type plugin struct{ hook.NoHooks }

// ExchangeTypes implements [hook.ExchangeTyper].
func (plugin) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{
		Name:        "x-random",
		Description: "Randomly picks a binding (queue) to route via (to).",
		New:         func(*hook.Exchange) hook.Router { return &router{} },
		Volatile:    true,
	}}
}

// router holds the destinations of the bindings. It implements [hook.Router].
type router struct {
	bindings []int32            // by destination
	all      []hook.Destination // a destination is repeated for each of its bindings; made by Prepare
}

var _ hook.Preparer = (*router)(nil)

func (r *router) Bind(b *hook.Binding) {
	for int(b.Destination) >= len(r.bindings) {
		r.bindings = append(r.bindings, 0)
	}
	r.bindings[b.Destination]++
}

func (r *router) Unbind(b *hook.Binding) { r.bindings[b.Destination]-- }

// Prepare implements [hook.Preparer].
func (r *router) Prepare() {
	r.all = r.all[:0]
	for d, bindings := range r.bindings {
		for range bindings {
			r.all = append(r.all, hook.Destination(d))
		}
	}
}

func (r *router) Route(_ *hook.Publishing, dst []hook.Destination) []hook.Destination {
	if len(r.all) == 0 {
		return dst
	}
	return append(dst, r.all[rand.IntN(len(r.all))])
}
