package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// block is a fenced block of a Markdown page.
type block struct{ language, text string }

func blocks(page string) []block {
	var found []block
	for i, part := range strings.Split("\n"+page, "\n```") {
		if i%2 == 0 {
			continue
		}
		language, text, _ := strings.Cut(part, "\n")
		found = append(found, block{language: language, text: text + "\n"})
	}
	return found
}

// varying is what is different each time in what pages show.
var varying = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\d+ ms`), "some ms"},
	{regexp.MustCompile(`amq\.gen-[\w…-]+`), "amq.gen-…"},
	{regexp.MustCompile(`sha256:[0-9a-f…]+`), "sha256:…"}, // of what a compiler made
	{regexp.MustCompile(`\d+ bytes`), "some bytes"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`), "some time"},
	{regexp.MustCompile(`(lateness|idle)_ms=\S+`), "${1}_ms=…"},
	{regexp.MustCompile(`policy_digest=\S+`), "policy_digest=…"},
	{regexp.MustCompile(`trace_id=\S+`), "trace_id=…"},
}

func settled(s string) string {
	for _, v := range varying {
		s = v.what.ReplaceAllString(s, v.as)
	}
	return strings.TrimSpace(s)
}

// examples are sections of other pages that a reader follows after the README, with the programs that the README builds and its broker.
var examples = []struct{ page, heading string }{
	{"policies/README.md", "Try it"},
	{"plugins/delay/README.md", "Try it"},
	{"plugins/retry/README.md", "Try it"},
	{"plugins/deadletter/README.md", "Try it"},
	{"plugins/wasm/README.md", "Try it"},
	{"cmd/curfew/ctl/README.md", "Try it"},
	{"core/cluster/README.md", "Try it on one machine"},
}

// A reader follows the README from its first line to its last, and the examples of other pages, in a clone and in one shell, with one broker
// in another terminal. Each block prints what the page shows below it, and nothing is left in the clone that git would add.
func TestREADME(t *testing.T) {
	t.Parallel()
	tools.Need(t, "sh", "git", "curl", "amqp-publish", "amqp-get", "amqp-consume", "amqp-declare-queue")
	r := newReader(t)
	shown := r.follow(readPage(t, "README.md"))
	r.run(`cd ../try && PATH=$PWD:$PATH`)
	for _, e := range examples {
		shown += r.follow(section(t, e.page, e.heading))
	}
	if shown < 8 {
		t.Errorf("%d blocks were found with what they print, want at least 8", shown)
	}
	if left := run(t, r.clone, "", "git", "status", "--porcelain"); left != "" {
		t.Errorf("a reader who follows the pages has new files in the clone:\n%s", left)
	}
}

// Each page that invites its readers to try something is followed: by this package, or, in wasm-examples, by tests/wasm.
func TestEachExampleIsFollowed(t *testing.T) {
	tools.Need(t, "git")
	for name := range strings.FieldsSeq(run(t, process.Root(t), "", "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md")) {
		for line := range strings.SplitSeq(readPage(t, name), "\n") {
			heading := strings.TrimLeft(line, "#")
			if heading == line || !strings.HasPrefix(heading, " Try it") || strings.HasPrefix(name, "wasm-examples/") {
				continue
			}
			if !slices.Contains(examples, struct{ page, heading string }{name, strings.TrimSpace(heading)}) {
				t.Errorf("%s: no test follows the section%s", name, heading)
			}
		}
	}
}

