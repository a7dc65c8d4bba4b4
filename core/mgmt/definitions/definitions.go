// Package definitions exports and imports the declarations of a broker, in the files that RabbitMQ writes and reads: users, permissions,
// vhosts, parameters, policies, exchanges, queues and bindings, but no messages. It also converts each kind of definition to JSON and back,
// for requests about a single definition. It knows nothing of HTTP.
package definitions

import (
	"log/slog"
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
