// Package ring has the exchange type x-carousel: each message goes to one of the bound queues or exchanges, in turn.
package ring

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.carousel, which has no keys.
type Config struct{}

// Factories make the plugin.
var Factories = []hook.Factory{
	hook.NewFactory("carousel", Config{}, func(Config) (hook.Plugin, error) { return plugin{}, nil }),
}

type plugin struct{ hook.NoHooks }

// ExchangeTypes implements [hook.ExchangeTyper].
func (plugin) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{
		Name:        "x-carousel",
		Description: "Each message goes to one of the destinations, in turn",
		Arguments:   []hook.ExchangeArgument{{Name: "x-repeat", Check: checkRepeat}},
		New:         func(x *hook.Exchange) hook.Router { return &ring{repeat: repeat(x.Args)} },
		Volatile:    true,
	}}
}

func checkRepeat(_ *hook.Exchange, v any) error {
	if n, ok := hook.Int(v); !ok || n < 1 {
		return errors.New("x-repeat: accepted are whole numbers from 1")
	}
	return nil
}

// repeat is how many messages in a row go to one destination.
func repeat(args hook.Args) uint64 {
	if v, ok := args.Lookup("x-repeat"); ok {
		n, _ := hook.Int(v)
		return uint64(n)
	}
	return 1
}

// ring has the destinations by name, so that their order does not depend on that of the bindings.
type ring struct {
	repeat uint64
	seats  []seat
	next   atomic.Uint64
}

type seat struct {
	name     string
	to       hook.Destination
	bindings int
}

func (r *ring) find(b *hook.Binding) (i int, found bool) {
	name := b.Name
	if b.ToExchange {
		name = "exchange " + name
	}
	i, found = slices.BinarySearchFunc(r.seats, name, func(s seat, name string) int { return strings.Compare(s.name, name) })
	if !found {
		r.seats = slices.Insert(r.seats, i, seat{name: strings.Clone(name), to: b.Destination})
	}
	return i, found
}

// Bind implements [hook.Router].
func (r *ring) Bind(b *hook.Binding) {
	i, _ := r.find(b)
	r.seats[i].bindings++
}

// Unbind implements [hook.Router].
func (r *ring) Unbind(b *hook.Binding) {
	i, _ := r.find(b)
	if r.seats[i].bindings--; r.seats[i].bindings == 0 {
		r.seats = slices.Delete(r.seats, i, i+1)
	}
}

// Route implements [hook.Router].
func (r *ring) Route(_ *hook.Publishing, dst []hook.Destination) []hook.Destination {
	if len(r.seats) == 0 {
		return dst
	}
	n := (r.next.Add(1) - 1) / r.repeat
	return append(dst, r.seats[n%uint64(len(r.seats))].to)
}
