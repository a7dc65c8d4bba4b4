package repo

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/cmd/curfew/app"
	"github.com/curfewmq/curfew/sdk/hook"
)

// namesOfPlugins are literals of the core that are a plugin's name and mean something else, or that users know.
var namesOfPlugins = []struct{ file, literal, why string }{
	{"core/telemetry/subject.go", "rabbitmq", "OpenTelemetry's value of messaging.system"},
	{"core/telemetry/spans.go", "rabbitmq", "OpenTelemetry's value of messaging.system"},
	{"core/telemetry/spantemplate.go", "rabbitmq", "OpenTelemetry's value of messaging.system"},
	{"core/mgmt/events/object.go", "deadline", "a member of events: when the message expires"},
	{"core/mgmt/heldlist.go", "deadline", "a member of held messages: when they expire"},
	{"core/mgmt/live/now.go", "deadline", "what comes next: a deadline, or a release"},
	{"core/mgmt/peek.go", "deadline", "a member of messages: when they expire; and an order of the list"},
	{"core/wlog/wlogtest/wlogtest.go", "random", "a test of the suite for logs"},
	{"policies/keys.go", "random", "a value of RabbitMQ's queue-leader-locator and queue-master-locator"},
	{"core/mgmt/wasm.go", "the plugin wasm is not in plugins.chain", "the API of expiry policies, which one plugin has"},
	{"core/mgmt/definitions/modules.go", "wasm/", "the strategies of expiry policies, which definitions carry"},
	{"core/mgmt/definitions/modules.go", "the plugin wasm is not in plugins.chain", "the API of expiry policies, which one plugin has"},
	{"core/mgmt/definitions/modules.go", ": none is loaded, because the plugin wasm is not in plugins.chain", "the API of expiry policies, which one plugin has"},
	{"core/mgmt/routes.go", "wasm/policies", "the API of expiry policies"},
	{"core/mgmt/routes.go", "wasm/policies/{name}", "the API of expiry policies"},
	{"core/mgmt/routes.go", "wasm/policies/{name}/activate", "the API of expiry policies"},
	{"core/mgmt/routes.go", "wasm/policies/{name}/back", "the API of expiry policies"},
	{"core/mgmt/routes.go", "wasm/policies/{name}/differences", "the API of expiry policies"},
	{"core/mgmt/simulations.go", "deadline", "a member of ends: when the message expires"},
	{"core/mgmt/differences.go", "deadline", "a member of messages and verdicts: when they expire"},
	{"core/mgmt/routes.go", "wasm/policies/{name}/reload", "the API of expiry policies"},
}

// A plugin of the repository can do nothing that others cannot: the core finds what it needs in the plugins' declarations.
func TestTheCoreNamesNoPlugin(t *testing.T) {
	names := pluginNames(t)
	used := make([]bool, len(namesOfPlugins))
	for _, s := range sources(t) {
		if s.isTest() || !under(s.dir(), "core") && !under(s.dir(), "policies") {
			continue
		}
		for literal, at := range literals(s.ast) {
			name := names.in(literal)
			if name == "" {
				continue
			}
			i := slices.IndexFunc(namesOfPlugins, func(a struct{ file, literal, why string }) bool {
				return a.file == s.path && a.literal == literal
			})
			if i < 0 {
				t.Errorf("%s: %q has %q, a name of a plugin: the plugin should declare what the core needs, see sdk/hook", s.at(at), literal, name)
				continue
			}
			used[i] = true
		}
	}
	for i, a := range namesOfPlugins {
		if !used[i] {
			t.Errorf("%s has no %q any more (%s): take it out of namesOfPlugins", a.file, a.literal, a.why)
		}
	}
}

// literals returns the string literals of a file, but imports.
func literals(f *ast.File) map[string]token.Pos {
	found := map[string]token.Pos{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
				found[text] = n.Pos()
			}
		}
		return true
	})
	return found
}

// nameSet has names of plugins, their strategies, arguments, keys and exchange types.
type nameSet map[string]bool

// word is a name in a text.
var word = regexp.MustCompile(`[A-Za-z0-9_-]+`)

// in returns the first of the names that a literal has; "" = none. A name without a dash may be a plain word: it counts alone,
// before a slash or the end of "plugins.", and after "plugin ".
func (s nameSet) in(literal string) string {
	for _, at := range word.FindAllStringIndex(literal, -1) {
		name, before, after := literal[at[0]:at[1]], literal[:at[0]], literal[at[1]:]
		if !s[name] {
			continue
		}
		alone := before == "" && (after == "" || after[0] == '/')
		if alone || strings.Contains(name, "-") || strings.HasSuffix(before, "plugins.") || strings.HasSuffix(before, "plugin ") {
			return name
		}
	}
	return ""
}

func pluginNames(t *testing.T) nameSet {
	t.Helper()
	names := nameSet{}
	for _, f := range app.Builtin() {
		p, _, err := f.New(func(any) error { return nil })
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		names[f.Name] = true
		for _, a := range p.Arguments() {
			names[a.Name], names[strings.TrimPrefix(a.Name, "x-")] = true, true
		}
		if s, ok := p.(hook.Strategist); ok {
			for _, strategy := range s.Strategies() {
				names[strategy] = true
			}
		}
		if x, ok := p.(hook.ExchangeTyper); ok {
			for _, typ := range x.ExchangeTypes() {
				names[typ.Name] = true
				for _, a := range typ.Arguments {
					names[a.Name] = true
				}
			}
		}
		if x, ok := p.(hook.ExchangeFilterer); ok {
			for _, a := range x.ExchangeArguments() {
				names[a.Name] = true
			}
		}
	}
	return names
}

func TestPluginsAreListed(t *testing.T) {
	var folders []string
	for _, s := range sources(t) {
		if path.Dir(s.dir()) == "plugins" && !s.isTest() && declares(s.ast, "Factory") {
			folders = append(folders, module+"/"+s.dir())
		}
	}
	var listed []string
	for _, f := range app.Builtin() {
		listed = append(listed, f.Package)
	}
	slices.Sort(folders)
	if slices.Sort(listed); !slices.Equal(folders, listed) {
		t.Errorf("plugins with a Factory:\n%v\nthe program has those of\n%v", folders, listed)
	}
}

// declares reports whether a file declares a variable of the package.
func declares(f *ast.File, name string) bool {
	for _, d := range f.Decls {
		vars, _ := d.(*ast.GenDecl)
		if vars == nil || vars.Tok != token.VAR {
			continue
		}
		for _, s := range vars.Specs {
			if v, ok := s.(*ast.ValueSpec); ok && slices.ContainsFunc(v.Names, func(n *ast.Ident) bool { return n.Name == name }) {
				return true
			}
		}
	}
	return false
}

func TestNamesInLiterals(t *testing.T) {
	names := nameSet{"ttl": true, "wasm": true, "x-message-ttl": true, "message-ttl": true, "overflow": true}
	for literal, want := range map[string]string{
		"": "", "ttl": "ttl", "the ttl of": "", "plugins.ttl: no": "ttl", "the plugin wasm is": "wasm", "wasm/": "wasm", "the wasm/x": "",
		"x-message-ttl": "x-message-ttl", "invalid arg 'x-message-ttl'": "x-message-ttl", `"message-ttl":1`: "message-ttl",
		"overflow": "overflow", "integer overflow": "", "x-message-ttls": "", "messages_overflow": "",
	} {
		if got := names.in(literal); got != want {
			t.Errorf("%q: got %q, want %q", literal, got, want)
		}
	}
}
