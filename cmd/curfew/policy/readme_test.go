package policy

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var inQuotes = regexp.MustCompile(`'([^']*)'|(\S+)`)

// Every command line in the README is valid, and every command, flag and event is mentioned there.
func TestREADME(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, line := range regexp.MustCompile(`(?m)^curfew policy .*`).FindAllString(text, -1) {
		var words []string
		for _, m := range inQuotes.FindAllStringSubmatch(line, -1) {
			words = append(words, m[1]+m[2])
		}
		c, ok := find(words[2])
		if !ok {
			t.Errorf("%s: there is no such command", line)
			continue
		}
		if err := newFlags(&c).parse(words[3:]); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, c := range commands() {
		if !strings.Contains(text, "`"+c.name+"`") && !strings.Contains(text, "`"+c.name+",") && !strings.Contains(text, c.name+"`") {
			t.Errorf("curfew policy %s is not explained", c.name)
		}
		newFlags(&c).VisitAll(func(g *flag.Flag) {
			if !strings.Contains(text, "`--"+g.Name) && !strings.Contains(text, "`-"+g.Name) {
				t.Errorf("--%s of curfew policy %s is not explained", g.Name, c.name)
			}
		})
	}
}

// The trace in the README is valid, and so is the trace that comes with projects.
func TestTracesOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(string(page))[1]
	if _, err := parseTrace(strings.NewReader(line + `{"event":"idle","at":0}`)); err != nil {
		t.Error(err)
	}
	if _, err := readTrace("templates/common/trace.ndjson"); err != nil {
		t.Error(err)
	}
}

func TestHelp(t *testing.T) {
	for _, c := range commands() {
		for _, args := range [][]string{{c.name, "--help"}, {"help", c.name}} {
			r := curfewPolicy(t, args...)
			if r.status != 0 || r.stderr != "" || !strings.Contains(r.stdout, c.about) {
				t.Errorf("%q: got %+v", args, r)
			}
		}
	}
	if r := curfewPolicy(t, "--help"); r.status != 0 || !strings.Contains(r.stdout, "curfew policy new") {
		t.Errorf("got %+v", r)
	}
	if r := curfewPolicy(t); r.status != 2 || r.stdout != "" {
		t.Errorf("without a command: got %+v", r)
	}
}

func TestMisuse(t *testing.T) {
	for _, tc := range []struct {
		args string
		want string
	}{
		{"chek x", `curfew policy: unknown command "chek"; did you mean "check"?`},
		{"--json", `curfew policy: unknown flag "--json"`},
		{"check", "curfew policy check: MODULE.wasm is missing"},
		{"check a b", `curfew policy check: unexpected argument "b"`},
		{"check a --fule large", "curfew policy check: unknown flag --fule; did you mean --fuel?"},
		{"check a --fuel", "curfew policy check: the flag --fuel needs a value"},
		{"check README.md --fuel 12", "curfew policy check: --fuel 12: accepted are default, large, and 10000 to 1000000000"},
		{"check README.md --on-error panic", "curfew policy check: --on-error panic: accepted are builtin, keep, reject"},
		{"check README.md --grants files", `curfew policy check: --grants: "files" is not a grant, expected one of headers, body, route, metrics, trace, hold`},
		{"check README.md --config {", "curfew policy check: --config: is not JSON"},
		{"check README.md --config /nowhere", "curfew policy check: --config: open /nowhere: no such file or directory"},
		{"test a", "curfew policy test: --trace is missing: name the file with the trace, or give --fuzz"},
		{"test a --fuzz --expect b", "curfew policy test: --expect and --compare need a --trace"},
		{"test a --trace b --update", "curfew policy test: --update needs --expect, the file to write"},
		{"test a --fuzz --messages 0", "curfew policy test: --messages 0: must be from 1 to 10000000"},
		{"test a --after soon", `curfew policy test: the flag --after takes a duration such as 500ms, 30s, 24h or 7d, not "soon"`},
		{"bench a --duration 1h", "curfew policy bench: --duration 1h0m0s: must be from 1ms to 1m"},
		{"new tempo", "curfew policy new: --lang is missing: name one of go, rust, c, c++, zig, assemblyscript, wat"},
		{"new tempo --lang cobol", "curfew policy new: --lang cobol: there are go, rust, c, c++, zig, assemblyscript, wat"},
		{"new Tempo --lang c", `curfew policy new: the name "Tempo" is not accepted: 1 to 64 lower-case letters, digits, - and _, the first a letter or digit`},
		{"record", "curfew policy record: --queue is missing"},
		{"record --queue q --interval 1h", "curfew policy record: --interval 1h0m0s: must be from 1ms to 10s, and --duration not negative"},
		{"list --timeout 0s", "curfew policy list: --timeout 0s: must be more than 0"},
		{"list --url localhost", "curfew policy list: --url: not a URL of the kind http://HOST:PORT or https://HOST:PORT"},
	} {
		r := curfewPolicy(t, strings.Fields(tc.args)...)
		first, _, _ := strings.Cut(r.stderr, "\n")
		if r.status != 2 || r.stdout != "" || first != tc.want {
			t.Errorf("%s: got status %d, %q, want %q", tc.args, r.status, first, tc.want)
		}
	}
}
