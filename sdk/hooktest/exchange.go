package hooktest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// ExchangeSpec describes an exchange. Empty fields have the defaults of a plain exchange.
type ExchangeSpec struct {
	VHost string // "/"
	Name  string // "x"
	// Type is one that the plugin offers, or any other type for the plugin's filter. In a
	// [Case], "" means each type that the plugin offers and, for a filter, "direct".
	Type string
	Args hook.Args

	// The fields below are only for [Run].

	// Keys are binding keys that bindings of the exchange may have; nil means any.
	Keys []string
	// BindingArgs are arguments for bindings; nil means none.
	BindingArgs []hook.Args
	// Contents are messages whose content the exchange reads. Run also varies their headers and parts.
	Contents []Content
	// Ordered excuses a type that routes by the order in which bindings came. Such a type
	// sends messages elsewhere after a restart, because the order is not stored.
	Ordered bool
}

func (s ExchangeSpec) exchange() *hook.Exchange {
	for field, otherwise := range map[*string]string{&s.VHost: "/", &s.Name: "x", &s.Type: "direct"} {
		if *field == "" {
			*field = otherwise
		}
	}
	return &hook.Exchange{VHost: s.VHost, Name: s.Name, Type: s.Type, Args: s.Args, Types: innerTypes, Setting: settingOf(s.Args)}
}

// Exchange is an exchange of one of a plugin's types, or one with the plugin's filter, with bindings to queues. It calls the plugin as the
// broker does. One goroutine at a time may change bindings; any number may route.
type Exchange struct {
	x      *hook.Exchange
	typ    *hook.ExchangeType // nil: not one of the plugin's
	router hook.Router        // nil without typ, or if the type has a Schedule
	filter hook.Filter        // nil: none

	bindings []hook.Binding
	names    []string // by destination; "" = unused

	preparing sync.Mutex // guards dirty
	dirty     bool       // the Router must prepare before the next Route
}

// Declare makes an exchange of plugin p. If the plugin refuses it, Declare returns the plugin's error, as for a client's declaration.
func Declare(p hook.Plugin, s ExchangeSpec) (*Exchange, error) {
	e := &Exchange{x: s.exchange()}
	e.typ = typeOf(p, e.x.Type)
	if err := e.check(p); err != nil {
		return nil, err
	}
	if f, ok := p.(hook.ExchangeFilterer); ok {
		e.filter = f.Filter(e.x)
	}
	if e.typ != nil && e.typ.New != nil {
		e.router = e.typ.New(e.x)
	}
	return e, nil
}

// NewExchange is [Declare] that fails the test if the plugin refuses the exchange.
func NewExchange(tb testing.TB, p hook.Plugin, s ExchangeSpec) *Exchange {
	tb.Helper()
	e, err := Declare(p, s)
	if err != nil {
		tb.Fatalf("declaring an exchange of type %s: %v", s.Type, err)
	}
	return e
}

func typeOf(p hook.Plugin, name string) *hook.ExchangeType {
	for _, t := range exchangeTypes(p) {
		if t.Name == name {
			return &t
		}
	}
	return nil
}

func exchangeTypes(p hook.Plugin) []hook.ExchangeType {
	if t, ok := p.(hook.ExchangeTyper); ok {
		return t.ExchangeTypes()
	}
	return nil
}

func filterArguments(p hook.Plugin) []hook.ExchangeArgument {
	if f, ok := p.(hook.ExchangeFilterer); ok {
		return f.ExchangeArguments()
	}
	return nil
}

// check runs the plugin's checks of a declaration.
func (e *Exchange) check(p hook.Plugin) error {
	known := filterArguments(p)
	if e.typ != nil {
		known = slices.Concat(e.typ.Arguments, known)
	}
	for _, a := range known {
		v, ok := e.x.Args.Lookup(a.Name)
		if !ok || a.Check == nil {
			continue
		}
		if err := a.Check(e.x, v); err != nil {
			return err
		}
	}
	if e.typ == nil || e.typ.Check == nil {
		return nil
	}
	return e.typ.Check(e.x)
}

// Bind binds a queue. If the plugin refuses the binding, Bind returns the plugin's error,
// as for a client. A binding that exists already stays.
func (e *Exchange) Bind(queue, key string, args ...hook.Arg) error {
	return e.bind(hook.Binding{Name: queue, Key: key, Args: args})
}

// Unbind removes a binding. It reports whether there was one.
func (e *Exchange) Unbind(queue, key string, args ...hook.Arg) bool {
	return e.unbind(hook.Binding{Name: queue, Key: key, Args: args})
}

