package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
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

// varying is what is different each time in what the README shows.
var varying = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\d+ ms`), "some ms"},
	{regexp.MustCompile(`amq\.gen-[\w…-]+`), "amq.gen-…"},
	{regexp.MustCompile(`sha256:[0-9a-f…]+`), "sha256:…"}, // of what a compiler made
	{regexp.MustCompile(`\d+ bytes`), "some bytes"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`), "some time"},
	{regexp.MustCompile(`lateness_ms=\S+`), "lateness_ms=…"},
	{regexp.MustCompile(`policy_digest=\S+`), "policy_digest=…"},
}

func settled(s string) string {
	for _, v := range varying {
		s = v.what.ReplaceAllString(s, v.as)
	}
	return strings.TrimSpace(s)
}

// What the README shows is what happens: its JavaScript programs, and its commands that use amqp-tools, print the text that follows
// them there.
func TestREADME(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(process.Root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := blocks(string(page))
	shown := 0
	for i, b := range all {
		if i+1 == len(all) || all[i+1].language != "text" {
			continue
		}
		want := settled(all[i+1].text)
		switch {
		case b.language == "js":
			shown++
			t.Run(fmt.Sprint(b.language, " ", shown), func(t *testing.T) { playScript(t, b.text, want) })
		case strings.Contains(b.text, "amqp-get"):
			shown++
			t.Run(fmt.Sprint(b.language, " ", shown), func(t *testing.T) { playCommands(t, b.text, want) })
		}
	}
	if shown < 4 {
		t.Errorf("%d programs and commands were found with what they print, want at least 4", shown)
	}
	expiry := regexp.MustCompile(`(?m)^\S+ message_expired .* strategy=wasm/tempo reason=expired .* policy_digest=`)
	if !expiry.Match(page) {
		t.Error("the section about strategies of one's own does not end with the event of an expiry")
	}
}

func playScript(t *testing.T, program, want string) {
	t.Helper()
	dir := nodeFolder(t)
	program = strings.ReplaceAll(program, "amqp://localhost", process.Start(t, "").URL())
	if err := os.WriteFile(filepath.Join(dir, "first.js"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	wantLines(t, settled(run(t, dir, "", "node", "first.js")), want)
}

func playCommands(t *testing.T, commands, want string) {
	t.Helper()
	need(t, "sh", "amqp-publish", "amqp-get")
	b := process.Start(t, "")
	commands = strings.ReplaceAll(commands, "amqp://localhost", b.URL())
	for _, c := range []string{"ctl", "policy load"} {
		commands = strings.ReplaceAll(commands, "./curfew "+c, process.Binary(t)+" "+c+" --url http://"+b.Management)
	}
	commands = strings.ReplaceAll(commands, "./curfew ", process.Binary(t)+" ")
	wantLines(t, settled(run(t, t.TempDir(), commands, "sh", "-e")), want)
}
