// Package sdk does what the page sdk/README.md tells newcomers to do: it writes a plugin in a module of its own, tests it, builds it
// in, runs the broker, and sees the plugin act.
package sdk

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, process.Cleanup()) }

// Every file and every command of the page's way from nothing to a running plugin, and of the one in WebAssembly, is followed in
// order, and prints what the page says. Modules come from the module cache alone.
func TestTenMinutes(t *testing.T) {
	tools.Need(t, "sh", "curl")
	page := readPage(t)
	r := newReader(t)
	r.follow(section(t, page, "From nothing to a running plugin"))
	if r.broker == nil {
		t.Fatal("the page did not start the broker")
	}
	for _, program := range []string{"clang", "wasm-ld"} { // with or without a version behind
		if found, _ := filepath.Glob("/usr/bin/" + program + "*"); len(found) == 0 {
			t.Log("the module in C is left out: there is no", program)
			return
		}
	}
	r.follow(section(t, page, "The shortest way in WebAssembly"))
}

func readPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(process.Root(t), "sdk", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(page, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("sdk/README.md has no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// reader is a reader of the page, with a shell in an empty folder.
type reader struct {
	t      *testing.T
	dir    string // of the plugin, after the first commands
	root   string
	shell  *process.Shell
	broker *process.Process
}

func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{t: t, root: process.Root(t)}
	root, err := filepath.Abs(r.root)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	r.root, r.dir = root, filepath.Join(home, "heavy")
	if err := os.Symlink(process.Binary(t), filepath.Join(home, "curfew")); err != nil {
		t.Fatal(err)
	}
	process.FillModuleCache(t)
	r.shell = process.NewShell(t, home, "GOPROXY=off", "GOWORK=off", "GOFLAGS=-buildvcs=false", "PATH="+home+":"+os.Getenv("PATH"))
	return r
}

var (
	fence = regexp.MustCompile("(?s)\n```(\\w+)\n(.*?)```\n")
	named = regexp.MustCompile("`([\\w.]+\\.(?:go|yaml))`")
)

// follow does what a section says. A block of another language than sh and text is a file, which the line before names.
func (r *reader) follow(text string) {
	r.t.Helper()
	printed, at := "", 0
	for _, m := range fence.FindAllStringSubmatchIndex(text, -1) {
		language, block := text[m[2]:m[3]], text[m[4]:m[5]]
		switch {
		case language == "text":
			r.compare(printed, block)
		case language == "sh" && strings.Contains(block, "/broker serve"):
			r.serve()
		case language == "sh":
			printed = r.run(block)
		default:
			r.write(text[at:m[0]], block)
		}
		at = m[1]
	}
}

// write makes the file that the text before names last.
func (r *reader) write(before, content string) {
	r.t.Helper()
	names := named.FindAllStringSubmatch(before, -1)
	if len(names) == 0 {
		r.t.Fatalf("no line names the file that begins with %.60q", content)
	}
	if err := os.WriteFile(filepath.Join(r.dir, names[len(names)-1][1]), []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// run passes commands to the shell, and returns what they print.
func (r *reader) run(commands string) string {
	r.t.Helper()
	commands = strings.ReplaceAll(commands, "…/curfew", r.root)
	if r.broker != nil {
		commands = strings.ReplaceAll(commands, "http://localhost:15672", "http://"+r.broker.Management)
	}
	return r.shell.Run(commands)
}

// serve runs the broker that the commands before have built, on ports of its own.
func (r *reader) serve() {
	r.t.Helper()
	config, err := os.ReadFile(filepath.Join(r.dir, "broker.yaml"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.broker = process.StartProgram(r.t, filepath.Join(r.dir, "broker"), string(config))
	r.run("export CURFEW_CTL_URL=http://" + r.broker.Management)
}

// varying is what is different each time.
var varying = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`(?m)^curfew build: compiling.*\n`), ""}, // if it takes long
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`), "TIME"},
	{regexp.MustCompile(`lateness_ms=\S+`), "lateness_ms=N"},
	{regexp.MustCompile(`policy_digest=\S+`), "policy_digest=D"},
	{regexp.MustCompile(`sha256:[0-9a-f…]+`), "sha256:D"},
	{regexp.MustCompile(`\d+ bytes`), "N bytes"},
	{regexp.MustCompile(`\t(\(cached\)|[\d.]+s)`), "\tTIME"},
	{regexp.MustCompile(`\(go[^)]*\)`), "(GO)"},
	{regexp.MustCompile(` +`), " "},
}

// compare wants the lines that the page shows. Where the page leaves lines out, it says "...".
func (r *reader) compare(printed, shown string) {
	r.t.Helper()
	got, want := r.settled(printed), r.settled(shown)
	for i, part := range strings.Split(want, "\n...\n") {
		at := strings.Index(got, part)
		if at < 0 || i == 0 && at > 0 {
			r.t.Fatalf("got\n%s\nwant\n%s", printed, shown)
		}
		got = got[at+len(part):]
	}
	if strings.TrimSpace(got) != "" {
		r.t.Fatalf("the page does not show\n%s\nof\n%s", got, printed)
	}
}

func (r *reader) settled(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, r.root, "…/curfew"), r.dir, "…/heavy")
	for _, v := range varying {
		s = v.what.ReplaceAllString(s, v.as)
	}
	return strings.TrimSpace(s)
}
