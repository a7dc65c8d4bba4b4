// Package vhost is a virtual host: its exchanges and bindings, the table of its queues, and what happens between them, that
// is routing and dead-lettering.
//
// A vhost is called by sessions, for what clients ask, and by the queues themselves, as their [queue.Host]. Refusals are an
// [*Error] with RabbitMQ's text; only sessions make reply codes of them.
package vhost

import (
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Owner is a connection, as far as exclusive queues are concerned: a number of its own in this process. 0 is nobody.
type Owner = uint64

// Config is what a vhost needs of its broker.
type Config struct {
	Name     string
	Metadata Metadata
	Chain    *chain.Chain
	Clock    clock.Clock
	Log      *slog.Logger
	// Telemetry is told what happens; nil = nobody is.
	Telemetry *telemetry.Recorder
	// DefinitionLog keeps what is durable; nil = nothing is.
	DefinitionLog DefinitionLog
	// MaxBindings is how many bindings there may be; 0 = any number. What is brought back may be more.
	MaxBindings int
}

// VHost is one virtual host. Any goroutine may use it, queues' turns included.
type VHost struct {
	name          string
	chain         *chain.Chain
	clock         clock.Clock
	log           *slog.Logger
	definitionLog DefinitionLog   // nil: nothing is durable
	maxBindings   int             // that there may be; 0 = any number
	arguments     []hook.Argument // known ones, the core's and the plugins', in the order they are checked

	// mu guards the topology: everything from here to generation. It is never held while a method of a queue's shell is
	// called: that may run the queue's turn, and turns call back into the vhost.
	mu              sync.RWMutex
	exchanges       map[string]*exchange
	queues          map[string]queueEntry
	peak            int                                   // the most queues there were since the map was made
	exclusive       map[Owner]map[*queue.Mailbox]struct{} // exclusive queues
	profiles        map[profileKey]*profile
	pending         map[string]*pendingQueue // durable queues on their way into the table, by name
	deleted         bool                     // the vhost is deleted
	changes         changeLock               // who changes what is durable
	unwritten       []byte                   // definitions of the change at hand
	bindings        int                      // bindings
	pendingBindings int                      // bindings that are coming

	metadata    Metadata
	tracing     atomic.Bool // as metadata say
	parameters  map[parameterKey]json.RawMessage
	limits      Limits // as parameters say
	connections map[Owner]func(reason string)

	policies atomic.Pointer[policies.Set] // written with mu held
	applying sync.Mutex                   // held while policies change, until the queues have taken it on

	// epoch changes, with mu held, whenever what follows from a queue's arguments may have changed: policies or strategies.
	epoch atomic.Uint64

	failure atomic.Pointer[error] // why nothing durable can be changed any more; nil while it can

	generation   atomic.Uint64
	unroutedName atomic.Bool // a message for a queue that does not exist was routed since generation changed

	telemetry     *telemetry.Recorder
	churn         churnCounters
	removals      removalCounters
	refused       atomic.Uint64 // messages
	expiredQueues atomic.Uint64 // queues
	cycles        death.Warnings
	expiry        expiryLog
}

// New returns a vhost with the exchanges every vhost has [AMQP 3.1.3.1].
func New(c Config) *VHost {
	log := c.Log.With("vhost", c.Name)
	v := &VHost{
		name: c.Name, metadata: c.Metadata, chain: c.Chain, clock: c.Clock, log: log, definitionLog: c.DefinitionLog, maxBindings: c.MaxBindings, telemetry: c.Telemetry,
		arguments: ordered(slices.Concat(coreArguments, c.Chain.Arguments())),
		exchanges: map[string]*exchange{},
		queues:    map[string]queueEntry{},
		exclusive: map[Owner]map[*queue.Mailbox]struct{}{},
		profiles:  map[profileKey]*profile{},
		expiry:    expiryLog{log: log, tokens: expiryBurst},
	}
	v.changes.ended.L = &v.mu
	v.tracing.Store(c.Metadata.Tracing)
	for _, x := range predeclared {
		v.exchanges[x.Name] = newExchange(x)
	}
	return v
}

// Name returns the name of the vhost.
func (v *VHost) Name() string { return v.name }

// Generation changes whenever a message could be routed differently than before. A route is good for as long as the
// generation that was read before it was asked for.
func (v *VHost) Generation() uint64 { return v.generation.Load() }

// invalidateRoutes makes every remembered route worthless. The caller holds mu for writing.
func (v *VHost) invalidateRoutes() {
	v.unroutedName.Store(false)
	v.generation.Add(1)
}

// encoded is a table as a key to look it up by.
func encoded(t amqp.Table) string { return string(amqp.AppendTable(nil, t)) }
