// Package definitions exports and imports the declarations of a broker, in the files that RabbitMQ writes and reads: users, permissions,
// vhosts, parameters, policies, exchanges, queues and bindings, but no messages. It also converts each kind of definition to JSON and back,
// for requests about a single definition. It knows nothing of HTTP.
package definitions

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/policies"
)

type (
	object = jsonobj.Object
	member = jsonobj.Member
	reader = jsonobj.Reader
)

// Options configure [Definitions].
type Options struct {
	Product, Version string
	RabbitMQ         string // version of RabbitMQ that exported definitions name
	Store            *store.Store
	Rules            *policies.Rules
	Modules          Modules                                  // nil = the broker has none
	FixedOperators   bool                                     // operator policies cannot be imported
	Hash             func(password string) (auth.Hash, error) // nil = the store's, which is slow
	Log              *slog.Logger
}

// Definitions exports and imports the definitions of a broker. Any goroutine may use it.
type Definitions struct {
	Options
	importing sync.Mutex // held by an import, from its checks until it is in force

	mu          sync.Mutex          // guards the rest
	provisional map[string]struct{} // names of expiry policies that are loaded only while definitions are checked
}

// New returns the definitions of a broker.
func New(o Options) *Definitions {
	if o.Hash == nil {
		o.Hash = func(password string) (auth.Hash, error) { return o.Store.Users().Hash(password) }
	}
	return &Definitions{Options: o, provisional: map[string]struct{}{}}
}

// Tags returns tags as a list that is never null.
func Tags(tags []string) []string { return append([]string{}, tags...) }

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
