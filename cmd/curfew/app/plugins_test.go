package app

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/plugins/ttl"
	"github.com/curfewmq/curfew/sdk/hook"
)

// lantern is a third-party plugin. It offers everything that a plugin can.
type lantern struct{ hook.NoHooks }

type lanternConfig struct{}

var lanternFactory = hook.NewFactory("lantern", lanternConfig{}, func(lanternConfig) (hook.Plugin, error) { return lantern{}, nil })

func (lantern) Arguments() []hook.Argument {
	check := func(any, hook.Args) error { return nil }
	return []hook.Argument{{Name: "x-lamp", Check: check, Policy: &hook.PolicyKey{}}, {Name: "x-oil", Check: check}}
}
func (lantern) Strategies() []string    { return []string{"dusk", "dawn"} }
func (lantern) DefaultStrategy() string { return "" }
func (lantern) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{Name: "x-lantern", Arguments: []hook.ExchangeArgument{{Name: "x-wick"}}}}
}

func (lantern) ExchangeArguments() []hook.ExchangeArgument {
	return []hook.ExchangeArgument{{Name: "x-shade"}}
}
func (lantern) Filter(*hook.Exchange) hook.Filter { return nil }

// invokeWith runs a command line of a program with additional plugins.
func invokeWith(plugins []hook.Factory, args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = run(args, &out, &errs, plugins...)
	return code, out.String(), errs.String()
}

func TestVersionDescribesPlugins(t *testing.T) {
	code, stdout, stderr := invokeWith(From("example.com/night/lantern", lanternFactory), "version")
	if code != 0 || stderr != "" {
		t.Fatalf("exit status %d: %s", code, stderr)
	}
	for _, want := range []string{
		"ttl github.com/curfewmq/curfew/plugins/ttl " + version + " strategies deadline, rabbitmq, lavinmq, ottermq; arguments x-message-ttl",
		"lantern example.com/night/lantern strategies dusk, dawn; arguments x-lamp, x-oil; policy keys lamp; exchange types x-lantern; " +
			"arguments of exchanges x-wick, x-shade",
	} {
		if !slices.ContainsFunc(strings.Split(stdout, "\n"), func(line string) bool {
			return strings.HasPrefix(strings.Join(strings.Fields(line), " "), want)
		}) {
			t.Errorf("got\n%s\nwant a line\n%s", stdout, want)
		}
	}
}

func TestVersionAsJSON(t *testing.T) {
	code, stdout, stderr := invokeWith([]hook.Factory{lanternFactory}, "version", "--json")
	var d description
	if err := json.Unmarshal([]byte(stdout), &d); err != nil || code != 0 {
		t.Fatalf("exit status %d, %v: %s", code, err, stderr)
	}
	i := slices.IndexFunc(d.Plugins, func(p pluginDescription) bool { return p.Name == "lantern" })
	if i < 0 {
		t.Fatalf("there is no lantern in %s", stdout)
	}
	// Without From, the package is the one of the configuration.
	p := d.Plugins[i]
	if p.Package != module+"/cmd/curfew/app" || p.Module != module || p.Version != version || !slices.Equal(p.PolicyKeys, []string{"lamp"}) {
		t.Errorf("got %+v", p)
	}
}

// A plugin whose offers are unknown does not hide others.
func TestVersionSurvivesPlugins(t *testing.T) {
	for _, tt := range []struct {
		name  string
		build func(lanternConfig) (hook.Plugin, error)
		want  string
	}{
		{"panic", func(lanternConfig) (hook.Plugin, error) { panic("no oil\nat all") }, "unknown: it panics: no oil at all"},
		{"error", func(lanternConfig) (hook.Plugin, error) { return nil, errors.New("wick: is empty") }, "unknown: its defaults are invalid: wick: is empty"},
		{"nothing", func(lanternConfig) (hook.Plugin, error) { return nil, nil }, "unknown: its function New returned neither an error nor a plugin"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, _ := invokeWith([]hook.Factory{hook.NewFactory("lantern", lanternConfig{}, tt.build)}, "version")
			if code != 0 || !strings.Contains(stdout, tt.want+"\n") || !strings.Contains(stdout, "\nexpires ") {
				t.Errorf("exit status %d, got\n%s\nwant in it\n%s", code, stdout, tt.want)
			}
		})
	}
}

