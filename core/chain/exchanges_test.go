package chain

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// offer is a plugin for exchanges.
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

func noRouter(*hook.Exchange) hook.Router { return nil }

func TestExchangeMistakes(t *testing.T) {
	typed := func(name string, arguments ...string) *offer {
		o := &offer{types: []hook.ExchangeType{{Name: name, New: noRouter}}}
		for _, a := range arguments {
			o.types[0].Arguments = append(o.types[0].Arguments, hook.ExchangeArgument{Name: a})
		}
		return o
	}
	aliased := func(name string, aliases ...string) *offer {
		o := typed(name)
		o.types[0].Aliases = aliases
		return o
	}
	filtering := func(arguments ...string) *offer {
		o := &offer{}
		for _, a := range arguments {
			o.arguments = append(o.arguments, hook.ExchangeArgument{Name: a})
		}
		return o
	}
	for _, tt := range []struct {
		name    string
		plugins []Named
		want    string
	}{
		{"one type twice", []Named{{"a", typed("x")}, {"b", typed("x")}}, `plugins.b: a already offers the exchange type "x"`},
		{"another's alias", []Named{{"a", aliased("x", "y")}, {"b", typed("y")}}, `plugins.b: a already offers the exchange type "y"`},
		{"an alias for another's", []Named{{"a", typed("x")}, {"b", aliased("y", "x")}}, `plugins.b: a already offers the exchange type "x"`},
		{"an alias for the broker's", []Named{{"a", aliased("x", "fanout")}}, `plugins.a: "fanout" is an exchange type of the broker itself`},
		{"an alias for itself", []Named{{"a", aliased("x", "x")}}, `plugins.a: the exchange type "x" has the alias "x" twice`},
		{"an alias twice", []Named{{"a", aliased("x", "y", "y")}}, `plugins.a: the exchange type "x" has the alias "y" twice`},
		{"an empty alias", []Named{{"a", aliased("x", "")}}, `plugins.a: the name of an exchange type has 0 bytes, expected 1 to 255`},
		{"one of the broker's", []Named{{"a", typed("topic")}}, `plugins.a: "topic" is an exchange type of the broker itself`},
		{"no name", []Named{{"a", typed("")}}, `plugins.a: the name of an exchange type has 0 bytes, expected 1 to 255`},
		{"long name", []Named{{"a", typed(strings.Repeat("x", 256))}}, `plugins.a: the name of an exchange type has 256 bytes, expected 1 to 255`},
		{"no New", []Named{{"a", &offer{types: []hook.ExchangeType{{Name: "x"}}}}}, `plugins.a: the exchange type "x" has no New`},
		{"the broker's argument", []Named{{"a", typed("x", "alternate-exchange")}}, `plugins.a: the exchange argument "alternate-exchange" already has a meaning`},
		{"one argument twice", []Named{{"a", typed("x", "y", "y")}}, `plugins.a: the exchange argument "y" already has a meaning`},
		{"argument of a filter", []Named{{"a", typed("x", "y")}, {"b", filtering("y")}}, `plugins.a: the exchange argument "y" already has a meaning`},
		{"argument of two filters", []Named{{"a", filtering("y")}, {"b", filtering("y")}}, `plugins.b: the exchange argument "y" already has a meaning`},
		{"argument of two types", []Named{{"a", typed("x", "y")}, {"b", typed("z", "y")}}, ""},
	} {
		_, err := New(tt.plugins, Options{})
		if got := text(err); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestCheckExchange(t *testing.T) {
	check := func(text string) func(*hook.Exchange, any) error {
		return func(_ *hook.Exchange, v any) error {
			if v == "panic" {
				panic(v)
			}
			if v != "good" {
				return errors.New(text)
			}
			return nil
		}
	}
	o := &offer{
		types: []hook.ExchangeType{{
			Name: "x", New: noRouter,
			Arguments: []hook.ExchangeArgument{{Name: "own", Check: check("own is bad"), Compared: true}, {Name: "free"}},
			Check: func(x *hook.Exchange) error {
				if _, panics := x.Args.Lookup("panic"); panics {
					panic("check")
				}
				if x.Name == "bad" {
					return errors.New("the name is bad")
				}
				return nil
			},
			CheckBinding: func(_ *hook.Exchange, key string, _ hook.Args) error {
				if key == "panic" {
					panic("binding")
				}
				return errors.New("the key is bad")
			},
		}},
		arguments: []hook.ExchangeArgument{{Name: "any", Check: check("any is bad"), Compared: true}},
	}
	var panics []string
	c, err := New([]Named{{"p", o}}, Options{OnPanic: func(plugin, point string, _ any, _ []byte) { panics = append(panics, plugin+" "+point) }})
	if err != nil {
		t.Fatal(err)
	}
	args := func(name string, v any) hook.Args { return hook.Args{{Name: name, Value: v}} }
	for _, tt := range []struct {
		name string
		x    hook.Exchange
		want string
	}{
		{"good", hook.Exchange{Type: "x", Args: args("own", "good")}, ""},
		{"unchecked", hook.Exchange{Type: "x", Args: args("free", 1)}, ""},
		{"type's argument", hook.Exchange{Type: "x", Args: args("own", "")}, "own is bad"},
		{"type's argument, of another type", hook.Exchange{Type: "direct", Args: args("own", "")}, ""},
		{"filter's argument", hook.Exchange{Type: "direct", Args: args("any", "")}, "any is bad"},
		{"argument before the whole", hook.Exchange{Name: "bad", Type: "x", Args: args("any", "")}, "any is bad"},
		{"the whole", hook.Exchange{Name: "bad", Type: "x"}, "the name is bad"},
		{"panic over an argument", hook.Exchange{Type: "x", Args: args("own", "panic")}, "the plugin 'p' failed to check the argument own"},
		{"panic over the whole", hook.Exchange{Type: "x", Args: args("panic", 1)}, "the plugin 'p' failed to check the exchange type x"},
	} {
		if got := text(c.CheckExchange(&tt.x)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	of := c.ExchangeType("x")
	if got := text(of.CheckBinding(&hook.Exchange{}, "k", nil)); got != "the key is bad" {
		t.Errorf("binding: got %q", got)
	}
	if got := text(of.CheckBinding(&hook.Exchange{}, "panic", nil)); got != "the plugin 'p' failed to check the binding" {
		t.Errorf("panic over a binding: got %q", got)
	}
	if want := []string{"p Check", "p Check", "p Check"}; !slices.Equal(panics, want) {
		t.Errorf("panics: got %v, want %v", panics, want)
	}
	if got, want := c.ComparedArguments("x"), []string{"own", "any"}; !slices.Equal(got, want) {
		t.Errorf("compared: got %v, want %v", got, want)
	}
	if got, want := c.ComparedArguments("direct"), []string{"any"}; !slices.Equal(got, want) {
		t.Errorf("compared of another type: got %v, want %v", got, want)
	}
	if c.ExchangeType("none") != nil || len(c.ExchangeTypes()) != 1 {
		t.Error("the types are wrong")
	}
}

// fragile is a router that panics in chosen places.
type fragile struct {
	at    string
	calls []string
}

func (f *fragile) call(name string) {
	f.calls = append(f.calls, name)
	if f.at == name {
		panic(name)
	}
}

func (f *fragile) Bind(*hook.Binding)   { f.call("Bind") }
func (f *fragile) Unbind(*hook.Binding) { f.call("Unbind") }
func (f *fragile) Prepare()             { f.call("Prepare") }
func (f *fragile) Route(_ *hook.Publishing, dst []hook.Destination) []hook.Destination {
	f.call("Route")
	return append(dst, 7)
}

// A panic during a binding breaks a router, because it may have missed the binding. A panic during a message does not.
func TestRouterPanics(t *testing.T) {
	for _, tt := range []struct{ at, calls string }{
		{"Bind", "Bind"},
		{"Unbind", "Bind Prepare Route Unbind"},
		{"Prepare", "Bind Prepare"},
		{"Route", "Bind Prepare Route Unbind Prepare Route Route"},
		{"", "Bind Prepare Route Unbind Prepare Route Route"},
	} {
		f := &fragile{at: tt.at}
		c, err := New([]Named{{"p", &offer{types: []hook.ExchangeType{{Name: "x", New: func(*hook.Exchange) hook.Router { return f }}}}}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.ExchangeType("x").NewRouter(&hook.Exchange{})
		if err != nil || r.Plugin() != "p" {
			t.Fatal(err)
		}
		broke := 0
		note := func(b bool) {
			if b {
				broke++
			}
		}
		route := func() {
			if r.Broken() {
				return
			}
			got, ok := r.Route(&hook.Publishing{}, nil)
			if want := tt.at == ""; want && (!ok || !slices.Equal(got, []hook.Destination{7})) {
				t.Errorf("%q: got %v, %v", tt.at, got, ok)
			}
		}
		note(r.Bind(&hook.Binding{}))
		route()
		note(r.Unbind(&hook.Binding{}))
		route()
		route()
		if got := strings.Join(f.calls, " "); got != tt.calls {
			t.Errorf("panic in %q: calls %s, want %s", tt.at, got, tt.calls)
		}
		if want := tt.at == "Bind" || tt.at == "Unbind"; (broke == 1) != want {
			t.Errorf("panic in %q: it broke %d times", tt.at, broke)
		}
		if want := tt.at != "" && tt.at != "Route"; r.Broken() != want {
			t.Errorf("panic in %q: broken: %v", tt.at, r.Broken())
		}
		if tt.at != "" && c.Faults()[0].Point != tt.at {
			t.Errorf("panic in %q: faults %+v", tt.at, c.Faults())
		}
	}
}

// A goroutine that had seen an intact router called Route after Prepare had panicked for another goroutine.
func TestRouteAfterPreparePanicked(t *testing.T) {
	f := &fragile{at: "Prepare"}
	c, err := New([]Named{{"p", &offer{types: []hook.ExchangeType{{Name: "x", New: func(*hook.Exchange) hook.Router { return f }}}}}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.ExchangeType("x").NewRouter(&hook.Exchange{})
	if err != nil {
		t.Fatal(err)
	}
	r.Bind(&hook.Binding{})
	for range 2 {
		if got, ok := r.Route(&hook.Publishing{}, nil); ok || len(got) > 0 {
			t.Errorf("got %v, %v", got, ok)
		}
	}
	if got, want := strings.Join(f.calls, " "), "Bind Prepare"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
}

// If a plugin fails when an exchange is created, the exchange refuses messages.
func TestNewExchangePanics(t *testing.T) {
	c, err := New([]Named{
		{"panics", &offer{
			types:  []hook.ExchangeType{{Name: "panics", New: func(*hook.Exchange) hook.Router { panic("new") }}},
			filter: func(x *hook.Exchange) hook.Filter { panic(x.Name) },
		}},
		{"nil", &offer{types: []hook.ExchangeType{{Name: "nil", New: noRouter}}}},
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"panics", "nil"} {
		r, err := c.ExchangeType(name).NewRouter(&hook.Exchange{})
		if want := "the plugin '" + name + "' failed to create the exchange"; text(err) != want || !r.Broken() {
			t.Errorf("%s: error %v, broken: %v", name, err, r.Broken())
		}
	}
	fs, err := c.NewFilters(&hook.Exchange{Name: "x"})
	if want := "the plugin 'panics' failed to create the exchange"; text(err) != want {
		t.Errorf("filter: error %v", err)
	}
	if admitted, failed := fs.Admit(&hook.Publishing{}); admitted || failed != "panics" {
		t.Errorf("the failed filter: %v, %q", admitted, failed)
	}
}

func TestFilters(t *testing.T) {
	var asked []string
	filter := func(name string) *offer {
		return &offer{filter: func(x *hook.Exchange) hook.Filter {
			if x.Name != "x" {
				return nil
			}
			return func(m *hook.Publishing) bool {
				asked = append(asked, name)
				if m.Key == "panic "+name {
					panic(name)
				}
				return m.Key != name
			}
		}}
	}
	c, err := New([]Named{{"a", filter("a")}, {"b", filter("b")}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if fs, err := c.NewFilters(&hook.Exchange{Name: "other"}); fs != nil || err != nil {
		t.Errorf("an exchange without filters has %v, %v", fs, err)
	}
	fs, err := c.NewFilters(&hook.Exchange{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		key      string
		admitted bool
		failed   string
		asked    string
	}{
		{"k", true, "", "a b"},
		{"a", false, "", "a"},
		{"b", false, "", "a b"},
		{"panic a", false, "a", "a"},
		{"panic b", false, "b", "a b"},
	} {
		asked = nil
		admitted, failed := fs.Admit(&hook.Publishing{Key: tt.key})
		if admitted != tt.admitted || failed != tt.failed || strings.Join(asked, " ") != tt.asked {
			t.Errorf("%s: got %v, %q, asked %v; want %+v", tt.key, admitted, failed, asked, tt)
		}
	}
	if got := c.Filtered(); got["a"] != 1 || got["b"] != 1 {
		t.Errorf("filtered: %v, want one each: panics are counted as such", got)
	}
}

// The plugins' types decide which types can route for one with a schedule, and which aliases declarations may use.
func TestTypeNames(t *testing.T) {
	c, err := New([]Named{{"a", &offer{types: []hook.ExchangeType{
		{Name: "x-late", Aliases: []string{"x-later", "x-latest"}, Schedule: func(*hook.Exchange) hook.Schedule { return hook.Schedule{} }},
		{Name: "x-now", New: func(*hook.Exchange) hook.Router { return nil }},
	}}}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for declared, want := range map[string]string{"x-late": "x-late", "x-later": "x-late", "x-latest": "x-late", "topic": "topic", "": "", "x-none": "x-none"} {
		if got := c.TypeName(declared); got != want {
			t.Errorf("%q is the type %q, want %q", declared, got, want)
		}
	}
	if got, want := c.InnerTypes(), []string{"direct", "fanout", "topic", "headers", "x-now"}; !slices.Equal(got, want) {
		t.Errorf("inner types %q, want %q", got, want)
	}
}
