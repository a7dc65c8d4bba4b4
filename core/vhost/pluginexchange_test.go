package vhost

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/sdk/hook"
)

// offer is a plugin that offers exchange types and filters: those that a test needs.
type offer struct {
	hook.NoHooks
	types     []hook.ExchangeType
	arguments []hook.ExchangeArgument
	filter    func(x *hook.Exchange) hook.Filter
}

func (o *offer) ExchangeTypes() []hook.ExchangeType         { return o.types }
func (o *offer) ExchangeArguments() []hook.ExchangeArgument { return o.arguments }

func (o *offer) Filter(x *hook.Exchange) hook.Filter {
	if o.filter == nil {
		return nil
	}
	return o.filter(x)
}

// prefixes is a router: a binding's key is a prefix of the keys that it matches. It checks the rules that the broker promises.
type prefixes struct {
	t        testing.TB
	bindings []hook.Binding
	routed   int // calls of Route
	header   string
	stale    bool
	prepared int
}

func (p *prefixes) Bind(b *hook.Binding) {
	for _, o := range p.bindings {
		if (o.Name == b.Name && o.ToExchange == b.ToExchange) != (o.Destination == b.Destination) {
			p.t.Errorf("%s and %s have the numbers %d and %d", o.Name, b.Name, o.Destination, b.Destination)
		}
		if o.Destination == b.Destination && o.Key == b.Key && len(o.Args) == len(b.Args) && len(b.Args) == 0 {
			p.t.Errorf("%s is bound twice with key %q", b.Name, b.Key)
		}
	}
	p.bindings, p.stale = append(p.bindings, *b), true
}

func (p *prefixes) Unbind(b *hook.Binding) {
	i := slices.IndexFunc(p.bindings, func(o hook.Binding) bool {
		return o.Destination == b.Destination && o.Name == b.Name && o.Key == b.Key && slices.Equal(o.Args, b.Args)
	})
	if i < 0 {
		p.t.Errorf("%+v was not bound", b)
		return
	}
	p.bindings, p.stale = slices.Delete(p.bindings, i, i+1), true
}

func (p *prefixes) Prepare() { p.stale = false; p.prepared++ }

func (p *prefixes) Route(m *hook.Publishing, dst []hook.Destination) []hook.Destination {
	p.routed++
	if p.stale {
		p.t.Error("Route was called without Prepare")
	}
	if p.header != "" {
		if _, ok := m.HeaderText(p.header); !ok {
			return dst
		}
	}
	for _, b := range p.bindings {
		for _, key := range append([]string{m.Key}, m.More...) {
			if strings.HasPrefix(key, b.Key) {
				dst = append(dst, b.Destination) // more than once if several keys match
			}
		}
	}
	return dst
}

// prefixType is the exchange type of prefixes.
func prefixType(t testing.TB, routers map[string]*prefixes) hook.ExchangeType {
	t.Helper()
	return hook.ExchangeType{
		Name: "x-prefix", Description: "Matches prefixes",
		Arguments: []hook.ExchangeArgument{
			{Name: "x-header", Compared: true, Check: func(_ *hook.Exchange, v any) error {
				if _, ok := v.(string); !ok {
					return errors.New("x-header: expected the name of a header")
				}
				return nil
			}},
			{Name: "x-note"},
		},
		Check: func(x *hook.Exchange) error {
			if x.Name == "forbidden" {
				return errors.New("this name is forbidden")
			}
			return nil
		},
		CheckBinding: func(_ *hook.Exchange, key string, _ hook.Args) error {
			if key == "*" {
				return errors.New("a prefix has no wildcards")
			}
			return nil
		},
		New: func(x *hook.Exchange) hook.Router {
			r := &prefixes{t: t}
			v, _ := x.Args.Lookup("x-header")
			r.header, _ = v.(string)
			routers[x.Name] = r
			return r
		},
	}
}

