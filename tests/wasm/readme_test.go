package wasm

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
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
			_, section, _ := strings.Cut(string(page), "\n## Into a broker\n")
			section, _, _ = strings.Cut(section, "\n## ")
			commands, want := fenced(section, "sh"), fenced(section, "text")
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

// follow does what a page says beside a broker, and returns what is printed.
func follow(t *testing.T, commands string) string {
	t.Helper()
	for _, program := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	p, dir := process.Start(t, ""), t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "tempo.wasm"), ttl(), 0o600))
	cmd := exec.CommandContext(t.Context(), "sh", "-e")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CURFEW_CTL_URL=http://"+p.Management)
	commands = strings.ReplaceAll(commands, "http://localhost:15672", "http://"+p.Management)
	cmd.Stdin = strings.NewReader(regexp.MustCompile(`(?m)^curfew `).ReplaceAllString(commands, process.Binary(t)+" "))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, after, _ := strings.Cut(string(out), "\n") // behind what load says
	return settled(after)
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
