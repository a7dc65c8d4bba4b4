// Package random offers the exchange type x-random: each message goes to one of the bound queues, chosen at random.
package random

import (
	"math/rand/v2"
	"slices"

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

// router has the destinations of the bindings, in no particular order. A destination with several bindings is there as often.
type router struct{ bound []hook.Destination }

// Bind implements [hook.Router].
func (r *router) Bind(b *hook.Binding) { r.bound = append(r.bound, b.Destination) }

// Unbind implements [hook.Router].
func (r *router) Unbind(b *hook.Binding) {
	i := slices.Index(r.bound, b.Destination)
	if i < 0 {
		return
	}
	last := len(r.bound) - 1
	r.bound[i] = r.bound[last]
	r.bound = r.bound[:last]
}

// Route implements [hook.Router].
func (r *router) Route(_ *hook.Publishing, dst []hook.Destination) []hook.Destination {
	if len(r.bound) == 0 {
		return dst
	}
	return append(dst, r.bound[rand.IntN(len(r.bound))])
}
