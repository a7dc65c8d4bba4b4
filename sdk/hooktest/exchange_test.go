package hooktest

import (
	"errors"
	"hash/fnv"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// lines is a Router that sends each key to one of its destinations, sorted by name.
type lines struct {
	bound  []hook.Binding
	choose func(m *hook.Publishing, n int) int // nil: by the key
}

func (l *lines) Bind(b *hook.Binding) {
	i, _ := slices.BinarySearchFunc(l.bound, *b, compare)
	l.bound = slices.Insert(l.bound, i, *b)
}

func (l *lines) Unbind(b *hook.Binding) {
	l.bound = slices.DeleteFunc(l.bound, func(o hook.Binding) bool { return compare(o, *b) == 0 })
}

func compare(a, b hook.Binding) int {
	return strings.Compare(label(&a)+"\x00"+a.Key, label(&b)+"\x00"+b.Key)
}

func (l *lines) Route(m *hook.Publishing, dst []hook.Destination) []hook.Destination {
	if len(l.bound) == 0 {
		return dst
	}
	choose := l.choose
	if choose == nil {
		choose = byKey
	}
	return append(dst, l.bound[choose(m, len(l.bound))].Destination)
}

func byKey(m *hook.Publishing, n int) int { return hash(m.Key) % n }

func hash(s string) int {
	h := fnv.New32()
	_, _ = h.Write([]byte(s))
	return int(h.Sum32())
}

// router is a Router made of functions; missing ones behave like lines.
type router struct {
	lines
	bind, unbind func(l *lines, b *hook.Binding)
	route        func(l *lines, m *hook.Publishing, dst []hook.Destination) []hook.Destination
}

func (r *router) Bind(b *hook.Binding) {
	if r.bind != nil {
		r.bind(&r.lines, b)
		return
	}
	r.lines.Bind(b)
}

func (r *router) Unbind(b *hook.Binding) {
	if r.unbind != nil {
		r.unbind(&r.lines, b)
		return
	}
	r.lines.Unbind(b)
}

func (r *router) Route(m *hook.Publishing, dst []hook.Destination) []hook.Destination {
	if r.route != nil {
		return r.route(&r.lines, m, dst)
	}
	return r.lines.Route(m, dst)
}

// typer is a fake that offers exchange types.
type typer struct {
	fake
	types []hook.ExchangeType
}

func (t typer) ExchangeTypes() []hook.ExchangeType { return t.types }

// filterer is a fake that filters.
type filterer struct {
	fake
	arguments []hook.ExchangeArgument
	filter    func(x *hook.Exchange) hook.Filter
}

func (f filterer) ExchangeArguments() []hook.ExchangeArgument { return f.arguments }
func (f filterer) Filter(x *hook.Exchange) hook.Filter        { return f.filter(x) }

func plugs(p hook.Plugin) hook.Factory {
	return factory("x", goodConfig{}, func(goodConfig) (hook.Plugin, error) { return p, nil })
}

func lineType(r hook.Router) hook.ExchangeType {
	return hook.ExchangeType{Name: "x-line", Description: "One queue for each key.", New: func(*hook.Exchange) hook.Router { return r }}
}

func TestBadRouters(t *testing.T) {
	type (
		binder = func(l *lines, b *hook.Binding)
		route  = func(l *lines, m *hook.Publishing, dst []hook.Destination) []hook.Destination
	)
	for _, tc := range []struct {
		name         string
		bind, unbind binder
		route        func() route
		volatile     bool
		want         string
	}{
		{name: "is good"},
		{
			name:   "forgets to unbind",
			unbind: func(*lines, *hook.Binding) {},
			want:   "has no binding",
		},
		{
			name: "forgets to unbind, and is volatile", volatile: true,
			unbind: func(*lines, *hook.Binding) {},
			want:   "has no binding",
		},
		{
			name: "does not append",
			route: func() route {
				return func(l *lines, m *hook.Publishing, dst []hook.Destination) []hook.Destination {
					return l.Route(m, dst[:0])
				}
			},
			want: "does not append to dst",
		},
		{
			name: "routes to numbers of its own",
			route: func() route {
				return func(_ *lines, _ *hook.Publishing, dst []hook.Destination) []hook.Destination {
					return append(dst, 1<<30)
				}
			},
			want: "routes to destination 1073741824, which has no binding",
		},
		{
			name: "goes by the order of bindings",
			bind: func(l *lines, b *hook.Binding) { l.bound = append(l.bound, *b) },
			want: "in another order, as after a restart",
		},
		{
			name: "is random",
			route: func() route {
				n := 0
				return func(l *lines, m *hook.Publishing, dst []hook.Destination) []hook.Destination {
					return (&lines{bound: l.bound, choose: func(_ *hook.Publishing, of int) int { n++; return n % of }}).Route(m, dst)
				}
			},
			want: "when it is asked again",
		},
		{
			name: "reads the time",
			route: func() route {
				return func(l *lines, m *hook.Publishing, dst []hook.Destination) []hook.Destination {
					return (&lines{bound: l.bound, choose: func(m *hook.Publishing, of int) int { return int(m.Now/1e9) % of }}).Route(m, dst)
				}
			},
			want: "the type must be Volatile",
		},
		{
			name: "assumes a header's type",
			route: func() route {
				return func(l *lines, m *hook.Publishing, dst []hook.Destination) []hook.Destination {
					v, _ := m.Header("x-delay")
					_ = v.(int32)
					return l.Route(m, dst)
				}
			},
			want: "panics: interface conversion",
		},
		{
			name: "keeps messages",
			route: func() route {
				var kept *hook.Publishing
				return func(l *lines, m *hook.Publishing, dst []hook.Destination) []hook.Destination {
					if kept != nil {
						kept.Header("x")
					}
					kept = m
					return l.Route(m, dst)
				}
			},
			want: "read after its callback had returned",
		},
		{
			name: "keeps keys",
			route: func() route {
				var kept []string
				return func(l *lines, m *hook.Publishing, dst []hook.Destination) []hook.Destination {
					if slices.Contains(kept, m.Key) {
						return dst
					}
					kept = append(kept, m.Key)
					for _, k := range kept {
						if k != "" && strings.Trim(k, "!") == "" {
							panic("a kept key has changed")
						}
					}
					return l.Route(m, dst)
				}
			},
			volatile: true,
			want:     "a kept key has changed",
		},
		{
			name: "changes messages",
			route: func() route {
				return func(l *lines, m *hook.Publishing, dst []hook.Destination) []hook.Destination {
					m.Now++
					return l.Route(m, dst)
				}
			},
			want: "changes the message",
		},
		{
			name: "panics without bindings",
			route: func() route {
				return func(l *lines, m *hook.Publishing, dst []hook.Destination) []hook.Destination {
					return append(dst, l.bound[byKey(m, len(l.bound))].Destination)
				}
			},
			want: "without bindings, Route of key",
		},
		{
			name: "panics on the second Bind",
			bind: func(l *lines, b *hook.Binding) {
				if len(l.bound) > 0 {
					panic("oh")
				}
				l.Bind(b)
			},
			want: "panics: oh",
		},
	} {
		typ := hook.ExchangeType{Name: "x-line", Description: "d", Volatile: tc.volatile, New: func(*hook.Exchange) hook.Router {
			r := &router{bind: tc.bind, unbind: tc.unbind}
			if tc.route != nil {
				r.route = tc.route()
			}
			return r
		}}
		got := record(func(r reporter) { checkExchanges(r, plugs(typer{types: []hook.ExchangeType{typ}}), nil) })
		if !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("a router that %s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A Router that keeps a Binding, instead of a copy, sees garbage.
func TestRouterKeepsBindings(t *testing.T) {
	var kept []*hook.Binding
	r := &router{
		bind:   func(_ *lines, b *hook.Binding) { kept = append(kept, b) },
		unbind: func(*lines, *hook.Binding) {},
		route: func(_ *lines, _ *hook.Publishing, dst []hook.Destination) []hook.Destination {
			for _, b := range kept {
				dst = append(dst, b.Destination)
			}
			return dst
		},
	}
	got := record(func(t reporter) { checkExchanges(t, plugs(typer{types: []hook.ExchangeType{lineType(r)}}), nil) })
	if want := "routes to destination -1"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBadExchangeTypes(t *testing.T) {
	line := lineType(&lines{})
	change := func(f func(t *hook.ExchangeType)) hook.ExchangeType {
		typ := line
		typ.New = func(*hook.Exchange) hook.Router { return &lines{} }
		f(&typ)
		return typ
	}
	refused := func(*hook.Exchange) error { return errors.New("no") }
	var calls atomic.Int64
	for _, tc := range []struct {
		name  string
		types []hook.ExchangeType
		want  string
	}{
		{"has no name", []hook.ExchangeType{change(func(t *hook.ExchangeType) { t.Name = "" })}, "want a name of 1 to 255"},
		{"has the broker's name", []hook.ExchangeType{change(func(t *hook.ExchangeType) { t.Name = "topic" })}, "has one of its own"},
		{"is there twice", []hook.ExchangeType{line, line}, "offered twice"},
		{"has a name twice", []hook.ExchangeType{change(func(t *hook.ExchangeType) { t.Aliases = []string{t.Name} })}, `alias "x-line"`},
		{"makes nothing", []hook.ExchangeType{change(func(t *hook.ExchangeType) { t.New = nil })}, "want one of New and Schedule"},
		{"is not described", []hook.ExchangeType{change(func(t *hook.ExchangeType) { t.Description = "" })}, "no Description"},
		{"always refuses", []hook.ExchangeType{change(func(t *hook.ExchangeType) { t.Check = refused })}, "no case has an exchange of type x-line"},
		{
			"takes no binding",
			[]hook.ExchangeType{change(func(t *hook.ExchangeType) {
				t.CheckBinding = func(*hook.Exchange, string, hook.Args) error { return errors.New("no") }
			})},
			"no case has an exchange of type x-line",
		},
		{
			"has the broker's argument",
			[]hook.ExchangeType{change(func(t *hook.ExchangeType) { t.Arguments = []hook.ExchangeArgument{{Name: "alternate-exchange"}} })},
			`argument "alternate-exchange"`,
		},
		{
			"assumes an argument's type",
			[]hook.ExchangeType{change(func(t *hook.ExchangeType) {
				t.Arguments = []hook.ExchangeArgument{{Name: "size", Check: func(_ *hook.Exchange, v any) error { _ = v.(int32); return nil }}}
			})},
			"x-line: size = <nil> <nil>: the check panics",
		},
		{
			"assumes an argument's type in Check",
			[]hook.ExchangeType{change(func(t *hook.ExchangeType) {
				t.Check = func(x *hook.Exchange) error {
					if v, ok := x.Args.Lookup("x-match"); ok {
						_ = v.(string)
					}
					return nil
				}
			})},
			"the check panics",
		},
		{
			"parses keys without care",
			[]hook.ExchangeType{change(func(t *hook.ExchangeType) {
				t.CheckBinding = func(_ *hook.Exchange, key string, _ hook.Args) error { _ = key[0]; return nil }
			})},
			`CheckBinding with key "string " and`,
		},
		{
			"changes its mind",
			[]hook.ExchangeType{change(func(t *hook.ExchangeType) {
				t.Check = func(*hook.Exchange) error {
					if calls.Add(1)%2 == 0 {
						return errors.New("not now")
					}
					return nil
				}
			})},
			"then",
		},
		{
			"says nothing",
			[]hook.ExchangeType{change(func(t *hook.ExchangeType) {
				t.CheckBinding = func(_ *hook.Exchange, key string, _ hook.Args) error {
					if key == "#" {
						return errors.New("")
					}
					return nil
				}
			})},
			"want one line",
		},
	} {
		got := record(func(r reporter) { checkExchanges(r, plugs(typer{types: tc.types}), nil) })
		if !strings.Contains(got, tc.want) {
			t.Errorf("a type that %s: got %.300q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestBadFilters(t *testing.T) {
	for _, tc := range []struct {
		name   string
		filter hook.Filter
		want   string
	}{
		{name: "is not there", want: "no case has an exchange of type direct"},
		{name: "assumes a header's type", filter: func(m *hook.Publishing) bool { v, _ := m.Header("x-delay"); return v.(string) != "" }, want: "the filter panics"},
		{name: "changes messages", filter: func(m *hook.Publishing) bool { m.Key = ""; return true }, want: "changes the message"},
		{name: "is good", filter: func(m *hook.Publishing) bool { n, _ := m.HeaderInt("x-delay"); return n > 0 }},
	} {
		p := filterer{filter: func(*hook.Exchange) hook.Filter { return tc.filter }}
		got := record(func(r reporter) { checkExchanges(r, plugs(p), nil) })
		if !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("a filter that %s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestRefusedCases(t *testing.T) {
	typ := lineType(&lines{})
	typ.Check = func(x *hook.Exchange) error { return errors.New("the argument size is missing") }
	c := Case{Name: "own", Exchange: ExchangeSpec{Type: "x-line"}}
	got := record(func(r reporter) { checkExchanges(r, plugs(typer{types: []hook.ExchangeType{typ}}), []Case{c}) })
	if want := "own: x-line: the exchange is refused, or nothing can be bound to it: the argument size is missing"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestExchange(t *testing.T) {
	sized := lineType(nil)
	sized.New = func(*hook.Exchange) hook.Router { return &lines{} }
	sized.Arguments = []hook.ExchangeArgument{{Name: "size", Check: func(x *hook.Exchange, v any) error {
		if n, ok := hook.Int(v); !ok || n < 1 {
			return errors.New("size: accepted are 1 and more")
		}
		return nil
	}}}
	sized.CheckBinding = func(_ *hook.Exchange, key string, _ hook.Args) error {
		if key == "" {
			return errors.New("a key is needed")
		}
		return nil
	}
	p := typer{types: []hook.ExchangeType{sized}}
	if _, err := Declare(p, ExchangeSpec{Type: "x-line", Args: hook.Args{{Name: "size", Value: int32(0)}}}); err == nil || err.Error() != "size: accepted are 1 and more" {
		t.Errorf("size 0: got %v", err)
	}
	e := NewExchange(t, p, ExchangeSpec{Type: "x-line", Args: hook.Args{{Name: "size", Value: int32(3)}}})
	if err := e.Bind("q", ""); err == nil {
		t.Error("bound without a key")
	}
	for _, queue := range []string{"a", "b", "a"} {
		if err := e.Bind(queue, "k"); err != nil {
			t.Fatal(err)
		}
	}
	if got := e.Queues(t, "key", Content{}); got != "a" && got != "b" {
		t.Errorf("got %q, want one of the queues", got)
	}
	if !e.Unbind("a", "k") || e.Unbind("a", "k") {
		t.Error("a was bound once")
	}
	if got := e.Queues(t, "key", Content{}); got != "b" {
		t.Errorf("got %q, want the one that is left", got)
	}
	if _, err := NewExchange(t, p, ExchangeSpec{}).Route(Publish(1, "k", Content{})); err == nil {
		t.Error("an exchange of the broker's own type was routed")
	}
}
