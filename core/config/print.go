package config

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// commentColumn is the column in which a printed configuration shows sources, unless a value reaches further.
const commentColumn = 48

// Print writes the effective configuration as YAML that can be loaded back, each value followed by its source. With explain, comments
// above each key say what it means, which values it accepts and which variable sets it.
func (c *Config) Print(w io.Writer, explain bool) error {
	p := printer{explain: explain, sources: true}
	p.print(c.shown)
	_, err := io.WriteString(w, p.String())
	return err
}

// printer prints settings as YAML.
type printer struct {
	strings.Builder

	explain bool
	sources bool
	open    []string // the sections that contain the last line
}

func (p *printer) print(settings []*setting) {
	for _, s := range settings {
		if s.examples != nil && !p.explain {
			continue
		}
		path := strings.Split(s.key, ".")
		sections, name := path[:len(path)-1], path[len(path)-1]
		indent := strings.Repeat("  ", len(sections))
		if p.explain && p.Len() > 0 {
			p.WriteString("\n")
		}
		openSections(&p.Builder, p.open, sections)
		p.open = sections
		if s.examples != nil {
			p.example(s, indent, name)
			continue
		}
		if p.explain {
			p.WriteString(s.explanation(indent))
		}
		line := indent + quote(plainName(name)) + ": " + s.value.YAML()
		if !p.sources {
			p.WriteString(line + "\n")
			continue
		}
		fmt.Fprintf(p, "%-*s # %s\n", commentColumn-1, line, oneLine(s.source.String()))
	}
}

// example prints, as comments, an example entry of an empty section.
func (p *printer) example(s *setting, indent, name string) {
	inner := printer{explain: true, open: append(slices.Clone(p.open), name)}
	inner.print(s.examples)
	if s.doc != "" {
		fmt.Fprintf(p, "%s# %s\n%[1]s#\n", indent, s.doc)
	}
	fmt.Fprintf(p, "%s# %s:\n", indent, name)
	for line := range strings.Lines(inner.String()) {
		if line == "\n" {
			line = indent + line
		}
		p.WriteString(strings.TrimRight(indent+"# "+strings.TrimPrefix(line, indent), " \n") + "\n")
	}
}

// openSections writes the headings needed to get from one section to the next.
func openSections(b *strings.Builder, from, to []string) {
	same := 0
	for same < len(from) && same < len(to) && from[same] == to[same] {
		same++
	}
	for i := same; i < len(to); i++ {
		b.WriteString(strings.Repeat("  ", i) + quote(plainName(to[i])) + ":\n")
	}
}

func (s *setting) explanation(indent string) string {
	var b strings.Builder
	if s.doc != "" {
		b.WriteString(indent + "# " + s.doc + "\n")
	}
	if a := s.value.accepted; a != "" {
		b.WriteString(indent + "# Accepted: " + a + "\n")
	}
	b.WriteString(indent + "# Variable: " + envName(s.key) + "\n")
	return b.String()
}

// oneLine keeps a file name that contains a line break inside its comment.
func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(s) }

// Change is a key whose value has changed.
type Change struct {
	Key, Old, New string
	Live          bool // a reload applies it; otherwise it needs a restart
}

// Changes returns the keys whose values differ in next.
func (c *Config) Changes(next *Config) []Change {
	var changes []Change
	for _, s := range next.settings {
		old := "(absent)"
		if before := c.setting(s.key); before != nil {
			old = before.value.String()
		}
		if v := s.value.String(); v != old {
			changes = append(changes, Change{Key: s.key, Old: old, New: v, Live: s.live})
		}
	}
	return changes
}