// section returns the part of a page below a heading.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(readPage(t, page), "# "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", page, heading)
	}
	if next := regexp.MustCompile(`(?m)^##+ `).FindStringIndex(rest); next != nil {
		rest = rest[:next[0]]
	}
	return rest
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(process.Root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// reader follows a page in a clone of the repository.
type reader struct {
	t      *testing.T
	clone  string
	shell  *process.Shell
	broker *process.Process
}

// buildVariables let compiling use what was compiled before, in whatever folder: they are those of "curfew build".
var buildVariables = []string{"GOFLAGS=-trimpath -buildvcs=false", "CGO_ENABLED=0", "GOWORK=off"}

func newReader(t *testing.T) *reader {
	t.Helper()
	home := t.TempDir()
	r := &reader{t: t, clone: filepath.Join(home, "curfew")}
	copyRepository(t, r.clone)
	run(t, r.clone, "", "git", "init", "--quiet")
	run(t, r.clone, "", "git", "add", "--all")
	run(t, r.clone, "", "git", "-c", "user.name=reader", "-c", "user.email=reader@localhost", "commit", "--quiet", "--message=clone")
	r.build()
	r.shell = process.NewShell(t, r.clone, buildVariables...)
	return r
}

// follow runs the commands of a page and returns how many blocks there are with what they print.
func (r *reader) follow(page string) (shown int) {
	r.t.Helper()
	all := blocks(page)
	for i, b := range all {
		switch {
		case b.language == "sh" && strings.Contains(b.text, "go run ./cmd/curfew serve"):
			r.serve(b.text)
		case b.language == "sh":
			printed := r.run(b.text)
			if i+1 < len(all) && all[i+1].language == "text" {
				shown++
				wantLines(r.t, settled(printed), settled(all[i+1].text))
			}
		case b.language == "js":
			r.t.Error("the page has a program that this test does not run")
		}
	}
	return shown
}

// build compiles what the commands of the page compile. That takes minutes where nothing was compiled before, longer than tests wait for a
// broker.
func (r *reader) build() {
	r.t.Helper()
	cmd := exec.Command("go", "build", "-o", filepath.Join(r.t.TempDir(), "curfew"), "./cmd/curfew")
	cmd.Dir = r.clone
	cmd.Env = append(os.Environ(), buildVariables...)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("go build: %v\n%s", err, out)
	}
}

// copyRepository copies what a clone would have, with changes that are not committed yet.
func copyRepository(t *testing.T, to string) {
	t.Helper()
	root := process.Root(t)
	for name := range strings.SplitSeq(run(t, root, "", "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, name))
		if name == "" || err != nil { // deleted, not yet committed
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

// serve runs the broker with the page's command, on ports that the system picks.
func (r *reader) serve(command string) {
	r.t.Helper()
	if r.broker != nil {
		r.t.Fatal("the page starts a second broker, which would find the ports and the data directory of the first one in use")
	}
	cmd := exec.Command("sh", "-c", "exec "+command)
	cmd.Dir = r.clone
	cmd.Env = append(os.Environ(), "CURFEW_LISTEN__AMQP=127.0.0.1:0", "CURFEW_LISTEN__MANAGEMENT=127.0.0.1:0")
	cmd.Env = append(cmd.Env, buildVariables...)
	r.broker = process.Run(r.t, cmd)
	r.run("export CURFEW_CTL_URL=http://" + r.broker.Management)
}

// run follows a block of commands, except those that run the test itself, and returns what they print.
func (r *reader) run(commands string) string {
	r.t.Helper()
	commands = regexp.MustCompile(`&& go test \./\.\.\..*`).ReplaceAllString(commands, "")
	commands = leisurely(commands)
	if r.broker != nil {
		commands = strings.ReplaceAll(commands, "localhost:15672", r.broker.Management)
		commands = strings.ReplaceAll(commands, "amqp://localhost", r.broker.URL())
	}
	return strings.ReplaceAll(r.shell.Run(commands), r.clone, ".../curfew")
}

// leisurely has what waits for two seconds wait for eight, so that a busy machine is in time for the commands in between, and a reader who
// sleeps until it is over sleep longer.
func leisurely(commands string) string {
	commands = regexp.MustCompile(`\b2000\b`).ReplaceAllString(commands, "8000")
	return regexp.MustCompile(`(?m)^sleep \d$`).ReplaceAllStringFunc(commands, func(s string) string {
		return map[string]string{"sleep 1": "sleep 3", "sleep 3": "sleep 10"}[s]
	})
}

// Each JavaScript program of a page prints what follows it there.
func TestProgramsOfPages(t *testing.T) {
	t.Parallel()
	tools.Need(t, "git")
	names := strings.Fields(run(t, process.Root(t), "", "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"))
	dir, url := nodeFolder(t), process.Start(t, "").URL()
	programs := 0
	for _, name := range names {
		all := blocks(readPage(t, name))
		for i, b := range all {
			if b.language != "js" {
				continue
			}
			programs++
			t.Run(fmt.Sprintf("%s %d", name, i), func(t *testing.T) {
				if i+1 == len(all) || all[i+1].language != "text" {
					t.Fatal("the page does not say what the program prints")
				}
				file := filepath.Join(dir, "program.js")
				if err := os.WriteFile(file, []byte(strings.ReplaceAll(b.text, "amqp://localhost", url)), 0o600); err != nil {
					t.Fatal(err)
				}
				wantLines(t, settled(run(t, dir, "", "node", file)), settled(all[i+1].text))
			})
		}
	}
	if !slices.Contains(names, "README.md") || programs < 4 {
		t.Errorf("%d programs were found in %d pages, want at least 4", programs, len(names))
	}
}
