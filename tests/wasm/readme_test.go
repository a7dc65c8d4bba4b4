package wasm

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// The page of each SDK ends with an expiry in a broker: its commands, with a module that does what the page's does, print what it
// says.
func TestREADMEs(t *testing.T) {
	t.Parallel()
	for _, sdk := range []string{"go", "rust", "c", "assemblyscript"} {
		t.Run(sdk, func(t *testing.T) {
			t.Parallel()
			page, err := os.ReadFile(filepath.Join(process.Root(t), "sdk", sdk, "README.md"))
			must(t, err)
			s := section(page, "Into a broker")
			commands, want := fenced(s, "sh"), fenced(s, "text")
			if got := follow(t, commands); got != settled(want) {
				t.Errorf("got\n%s\nwant\n%s", got, settled(want))
			}
		})
	}
}

// fenced is what a page has in blocks of a language.
func fenced(page, language string) string {
	var b strings.Builder
	for _, m := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)```\n").FindAllStringSubmatch(page, -1) {
		b.WriteString(m[1])
	}
	return b.String()
}

// The page of the example that holds messages: its commands load the module into a broker, and play the evening that it shows.
func TestREADMEOfQuietHours(t *testing.T) {
	t.Parallel()
	example := filepath.Join(process.Root(t), "wasm-examples", "quiet-hours")
	page, err := os.ReadFile(filepath.Join(example, "README.md"))
	must(t, err)
	evening, err := os.ReadFile(filepath.Join(example, "evening.ndjson"))
	must(t, err)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "evening.ndjson"), evening, 0o600))
	build := section(page, "Build it")
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(fenced(build, "sh"), "-o quiet.wasm", "-o "+filepath.Join(dir, "quiet.wasm")))
	cmd.Dir = example
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := run(t, dir, fenced(section(page, "Use it"), "sh")+fenced(section(page, "Try it"), "sh"))
	want := "loaded as the expiry strategy wasm/quiet, sha256:"
	if !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want it to begin with %s", got, want)
	}
	if want := fenced(section(page, "Try it"), "text"); !strings.Contains(got, "\n"+want) {
		t.Errorf("got\n%s\nwant it to have\n%s", got, want)
	}
}

// section returns a section of a page.
func section(page []byte, title string) string {
	_, s, _ := strings.Cut(string(page), "\n## "+title+"\n")
	s, _, _ = strings.Cut(s, "\n## ")
	return s
}

// follow does what a page says beside a broker, with the module tempo.wasm, and returns what is printed after the first line.
func follow(t *testing.T, commands string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "tempo.wasm"), ttl(), 0o600))
	_, after, _ := strings.Cut(run(t, dir, commands), "\n") // behind what load says
	return settled(after)
}

// run runs commands in a folder, beside a broker, and returns what is printed.
func run(t *testing.T, dir, commands string) string {
	t.Helper()
	tools.Need(t, "sh", "curl")
	p := process.Start(t, "")
	cmd := exec.CommandContext(t.Context(), "sh", "-e")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CURFEW_CTL_URL=http://"+p.Management)
	commands = strings.NewReplacer("http://localhost:15672", "http://"+p.Management,
		`"ttl-ms": 2000`, `"ttl-ms": 8000`, // a busy machine may need seconds to look at the message before it expires
	).Replace(commands)
	cmd.Stdin = strings.NewReader(regexp.MustCompile(`(?m)^curfew `).ReplaceAllString(commands, process.Binary(t)+" "))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// settled replaces what is different each time.
func settled(s string) string {
	for what, as := range map[string]string{
		`\d{4}-\d\d-\d\dT[\d:.]+Z`: "TIME", `lateness_ms=\S+`: "lateness_ms=N", `policy_digest=\S+`: "policy_digest=D",
	} {
		s = regexp.MustCompile(what).ReplaceAllString(s, as)
	}
	return strings.TrimSpace(s)
}
