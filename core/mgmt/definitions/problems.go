package definitions

import (
	"fmt"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// maxProblems is how many errors of one file are reported.
const maxProblems = 100

// problems are the errors of a file's definitions, in the order in which they are found. They are collected so that the user can correct
// all of them at once.
type problems struct {
	found []error
	more  int // beyond maxProblems
}

func (p *problems) add(err error) {
	switch {
	case err == nil:
	case !p.enough():
		p.found = append(p.found, err)
	default:
		p.more++
	}
}

// enough reports whether further errors are only counted.
func (p *problems) enough() bool { return len(p.found) == maxProblems }

// remarks are warnings about definitions that are or would be imported.
type remarks struct {
	made []string
	more int // beyond maxProblems
}

func (m *remarks) add(text string) {
	if len(m.made) < maxProblems {
		m.made = append(m.made, text)
	} else {
		m.more++
	}
}

func (m *remarks) all() []string {
	if m.more > 0 {
		return append(m.made, fmt.Sprintf("and %d more", m.more))
	}
	return m.made
}

// all returns all errors as one; nil if there are none. An error that no client has caused comes alone.
func (p *problems) all() error {
	if len(p.found) < 2 {
		return firstError(p.found, func(err error) error { return err })
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d definitions are refused:", len(p.found)+p.more)
	for _, err := range p.found {
		why, ok := reason(err)
		if !ok {
			return err
		}
		text.WriteString("\n" + why)
	}
	if p.more > 0 {
		fmt.Fprintf(&text, "\nand %d more", p.more)
	}
	return jsonobj.Errorf("%s", text.String())
}
