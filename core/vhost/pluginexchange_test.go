package vhost

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// offer is a plugin with the exchange types and filters that a test needs.
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
	routed   atomic.Int64 // calls of Route
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
	p.routed.Add(1)
	if p.stale {
		p.t.Error("Route was called without Prepare")
	}
	if p.header != "" {
		if _, ok := m.HeaderText(p.header); !ok {
			return dst
		}
	}
	for _, b := range p.bindings {
		if strings.HasPrefix(m.Key, b.Key) {
			dst = append(dst, b.Destination)
		}
		for _, key := range m.More {
			if strings.HasPrefix(key, b.Key) {
				dst = append(dst, b.Destination) // once more if several keys match
			}
		}
	}
	return dst
}

// prefixType is the exchange type of prefixes.
func prefixType(tb testing.TB, routers map[string]*prefixes) hook.ExchangeType {
	tb.Helper()
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
			r := &prefixes{t: tb}
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

func newPrefix(tb testing.TB) (*VHost, map[string]*prefixes) {
	tb.Helper()
	routers := map[string]*prefixes{}
	v, _ := offering(tb, nil, &offer{types: []hook.ExchangeType{prefixType(tb, routers)}})
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
		routed := routers["x"].routed.Load()
		if got := names(t, v, "x", tt.key, tt.extra...); got != tt.want {
			t.Errorf("%s %q: got %q, want %q", tt.key, tt.extra, got, tt.want)
		}
		if n := routers["x"].routed.Load() - routed; n != 1 {
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

func TestPluginExchangeIsDeclared(t *testing.T) {
	v, routers := newPrefix(t)
	x := Exchange{Name: "x", Type: "x-prefix", Args: args("x-header", "h", "x-note", "n", "unknown", int32(1))}
	must(t, v.DeclareExchange(x, nil))
	router := routers["x"]
	for _, tt := range []struct {
		name string
		x    Exchange
		want string // "" means that it is accepted
	}{
		{"again", x, ""},
		{"an argument that is not compared differs", Exchange{Name: "x", Type: "x-prefix", Args: args("x-header", "h")}, ""},
		{
			"a compared argument differs",
			Exchange{Name: "x", Type: "x-prefix", Args: args("x-header", "g")},
			"inequivalent arg 'x-header' for exchange 'x' in vhost '/': received 'g' but current is 'h'",
		},
		{
			"a compared argument is missing",
			Exchange{Name: "x", Type: "x-prefix"},
			"inequivalent arg 'x-header' for exchange 'x' in vhost '/': received none but current is the value 'h' of type 'longstr'",
		},
		{"another type", Exchange{Name: "x", Type: "direct"}, "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'direct' but current is 'x-prefix'"},
		{"unknown type", Exchange{Name: "y", Type: "x-other"}, "unknown exchange type 'x-other'"},
		{"invalid argument", Exchange{Name: "y", Type: "x-prefix", Args: args("x-header", int32(1))}, "x-header: expected the name of a header"},
		{"refused as a whole", Exchange{Name: "forbidden", Type: "x-prefix"}, "this name is forbidden"},
		{"argument of another type", Exchange{Name: "direct", Type: "direct", Args: args("x-header", int32(1))}, ""},
	} {
		err := v.DeclareExchange(tt.x, nil)
		if tt.want == "" {
			must(t, err)
			continue
		}
		want(t, err, Precondition, tt.want)
		if tt.x.Name == "x" {
			continue
		}
		want(t, NewValidator(v.chain).Exchange("/", tt.x), Precondition, tt.want)
		if _, exists := v.Exchange(tt.x.Name); exists {
			t.Errorf("%s: it exists", tt.name)
		}
	}
	if routers["x"] != router {
		t.Error("a redeclaration made another router")
	}
	declare(t, v, "q")
	b := Binding{Source: "x", Destination: "q", Key: "*"}
	want(t, v.Bind(b, 0), Precondition, "a prefix has no wildcards")
	want(t, NewValidator(v.chain).Binding("/", x, b), Precondition, "a prefix has no wildcards")
	if len(router.bindings) > 0 || v.BindingCount() > 0 {
		t.Error("the refused binding is there")
	}
}

// Each exchange on the way is asked once, also if others lead back to it.
func TestPluginExchangesInCircles(t *testing.T) {
	v, routers := newPrefix(t)
	declare(t, v, "q")
	exchangeOf(t, v, "a", "x-prefix", "alternate-exchange", "fan")
	exchangeOf(t, v, "b", "x-prefix")
	exchangeOf(t, v, "fan", "fanout")
	for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}, {"a", "a"}, {"b", "fan"}, {"fan", "b"}, {"fan", "a"}} {
		bindExchange(t, v, pair[0], pair[1], "k")
	}
	bind(t, v, "b", "q", "k")
	for _, from := range []string{"a", "b", "fan"} {
		before := [2]int64{routers["a"].routed.Load(), routers["b"].routed.Load()}
		if got := names(t, v, from, "k1", "k2"); got != "q" {
			t.Errorf("from %s: got %q", from, got)
		}
		if a, b := routers["a"].routed.Load()-before[0], routers["b"].routed.Load()-before[1]; a != 1 || b != 1 {
			t.Errorf("from %s: a was asked %d times, b %d times", from, a, b)
		}
	}
	if got := names(t, v, "a", "other"); got != "" { // its alternate leads back to it, and to b
		t.Errorf("no binding matches: got %q", got)
	}
	must(t, v.DeleteExchange("b", false))
	if n := len(routers["a"].bindings); n != 1 {
		t.Errorf("a has %d bindings after b was deleted, want that to itself", n)
	}
	v.consistent(t)
}

// An exchange all of whose destinations were found already has destinations: its alternate is not used, and it is asked once.
func TestPluginExchangeAddsNothing(t *testing.T) {
	v, routers := newPrefix(t)
	declare(t, v, "q")
	declare(t, v, "lost")
	exchangeOf(t, v, "outer", "fanout")
	exchangeOf(t, v, "x", "x-prefix", "alternate-exchange", "amq.fanout")
	bind(t, v, "amq.fanout", "lost", "")
	bind(t, v, "outer", "q", "")
	bindExchange(t, v, "outer", "x", "")
	bind(t, v, "x", "q", "k")
	if got := names(t, v, "outer", "k"); got != "q" {
		t.Errorf("got %q", got)
	}
	if n := routers["x"].routed.Load(); n != 1 {
		t.Errorf("Route was called %d times", n)
	}
}

func TestPluginExchangeAsAlternate(t *testing.T) {
	v, _ := newPrefix(t)
	declare(t, v, "q")
	exchangeOf(t, v, "direct", "direct", "alternate-exchange", "x")
	exchangeOf(t, v, "x", "x-prefix")
	bind(t, v, "x", "q", "k")
	if got := names(t, v, "direct", "key"); got != "q" {
		t.Errorf("got %q", got)
	}
	exchangeOf(t, v, "by policy", "x-prefix")
	setPolicy(t, v, policies.User, policy(t, policies.User, "ae", "^by policy$", 0, "alternate-exchange", "x"))
	if got := names(t, v, "by policy", "key"); got != "q" {
		t.Errorf("by policy: got %q", got)
	}
}

// Destinations that do not exist are ignored and counted; a plugin's own slice is not written to.
func TestPluginNamesForeignDestinations(t *testing.T) {
	own := []hook.Destination{-1, 0, 1, 1 << 30, 0}
	o := &offer{types: []hook.ExchangeType{{Name: "x-own", New: func(*hook.Exchange) hook.Router { return fixed(own) }}}}
	v, c := offering(t, nil, o)
	declare(t, v, "q")
	exchangeOf(t, v, "x", "x-own")
	bind(t, v, "x", "q", "")
	for range 3 {
		if got := names(t, v, "x", "k"); got != "q" {
			t.Errorf("got %q", got)
		}
		exchangeOf(t, v, "other", "x-own")
		if got := names(t, v, "other", "k"); got != "" {
			t.Errorf("an exchange without bindings: got %q", got)
		}
	}
	v.LeadsTo("x", &parts.Message{Key: "k"}) // which counts nothing
	if want := []hook.Destination{-1, 0, 1, 1 << 30, 0}; !slices.Equal(own, want) {
		t.Errorf("the plugin's slice became %v", own)
	}
	if got, want := c.Faults(), (chain.Fault{Plugin: "offer1", Point: "Route", Verdicts: 3*3 + 3*5}); len(got) != 1 || got[0] != want {
		t.Errorf("faults: got %+v, want %+v", got, want)
	}
}

// fixed is a router that always returns itself.
type fixed []hook.Destination

func (fixed) Bind(*hook.Binding)   {}
func (fixed) Unbind(*hook.Binding) {}
func (f fixed) Route(*hook.Publishing, []hook.Destination) []hook.Destination {
	return f
}

func TestAutoDeletePluginExchange(t *testing.T) {
	v, routers := newPrefix(t)
	for _, q := range []string{"a", "b"} {
		declare(t, v, q)
	}
	must(t, v.DeclareExchange(Exchange{Name: "x", Type: "x-prefix", AutoDelete: true}, nil))
	bind(t, v, "x", "a", "k")
	bind(t, v, "x", "b", "k")
	want(t, v.DeleteExchange("x", true), Precondition, "exchange 'x' in vhost '/' in use")
	must(t, v.Unbind(Binding{Source: "x", Destination: "a", Key: "k"}, 0))
	if _, exists := v.Exchange("x"); !exists || len(routers["x"].bindings) != 1 {
		t.Error("it is gone with a binding left")
	}
	_, err := v.DeleteQueue("b", 0, false, false)
	must(t, err)
	if _, exists := v.Exchange("x"); exists || v.BindingCount() != 0 {
		t.Error("it is there without bindings")
	}
	must(t, v.DeclareExchange(Exchange{Name: "x", Type: "x-prefix"}, nil))
	if got := names(t, v, "x", "k"); got != "" {
		t.Errorf("a new exchange of the name: got %q", got)
	}
	v.consistent(t)
}

// A panic over a message refuses it; one over a binding breaks the exchange, until the broker is started again.
func TestPluginPanics(t *testing.T) {
	at := ""
	panics := func(point string) {
		if at == point {
			panic(point)
		}
	}
	o := &offer{
		types: []hook.ExchangeType{{Name: "x-fragile", New: func(*hook.Exchange) hook.Router { panics("New"); return fragile(panics) }}},
		filter: func(*hook.Exchange) hook.Filter {
			panics("new filter")
			return func(*hook.Publishing) bool { panics("Filter"); return true }
		},
	}
	k := &memoryLog{}
	v, c := offering(t, k, o)
	declare(t, v, "q")
	route := func(exchange string) error {
		_, _, err := v.Route(exchange, &parts.Message{Key: "k"}, nil)
		return err
	}
	at = "New"
	want(t, v.DeclareExchange(Exchange{Name: "x", Type: "x-fragile", Durable: true}, nil), Precondition, "the plugin 'offer1' failed to create the exchange")
	at = "new filter"
	want(t, v.DeclareExchange(Exchange{Name: "x", Type: "direct", Durable: true}, nil), Precondition, "the plugin 'offer1' failed to create the exchange")
	at = ""
	must(t, v.DeclareExchange(Exchange{Name: "x", Type: "x-fragile", Durable: true}, nil))
	bind(t, v, "x", "q", "")
	must(t, route("x"))
	for _, at = range []string{"Route", "Filter"} {
		want(t, route("x"), Precondition, "the plugin 'offer1' failed to route a message through exchange 'x' in vhost '/'")
	}
	at = ""
	must(t, route("x"))
	at = "Unbind"
	must(t, v.Unbind(Binding{Source: "x", Destination: "q"}, 0))
	const broken = "exchange 'x' in vhost '/' routes no messages until the broker is started again: " +
		"the plugin 'offer1' failed on it or on one of its bindings"
	at = ""
	want(t, route("x"), Precondition, broken)
	want(t, v.Publishable("x"), Precondition, broken)
	bindExchange(t, v, "amq.fanout", "x", "")
	want(t, route("amq.fanout"), Precondition, broken)
	must(t, v.Unbind(Binding{Source: "amq.fanout", Destination: "x", ToExchange: true}, 0))
	if v.BindingCount() != 0 {
		t.Error("the binding is there")
	}
	at = "Bind"
	must(t, v.DeclareExchange(Exchange{Name: "y", Type: "x-fragile"}, nil))
	bind(t, v, "y", "q", "")
	at = ""
	if err := route("y"); err == nil || v.BindingCount() != 1 {
		t.Errorf("a panic in Bind: %v, %d bindings", err, v.BindingCount())
	}
	must(t, route("amq.direct"))
	var points []string
	for _, f := range c.Faults() {
		points = append(points, f.Point)
	}
	if got, want := strings.Join(points, " "), "New Bind Unbind Route Filter"; got != want {
		t.Errorf("faults: got %s, want %s", got, want)
	}

	again, _ := offering(t, k, o)
	_, err := again.Restore(k.read(t), func(id uint64) (*queue.Storage, error) { return &queue.Storage{Journal: k, ID: id}, nil })
	must(t, err)
	v = again
	must(t, route("x"))
}

// fragile is a router that calls itself everywhere.
type fragile func(point string)

func (f fragile) Bind(*hook.Binding)   { f("Bind") }
func (f fragile) Unbind(*hook.Binding) { f("Unbind") }
func (f fragile) Route(_ *hook.Publishing, dst []hook.Destination) []hook.Destination {
	f("Route")
	return dst
}

// A message that a filter does not admit goes nowhere from this exchange, not even to its alternate.
func TestFilters(t *testing.T) {
	asked := map[string]int{}
	o := &offer{
		arguments: []hook.ExchangeArgument{{Name: "x-only", Compared: true}},
		filter: func(x *hook.Exchange) hook.Filter {
			only, ok := x.Args.Lookup("x-only")
			if !ok {
				return nil
			}
			return func(m *hook.Publishing) bool { asked[x.Name]++; return m.Key == only }
		},
	}
	v, c := offering(t, nil, o)
	for _, q := range []string{"a", "b", "lost"} {
		declare(t, v, q)
	}
	exchangeOf(t, v, "alternate", "fanout")
	bind(t, v, "alternate", "lost", "")
	exchangeOf(t, v, "x", "fanout", "x-only", "yes", "alternate-exchange", "alternate")
	exchangeOf(t, v, "outer", "fanout", "alternate-exchange", "alternate")
	bind(t, v, "x", "a", "")
	bindExchange(t, v, "outer", "x", "")
	for _, tt := range []struct {
		exchange, key, want string
		fit                 reuse
	}{
		{"x", "yes", "a", noOther},
		{"x", "no", "", keptOut},
		{"outer", "yes", "a", noOther},
		{"outer", "no", "", keptOut},
		{"alternate", "no", "lost", sameKeys},
	} {
		queues, fit, err := v.topology.queuesOf(v.topology.exchanges[tt.exchange], &parts.Message{Key: tt.key, More: []string{"yes"}}, nil)
		must(t, err)
		if got := join(queues); got != tt.want || fit != tt.fit {
			t.Errorf("%s %s: got %q, %d; want %q, %d", tt.exchange, tt.key, got, fit, tt.want, tt.fit)
		}
	}
	if asked["x"] != 4 || c.Filtered()["offer1"] != 2 {
		t.Errorf("the filter was asked %d times for 4 messages, and %d were filtered", asked["x"], c.Filtered()["offer1"])
	}
	want(t, v.DeclareExchange(Exchange{Name: "x", Type: "fanout", Args: args("x-only", "no", "alternate-exchange", "alternate")}, nil),
		Precondition, "inequivalent arg 'x-only' for exchange 'x' in vhost '/': received 'no' but current is 'yes'")
}

// Routing through a plugin allocates nothing.
func TestPluginRouteDoesNotAllocate(t *testing.T) {
	if lossyPools {
		t.Skip("pools drop items at random")
	}
	v, _ := newPrefix(t)
	declare(t, v, "q")
	exchangeOf(t, v, "x", "x-prefix", "x-header", "h")
	bind(t, v, "x", "q", "k")
	p := amqp.Properties{Headers: args("h", "v")}
	p.Set(amqp.PropHeaders)
	m, key := &parts.Message{}, "key"
	props := p.Append(nil)
	var dst []*queue.Mailbox
	route := func() {
		m.Key, m.Props = key, props
		dst, _, _ = v.Route("x", m, dst[:0])
		m.Reset()
	}
	route()
	if n := testing.AllocsPerRun(100, route); n > 0 || len(dst) != 1 {
		t.Errorf("%v allocations, %d queues", n, len(dst))
	}
}
