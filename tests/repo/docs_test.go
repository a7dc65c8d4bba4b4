package repo

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	inlineLink    = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)`)
	referenceLink = regexp.MustCompile(`^\s{0,3}\[[^\]]+\]:\s+<?([^\s>]+)>?`)
	codeSpan      = regexp.MustCompile("`[^`]*`")
	heading       = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	notInAnchor   = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`)
)

// markdown is a page with its fenced blocks taken apart.
type markdown struct {
	prose  []string // lines outside fences; a fenced line leaves an empty one, so that numbers stay right
	blocks []block
}

type block struct {
	language string
	line     int // of the opening fence, from 1
	text     string
}

func parseMarkdown(text string) markdown {
	var m markdown
	var fence string
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case fence == "" && (strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~")):
			fence = trimmed[:3]
			language, _, _ := strings.Cut(strings.TrimSpace(trimmed[3:]), " ")
			m.blocks = append(m.blocks, block{language: language, line: i + 1})
			line = ""
		case fence != "" && strings.HasPrefix(trimmed, fence):
			fence, line = "", ""
		case fence != "":
			m.blocks[len(m.blocks)-1].text += line + "\n"
			line = ""
		}
		m.prose = append(m.prose, line)
	}
	return m
}

// link is the target of a link and the line it stands on, from 1.
type link struct {
	target string
	line   int
}

func (m markdown) links() []link {
	var found []link
	for i, line := range m.prose {
		line = codeSpan.ReplaceAllString(line, "")
		for _, match := range inlineLink.FindAllStringSubmatch(line, -1) {
			found = append(found, link{target: match[1], line: i + 1})
		}
		if match := referenceLink.FindStringSubmatch(line); match != nil {
			found = append(found, link{target: match[1], line: i + 1})
		}
	}
	return found
}

// anchors are the fragments that the page's headings can be reached by.
func (m markdown) anchors() map[string]bool {
	anchors := map[string]bool{}
	for _, line := range m.prose {
		if match := heading.FindStringSubmatch(line); match != nil {
			text := notInAnchor.ReplaceAllString(strings.ToLower(match[1]), "")
			anchors[strings.ReplaceAll(text, " ", "-")] = true
		}
	}
	return anchors
}

func TestMarkdownLinks(t *testing.T) {
	for _, page := range pages(t) {
		for _, l := range parseMarkdown(read(t, page)).links() {
			if c := linkComplaint(t, page, l.target); c != "" {
				t.Errorf("%s:%d: link to %s: %s", page, l.line, l.target, c)
			}
		}
	}
}

func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, name := range files(t) {
		if path.Ext(name) == ".md" {
			found = append(found, name)
		}
	}
	return found
}

// linkComplaint says why a relative link leads nowhere, or nothing. Links to other hosts are not followed.
func linkComplaint(t *testing.T, page, target string) string {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		return err.Error()
	}
	if u.Scheme != "" {
		return ""
	}
	if strings.HasPrefix(u.Path, "/") {
		return "make it relative to " + path.Dir(page)
	}
	to := page
	if u.Path != "" {
		to = path.Join(path.Dir(page), u.Path)
	}
	if _, err := os.Stat(filepath.Join(root, to)); err != nil {
		return "there is no " + to
	}
	if u.Fragment != "" && path.Ext(to) == ".md" && !parseMarkdown(read(t, to)).anchors()[u.Fragment] {
		return to + " has no such heading"
	}
	return ""
}

func TestParseMarkdown(t *testing.T) {
	const page = "# One `x-expires` & two\n" +
		"[a](b.md#c \"title\") `[no](link)` ![d](e.png)\n" +
		"```yaml\nlisten:\n  amqp: :5672\n# [no](link)\n```\n" +
		"[ref]: f.md\n"
	m := parseMarkdown(page)
	if len(m.blocks) != 1 || m.blocks[0].language != "yaml" || m.blocks[0].line != 3 {
		t.Fatalf("blocks: got %+v, want one yaml block from line 3", m.blocks)
	}
	if want := "listen:\n  amqp: :5672\n# [no](link)\n"; m.blocks[0].text != want {
		t.Errorf("block text: got %q, want %q", m.blocks[0].text, want)
	}
	var targets []string
	for _, l := range m.links() {
		targets = append(targets, l.target)
	}
	if got, want := strings.Join(targets, " "), "b.md#c e.png f.md"; got != want {
		t.Errorf("links: got %q, want %q", got, want)
	}
	if !m.anchors()["one-x-expires--two"] {
		t.Errorf("anchors: got %v, want one-x-expires--two", m.anchors())
	}
}
