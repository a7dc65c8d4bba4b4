package broker

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
)

var (
	rewrite = flag.Bool("rewrite", false, "write what the broker does into testdata/*.txt")
	other   = flag.String("url", "", "run testdata/*.txt against the broker at this amqp:// URL, to compare")
)

// TestScripts runs testdata/*.txt, each in a broker of its own. A script is made of blocks:
//
//	# Lines that begin with # are comments.
//	declare work x-message-ttl=50
//	publish work hello
//	count work
//	----
//	1 message, 0 consumers
//
// The lines above ---- are commands, those below are what they print, up to an empty line. Nothing below means that they print
// nothing. What each command does stands with it in commands.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			if *other == "" {
				t.Parallel()
			}
			runScript(t, file)
		})
	}
}

func runScript(t *testing.T, file string) {
	t.Helper()
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	url := *other
	if url == "" {
		url = process.Start(t, "").URL()
	}
	p := newPlayer(t, url)
	var got bytes.Buffer
	for _, b := range parseScript(string(want)) {
		b.run(p, &got)
	}
	switch {
	case bytes.Equal(got.Bytes(), want):
	case *rewrite:
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s: %s", file, firstDifference(got.String(), string(want)))
	}
}

// block is a group of lines between empty ones.
type block struct {
	comments, commands []string
	output             []string
}

func parseScript(text string) []block {
	var blocks []block
	for group := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		var b block
		above, below, _ := strings.Cut(group, "\n----\n")
		for line := range strings.SplitSeq(above, "\n") {
			if strings.HasPrefix(line, "#") {
				b.comments = append(b.comments, line)
			} else {
				b.commands = append(b.commands, line)
			}
		}
		if below != "" {
			b.output = strings.Split(below, "\n")
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// run plays the block and writes the script it should have been.
func (b block) run(p *player, to *bytes.Buffer) {
	if to.Len() > 0 {
		to.WriteByte('\n')
	}
	for _, line := range append(b.comments, b.commands...) {
		to.WriteString(line + "\n")
	}
	printed := len("----\n")
	var out bytes.Buffer
	out.WriteString("----\n")
	for _, line := range b.commands {
		p.play(line, &out)
	}
	if out.Len() > printed {
		to.Write(out.Bytes())
	}
}

// firstDifference shows where got leaves want, with the lines before.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	i := 0
	for i < len(g) && i < len(w) && g[i] == w[i] {
		i++
	}
	before := strings.Join(w[max(0, i-6):i], "\n  ")
	return "after\n  " + before + "\ngot\n  " + strings.Join(g[i:min(i+6, len(g))], "\n  ") +
		"\nwant\n  " + strings.Join(w[i:min(i+6, len(w))], "\n  ")
}