// offering returns a vhost with these plugins besides the usual one.
func offering(tb testing.TB, k DefinitionLog, offers ...hook.Plugin) (*VHost, *chain.Chain) {
	tb.Helper()
	all := []chain.Named{{Name: "fake", Plugin: plugin{}}}
	for i, o := range offers {
		all = append(all, chain.Named{Name: "offer" + string(rune('1'+i)), Plugin: o})
	}
	c, err := chain.New(all, chain.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	return New(Config{Name: "/", Chain: c, Clock: clock.New(), Log: log, DefinitionLog: k}), c
}

func newPrefix(t testing.TB) (*VHost, map[string]*prefixes) {
	t.Helper()
	routers := map[string]*prefixes{}
	v, _ := offering(t, nil, &offer{types: []hook.ExchangeType{prefixType(t, routers)}})
	return v, routers
}

func TestPluginRoutes(t *testing.T) {
	v, routers := newPrefix(t)
	for _, q := range []string{"a", "b", "c"} {
		declare(t, v, q)
	}
	exchangeOf(t, v, "x", "x-prefix", "alternate-exchange", "amq.fanout")
	bind(t, v, "amq.fanout", "c", "")
	bind(t, v, "x", "a", "red")
	bind(t, v, "x", "a", "re")
	bind(t, v, "x", "a", "re")
	bind(t, v, "x", "b", "red.dark")
	for _, tt := range []struct {
		key   string
		extra []string
		want  string
	}{
		{"red", nil, "a"},
		{"red.dark.wine", nil, "a b"},
		{"blue", nil, "c"},
		{"blue", []string{"rest"}, "a"},
		{"red", []string{"red.dark", "red"}, "a b"},
	} {
		routed := routers["x"].routed
		if got := names(t, v, "x", tt.key, tt.extra...); got != tt.want {
			t.Errorf("%s %q: got %q, want %q", tt.key, tt.extra, got, tt.want)
		}
		if n := routers["x"].routed - routed; n != 1 {
			t.Errorf("%s %q: Route was called %d times", tt.key, tt.extra, n)
		}
	}
	if n := routers["x"].prepared; n != 1 {
		t.Errorf("Prepare was called %d times for one series of changes", n)
	}
	must(t, v.Unbind(Binding{Source: "x", Destination: "a", Key: "re"}, 0))
	_, err := v.DeleteQueue("b", 0, false, false)
	must(t, err)
	if got := names(t, v, "x", "red.dark"); got != "a" {
		t.Errorf("after the changes: got %q", got)
	}
	if got := names(t, v, "x", "rest"); got != "c" {
		t.Errorf("after the changes: got %q", got)
	}
}

// A route through a plugin is cached if the plugin looked at keys alone, and is not volatile.
func TestPluginRoutesAreReusable(t *testing.T) {
	routers := map[string]*prefixes{}
	volatile := prefixType(t, routers)
	volatile.Name, volatile.Volatile = "x-volatile", true
	v, _ := offering(t, nil, &offer{
		types: []hook.ExchangeType{prefixType(t, routers), volatile},
		filter: func(x *hook.Exchange) hook.Filter {
			if x.Name != "filtered" {
				return nil
			}
			return func(*hook.Publishing) bool { return true }
		},
	})
	declare(t, v, "q")
	exchangeOf(t, v, "keys", "x-prefix")
	exchangeOf(t, v, "header", "x-prefix", "x-header", "h")
	exchangeOf(t, v, "volatile", "x-volatile")
	exchangeOf(t, v, "filtered", "direct")
	exchangeOf(t, v, "to volatile", "fanout")
	exchangeOf(t, v, "to filtered", "x-prefix")
	bindExchange(t, v, "to volatile", "volatile", "")
	bindExchange(t, v, "to filtered", "filtered", "")
	for exchange, want := range map[string]bool{
		"keys": true, "header": false, "volatile": false, "filtered": false, "to volatile": false, "to filtered": false,
	} {
		if exchange == "keys" || exchange == "header" {
			bind(t, v, exchange, "q", "")
		}
		_, reusable, err := v.Route(exchange, &parts.Message{Key: "k"}, nil)
		must(t, err)
		if reusable != want {
			t.Errorf("%s: reusable = %v, want %v", exchange, reusable, want)
		}
	}
}
