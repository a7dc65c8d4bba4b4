package telemetry

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

// varying is what is different each time in what the page shows.
var varying = regexp.MustCompile(`[0-9a-f]{16,}|\d{4}-\d\d-\d\dT[\d:.]+Z|\d+(\.\d+)?(ms|s)?\b`)

func settled(text string) []string {
	lines := strings.Split(strings.TrimSpace(varying.ReplaceAllString(text, "#")), "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ") // columns are as wide as the numbers in them
	}
	return lines
}

// What the page about traces begins with is what somebody sees who does what stands there.
func TestREADME(t *testing.T) {
	tools.Need(t, "sh", "curl", "amqp-publish")
	page, err := os.ReadFile(filepath.Join(process.Root(t), "cmd", "curfew", "telemetry", "README.md"))
	must(t, err)
	section, _, _ := strings.Cut(string(page), "\nFor a collector:\n")
	parts := strings.Split(section, "\n```") // every other one is a block
	if len(parts) != 11 {
		t.Fatalf("the section has %d blocks, want 5", len(parts)/2)
	}
	serve, commands, spans, events, listed := parts[1], parts[3], parts[5], parts[7], parts[9]

	variable, rest, _ := strings.Cut(strings.TrimPrefix(serve, "sh\n"), " ")
	name, value, _ := strings.Cut(variable, "=")
	if rest != "curfew serve" {
		t.Fatalf("the first block is %q", serve)
	}
	t.Setenv(name, value)
	b := process.Start(t, "")
	shell(t, b, commands)
	want := settled(strings.TrimPrefix(spans, "text\n"))
	if !process.Poll(func() bool { return holds(settled(b.Output()), want) }) {
		t.Errorf("the broker printed\n%s\nwhich has not the lines\n%s", b.Output(), strings.Join(want, "\n"))
	}
	out := shell(t, b, events)
	if want := settled(strings.TrimPrefix(listed, "text\n")); !holds(settled(out), want) {
		t.Errorf("the commands printed\n%s\nwant\n%s", out, strings.Join(want, "\n"))
	}
}

// shell runs commands of the page for a broker, and returns what they print.
func shell(t *testing.T, b *process.Process, commands string) string {
	t.Helper()
	commands = strings.NewReplacer(
		"sh\n", "", "http://localhost:15672", "http://"+b.Management, "amqp://localhost", b.URL(),
		"curfew ctl", process.Binary(t)+" ctl --url http://"+b.Management,
	).Replace(commands)
	cmd := exec.Command("sh", "-ec", commands)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return string(out)
}

// holds reports whether the lines are among those of text, in their order.
func holds(text, lines []string) bool {
	for _, line := range text {
		if len(lines) > 0 && line == lines[0] {
			lines = lines[1:]
		}
	}
	return len(lines) == 0
}