func TestPluginsThatCannotBeTold(t *testing.T) {
	twin := ttl.Factory
	named := func(name string) hook.Factory {
		f := lanternFactory
		f.Name = name
		return f
	}
	for _, tt := range []struct {
		name    string
		plugins []hook.Factory
		want    string
	}{
		{
			"one name", From("example.com/ttl", twin),
			"two plugins have the name ttl: those of github.com/curfewmq/curfew/plugins/ttl and example.com/ttl; leave one of them out",
		},
		{"no plugin", From("example.com/empty"), "example.com/empty has no plugin: its Factories are empty, or its Factory is"},
		{
			"no name", From("example.com/x", named("")),
			`the plugin of example.com/x has the name ""; accepted are 1 to 64 lower-case letters, digits and dashes, the first a letter, but not chain`,
		},
		{
			"name of a key", From("example.com/x", named("chain")),
			`the plugin of example.com/x has the name "chain"; accepted are 1 to 64 lower-case letters, digits and dashes, the first a letter, but not chain`,
		},
		{
			"name of no key", From("example.com/x", named("a.b")),
			`the plugin of example.com/x has the name "a.b"; accepted are 1 to 64 lower-case letters, digits and dashes, the first a letter, but not chain`,
		},
		{"no function", []hook.Factory{{Name: "x"}}, "the plugin x of an unknown package has no function New"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := invokeWith(tt.plugins, "version")
			if want := "curfew: this program was built wrongly: " + tt.want + "\n"; code != 1 || stdout != "" || stderr != want {
				t.Errorf("exit status %d, got\n%s%swant\n%s", code, stdout, stderr, want)
			}
		})
	}
}

func TestPublishedVersion(t *testing.T) {
	for _, tt := range []struct {
		module builtModule
		want   string
	}{
		{builtModule{version: "v1.2.0"}, "1.2.0"},
		{builtModule{version: "v1.2.0-rc.1"}, "1.2.0-rc.1"},
		{builtModule{version: "v1.2.0", folder: "/src"}, "0.9"},
		{builtModule{version: "(devel)"}, "0.9"},
		{builtModule{version: "v1.2.0+dirty"}, "0.9"},
		{builtModule{version: "v0.0.0-20261122193758-1a7bc87bb5f0"}, "0.9"},
		{builtModule{version: "v1.2.1-0.20261122193758-1a7bc87bb5f0"}, "0.9"},
		{builtModule{}, "0.9"},
	} {
		if got := publishedAs(tt.module, "0.9"); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.module, got, tt.want)
		}
	}
}

// A chain with deadletter before plugins that drop messages used to start without a warning, and the dropped messages were lost.
func TestPluginsBehindDeadletter(t *testing.T) {
	order := allPlugins([]hook.Factory{{Name: "lantern"}})
	for _, tt := range []struct{ chain, late, use string }{
		{chain: "ttl wasm lantern maxlength deadletter expires"},
		{chain: "ttl"},
		{chain: "deadletter"},
		{chain: "expires deadletter"},
		{chain: "deadletter expires"},
		{chain: "wasm ttl deadletter"},
		{chain: "ttl deadletter maxlength", late: "maxlength", use: "ttl maxlength deadletter"},
		{chain: "deadletter ttl wasm lantern expires", late: "ttl wasm lantern", use: "ttl wasm lantern deadletter expires"},
		{chain: "ttl deadletter expires wasm", late: "wasm", use: "ttl expires wasm deadletter"},
	} {
		late, use := undeadlettered(strings.Fields(tt.chain), order)
		if strings.Join(late, " ") != tt.late || strings.Join(use, " ") != tt.use {
			t.Errorf("%s: got %q, use %q, want %q, %q", tt.chain, late, use, tt.late, tt.use)
		}
	}
}