func (e *Exchange) bind(b hook.Binding) error {
	if e.router == nil {
		return fmt.Errorf("the plugin has no exchange type %s that routes", e.x.Type)
	}
	if e.typ.CheckBinding != nil {
		if err := e.typ.CheckBinding(e.x, b.Key, b.Args); err != nil {
			return err
		}
	}
	if e.find(&b) >= 0 {
		return nil
	}
	b.Destination = e.destination(label(&b))
	e.bindings = append(e.bindings, b)
	e.router.Bind(&b)
	e.dirty = true
	scribbleBinding(&b)
	return nil
}

func (e *Exchange) unbind(b hook.Binding) bool {
	i := e.find(&b)
	if i < 0 {
		return false
	}
	b = e.bindings[i]
	d := b.Destination
	e.bindings = slices.Delete(e.bindings, i, i+1)
	e.router.Unbind(&b)
	e.dirty = true
	scribbleBinding(&b)
	if !slices.ContainsFunc(e.bindings, func(o hook.Binding) bool { return o.Destination == d }) {
		e.names[d] = ""
	}
	return true
}

// scribbleBinding overwrites a binding at the end of a call, when it is no longer valid.
func scribbleBinding(b *hook.Binding) {
	*b = hook.Binding{Destination: -1, Name: "scribbled", ToExchange: !b.ToExchange, Key: "scribbled"}
}

func (e *Exchange) find(b *hook.Binding) int {
	return slices.IndexFunc(e.bindings, func(o hook.Binding) bool {
		return label(&o) == label(b) && o.Key == b.Key && fmt.Sprint(o.Args) == fmt.Sprint(b.Args)
	})
}

// label distinguishes an exchange from a queue of the same name.
func label(b *hook.Binding) string {
	if b.ToExchange {
		return "exchange " + b.Name
	}
	return b.Name
}

// destination returns the number of a queue. A number is reused after the last binding to its queue has been removed.
func (e *Exchange) destination(name string) hook.Destination {
	i := slices.Index(e.names, name)
	if i >= 0 {
		return hook.Destination(i)
	}
	if i = slices.Index(e.names, ""); i < 0 {
		i = len(e.names)
		e.names = append(e.names, "")
	}
	e.names[i] = name
	return hook.Destination(i)
}

// Passes reports whether the plugin's filter lets a message pass.
func (e *Exchange) Passes(m *hook.Publishing) bool { return e.filter == nil || e.filter(m) }

// Route returns the queues to which a message goes, sorted, each once. It fails if the plugin names a destination without a binding.
func (e *Exchange) Route(m *hook.Publishing) ([]string, error) {
	if !e.Passes(m) {
		return nil, nil
	}
	if e.router == nil {
		return nil, errors.New("the exchange is not of one of the plugin's types")
	}
	return e.named(e.ask(m, nil))
}

// ask calls the Router, and lets it prepare first.
func (e *Exchange) ask(m *hook.Publishing, dst []hook.Destination) []hook.Destination {
	e.prepare()
	return e.router.Route(m, dst)
}

func (e *Exchange) prepare() {
	e.preparing.Lock()
	defer e.preparing.Unlock()
	if p, ok := e.router.(hook.Preparer); ok && e.dirty {
		e.dirty = false
		p.Prepare()
	}
}

// named returns the names of destinations, sorted, each once.
func (e *Exchange) named(ds []hook.Destination) ([]string, error) {
	var names []string
	for _, d := range ds {
		if d < 0 || int(d) >= len(e.names) || e.names[d] == "" {
			return nil, fmt.Errorf("routes to destination %d, which has no binding", d)
		}
		names = append(names, e.names[d])
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Queues is [Exchange.Route] for a routing key and contents; it returns the queues
// separated by spaces. It fails the test if the plugin names a destination without a
// binding.
func (e *Exchange) Queues(tb testing.TB, key string, c Content) string {
	tb.Helper()
	queues, err := e.Route(Publish(0, key, c))
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Join(queues, " ")
}

// Publish returns a message on its way through an exchange. more are the keys from its CC and BCC headers.
func Publish(now hook.Instant, key string, c Content, more ...string) *hook.Publishing {
	m := &hook.Publishing{Now: now, Key: key, More: more}
	c.RoutingKey = key
	m.Bind(&Source{c})
	return m
}

// BenchRoute measures the routing of a message.
func BenchRoute(b *testing.B, e *Exchange, m *hook.Publishing) {
	b.Helper()
	dst := make([]hook.Destination, 0, len(e.names))
	e.prepare()
	b.ReportAllocs()
	for b.Loop() {
		if e.Passes(m) && e.router != nil {
			dst = e.router.Route(m, dst[:0])
		}
	}
}
