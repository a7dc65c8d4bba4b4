package wasm

import (
	"fmt"
	"strings"
	"testing"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// nearestOf is a stand-in for the broker's: it returns the candidate with the same letters.
func nearestOf(name string, candidates []string) string {
	for _, c := range candidates {
		if strings.ReplaceAll(c, "-", "") == strings.ReplaceAll(name, "_", "") {
			return c
		}
	}
	return ""
}

// reader is a module that reads ttl-ms when it is configured, and another key for each
// message, but not while it is tried.
func reader() []byte {
	return assemble(func(b *wt.Builder) {
		number, text := b.Host("config_i64"), b.Host("config_str")
		b.Batch(8)
		b.Has(abi.ExportConfigure, b.Text(16, "ttl-ms"), wt.I64(0), wt.Call(number), wt.Drop, wt.I32(0))
		b.Each(abi.OnEnqueue, wt.Later(b.Text(48, "zone"), wt.I32(256), wt.I32(64), wt.Call(text), wt.Drop))
	})
}

func TestUnreadConfiguration(t *testing.T) {
	many := map[int]string{}
	for i := range 12 {
		many[i] = fmt.Sprintf(`"k%02d":1`, i)
	}
	var list []string
	for i := range 12 {
		list = append(list, many[i])
	}
	readsText := func(at int) []byte {
		return assemble(func(b *wt.Builder) {
			number := b.Host("config_i64")
			b.Batch(8)
			b.Has(abi.ExportConfigure, b.Text(16, "ttl-ms"), wt.I64(0), wt.Call(number), wt.Drop,
				wt.I32(wt.Buffer+at), wt.I32Load8U(0), wt.I32(' '), wt.I32Eq, wt.If(wt.I64(7), wt.I64(1), wt.I64Mul, wt.Drop, wt.I32(0), wt.I32Load8U(0), wt.Drop), wt.I32(0))
			b.Each(abi.OnEnqueue)
		})
	}
	for _, tc := range []struct {
		name, config string
		module       []byte
		want         []string
	}{
		{name: "none", module: reader()},
		{name: "empty", module: reader(), config: `{}`},
		{name: "read", module: reader(), config: `{"ttl-ms":1}`},
		{
			name: "typing error", module: reader(), config: `{"ttl_ms":1}`,
			want: []string{"config: ttl_ms was not read while the module was tried; did you mean ttl-ms?"},
		},
		{
			name: "nested", module: reader(), config: `{"ttl-ms":1,"deep":{"er":[1]}}`,
			want: []string{"config: deep.er was not read while the module was tried"},
		},
		{name: "a module without configuration", module: ttl(1), config: `{"a":1}`, want: []string{"config: a was not read while the module was tried"}},
		{name: "a module that reads the text", module: readsText(3), config: `{"ttl_ms":1}`},
		{
			name: "a module that reads an end of it that says nothing", module: readsText(0), config: `{"a":1}`,
			want: []string{"config: a was not read while the module was tried"},
		},
		{
			name: "a name of control characters", module: reader(), config: `{"a\u001b\n":1}`,
			want: []string{"config: a\uFFFD\uFFFD was not read while the module was tried"},
		},
		{
			name: "a long name", module: reader(), config: `{"` + strings.Repeat("n", 300) + `":1}`,
			want: []string{"config: " + strings.Repeat("n", 64) + "… was not read while the module was tried"},
		},
	} {
		var log lines
		h := openTrying(t, 1, Env{Log: log.logger(), Nearest: nearestOf})
		i := load(t, h, "x", tc.module, Options{Config: []byte(tc.config)})
		if strings.Join(i.Warnings, "\n") != strings.Join(tc.want, "\n") {
			t.Errorf("%s: got %q, want %q", tc.name, i.Warnings, tc.want)
		}
		if n := strings.Count(log.String(), "a policy was loaded with a warning"); n != len(tc.want) {
			t.Errorf("%s: %d warnings are logged, want %d", tc.name, n, len(tc.want))
		}
	}
	h := openTrying(t, 1, Env{})
	i := load(t, h, "x", ttl(1), Options{Config: []byte("{" + strings.Join(list, ",") + "}")})
	if len(i.UnreadConfig) != 12 || i.UnreadConfig[11] != "k11" || len(i.Warnings) != 11 || i.Warnings[10] != "config: 2 more keys were not read while the module was tried" {
		t.Errorf("got %q, %q", i.UnreadConfig, i.Warnings)
	}
}

// If two keys became equal when nested names got dots, chance decided which one counted, and again at each start.
func TestConfigurationThatSetsAKeyTwice(t *testing.T) {
	const twice = " is set twice, in an object and with a dot in its name, which counts"
	for _, tc := range []struct{ name, config, key, want, warnings string }{
		{name: "an object before", config: `{"a":{"b":2},"a.b":1}`, key: "a.b", want: "1", warnings: "config: a.b" + twice},
		{name: "an object after", config: `{"a.b":1,"a":{"b":2}}`, key: "a.b", want: "1", warnings: "config: a.b" + twice},
		{
			name: "three ways", config: `{"a":{"b":{"c":"3"},"b.c":"2"},"a.b":{"c":"4"},"a.b.c":"1"}`, key: "a.b.c", want: "1",
			warnings: "config: a.b.c" + twice,
		},
		{name: "empty names", config: `{"":{"":1},".":2}`, key: ".", want: "2", warnings: "config: ." + twice},
		{name: "no key is empty", config: `{"a":{},"a.b":1}`, key: "a.b", want: "1"},
	} {
		for range 20 { // maps have no order
			v := &version{options: Options{Config: []byte(tc.config)}, settings: map[string]*setting{}}
			if err := v.readConfig(); err != nil {
				t.Fatal(err)
			}
			if got := v.settings[tc.key].text; got != tc.want {
				t.Errorf("%s: %s is %s, want %s", tc.name, tc.key, got, tc.want)
			}
			if got := strings.Join(v.twiceWarnings(), "\n"); got != tc.warnings {
				t.Errorf("%s: got %q, want %q", tc.name, got, tc.warnings)
			}
		}
	}
	var dotted, nested []string
	for i := range 12 {
		dotted, nested = append(dotted, fmt.Sprintf(`"a.k%02d":1`, i)), append(nested, fmt.Sprintf(`"k%02d":2`, i))
	}
	config := `{` + strings.Join(dotted, ",") + `,"a":{` + strings.Join(nested, ",") + `}}`
	i := load(t, openTrying(t, 1, Env{}), "x", ttl(1), Options{Config: []byte(config)})
	if len(i.Warnings) < 11 || i.Warnings[10] != "config: 2 more keys are set twice" {
		t.Errorf("got %q", i.Warnings)
	}
}

// A key that is read only later was reported as not read in the trial; after that it is not reported any more.
func TestConfigurationThatIsReadLater(t *testing.T) {
	var log lines
	h := openTrying(t, 1, Env{Log: log.logger()})
	i := load(t, h, "x", reader(), Options{Config: []byte(`{"ttl-ms":1,"zone":"UTC","zones":"UTC"}`)})
	if strings.Join(i.UnreadConfig, " ") != "zone zones" {
		t.Errorf("got %q", i.UnreadConfig)
	}
	for range 3 {
		enqueue1(h.Attach(queue("x", nil)), now, hook.Message{})
	}
	if i, _ = h.Info("x"); strings.Join(i.UnreadConfig, " ") != "zones" || len(i.Warnings) != 1 {
		t.Errorf("got %q, %q", i.UnreadConfig, i.Warnings)
	}
	if strings.Count(log.String(), "a policy has read a configuration key that it had not read while it was tried") != 1 || !strings.Contains(log.String(), "key=zone ") {
		t.Errorf("log:\n%s", &log)
	}
}

// A module that reads many keys in one call does not fill the log, and does not delay its queue with that.
func TestManyKeysThatAreReadLater(t *testing.T) {
	const keys = 100
	var config strings.Builder
	for i := range keys {
		fmt.Fprintf(&config, `,"k%02d":1`, i)
	}
	module := assemble(func(b *wt.Builder) {
		number := b.Host("config_i64")
		b.Batch(8)
		var reads [][]byte
		for i := range keys {
			reads = append(reads, b.Text(16+4*i, fmt.Sprintf("k%02d", i)), wt.I64(0), wt.Call(number), wt.Drop)
		}
		b.Each(abi.OnEnqueue, wt.Later(reads...))
	})
	var log lines
	h := openTrying(t, 1, Env{Log: log.logger()})
	load(t, h, "x", module, Options{Config: []byte("{" + config.String()[1:] + "}")})
	enqueue1(h.Attach(queue("x", nil)), now, hook.Message{})
	if i, _ := h.Info("x"); len(i.UnreadConfig) > 0 || i.LastError != "" {
		t.Errorf("got %q, %s", i.UnreadConfig, i.LastError)
	}
	if n := strings.Count(log.String(), "a policy has read a configuration key"); n != guestBurst {
		t.Errorf("got %d lines, want %d", n, guestBurst)
	}
}

// Control sequences and right-to-left characters in a name do not reach a terminal.
func TestShortened(t *testing.T) {
	for name, want := range map[string]string{
		"ttl-ms": "ttl-ms", "zürich": "zürich", "a\x1b[2J": "a\uFFFD[2J", "a\u009b2J": "a\uFFFD2J", "a\u202eb": "a\uFFFDb", "a\xff": "a\uFFFD",
	} {
		if got := shortened(name); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Reading a setting in each call allocates nothing.
func TestReadingConfigurationDoesNotAllocate(t *testing.T) {
	h := openTrying(t, 1, Env{})
	load(t, h, "x", reader(), Options{Config: []byte(`{"zone":"UTC"}`)})
	hs := h.Attach(queue("x", nil))
	ms, vs := crowd(8)
	ask := func() { clear(vs); hs.OnEnqueue(now, ms, vs) }
	ask()
	if n := testing.AllocsPerRun(100, ask); n > 0 {
		t.Errorf("got %v allocations", n)
	}
}
