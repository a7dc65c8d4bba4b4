// Package vhost implements virtual hosts: exchanges, bindings, the table of queues, routing and dead-lettering.
//
// Sessions call a vhost for clients; its queues call it as their [queue.Host]. A refused request is an [*Error] with RabbitMQ's
// text, which only sessions turn into a reply code.
package vhost

import (
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Owner is the number of a connection, as the owner of exclusive queues. 0 means none.
type Owner = uint64

// Config configures a vhost.
type Config struct {
	Name          string
	Metadata      Metadata
	Placement     uint64        // see [VHost.Placement]
	Queues        *queue.Broker // the broker of the vhost's queues; nil = the vhost has one of its own
	Chain         *chain.Chain
	Clock         clock.Clock   // of everything in the vhost
	Offset        time.Duration // from the node's clock to Clock
	Log           *slog.Logger
	Telemetry     *telemetry.Recorder // nil means that nothing is reported
	DefinitionLog DefinitionLog       // nil means that nothing is durable
	MaxBindings   int                 // 0 means no limit; Restore may exceed it
}

// VHost is one virtual host. It is safe for concurrent use, also by its queues' turns.
type VHost struct {
	rules
	broker        *queue.Broker
	clock         clock.Clock
	offset        time.Duration
	log           *slog.Logger
	headers       *amqp.Names // see Headers
	definitionLog DefinitionLog
	maxBindings   int
	placement     uint64
	heldChain     *chain.Chain // of schedules
	restoring     bool         // no other goroutine uses the vhost yet

	// mu guards the topology: everything from here to limits. It is never held while a method of a queue's mailbox is called:
	// that may run the queue's turn, and turns call back into the vhost.
	mu        sync.RWMutex
	exchanges map[string]*exchange
	queues    map[string]queueEntry
	peak      int                                   // the most queues since the map was made
	exclusive map[Owner]map[*queue.Mailbox]struct{} // exclusive queues
	pending   map[string]*pendingQueue              // by name
	profiles  map[profileKey]*profile
	deleted   bool
	left      chan struct{} // closed when all connections have left a vhost that moves; nil means that it does not move
	allLeft   bool          // left is closed

	changes         changeLock
	unwritten       []byte // definitions of the current change
	bindings        int
	pendingBindings int // that are being made durable

	metadata    Metadata
	parameters  map[parameterKey]json.RawMessage
	connections map[Owner]func(reason string) // how to evict them
	limits      Limits                        // in parameters, parsed

	tracing  atomic.Bool                  // metadata.Tracing
	policies atomic.Pointer[policies.Set] // stored with mu held
	applying sync.Mutex                   // held while policies change, until all queues have adopted them
	epoch    atomic.Uint64                // changes, with mu held, when queues may get another profile: with policies and strategies
	failure  atomic.Pointer[error]        // why definitions cannot be written any more; nil while they can
	moved    atomic.Pointer[Error]        // the error of all calls, stored with mu held; nil while this node serves the vhost

	generation   atomic.Uint64
	unroutedName atomic.Bool // a message for a queue that does not exist was routed since generation changed

	telemetry     *telemetry.Recorder
	churn         churnCounters
	removals      removalCounters
	refused       atomic.Uint64 // messages
	expiredQueues atomic.Uint64
	cycles        death.Warnings
	expiry        expiryLog
	tooLarge      lineBudget // of messages that fit no frame
	redrives      redrives
}

// New returns a vhost with the exchanges that every vhost has [AMQP 3.1.3.1].
func New(c Config) *VHost {
	log := c.Log.With("vhost", c.Name)
	if c.Queues == nil {
		c.Queues = new(queue.Broker)
	}
	v := &VHost{
		rules:   NewValidator(c.Chain).rulesOf(c.Name),
		headers: amqp.NewNames(append([]string{death.HeaderCC, death.HeaderBCC}, c.Chain.HoldHeaders()...)...),
		broker:  c.Queues, clock: c.Clock, offset: c.Offset, log: log, definitionLog: c.DefinitionLog, maxBindings: c.MaxBindings, placement: c.Placement,
		heldChain:   emptyChain(),
		telemetry:   c.Telemetry,
		exchanges:   map[string]*exchange{},
		queues:      map[string]queueEntry{},
		exclusive:   map[Owner]map[*queue.Mailbox]struct{}{},
		pending:     map[string]*pendingQueue{},
		profiles:    map[profileKey]*profile{},
		parameters:  map[parameterKey]json.RawMessage{},
		connections: map[Owner]func(string){},
		expiry:      expiryLog{log: log, lineBudget: lineBudget{tokens: expiryBurst}},
	}
	v.changes.ended.L = &v.mu
	v.adoptMetadata(c.Metadata)
	for _, x := range predeclared {
		v.exchanges[x.Name] = v.restoreExchange(x, nil)
	}
	return v
}

// Name returns the name of the vhost.
func (v *VHost) Name() string { return v.name }

// Placement returns the number that distinguishes vhosts of a cluster that had the same name at different times. 0 means that the
// vhost is not in a cluster.
func (v *VHost) Placement() uint64 { return v.placement }

// CheckExpiration reads the expiration property of a message, as [chain.Chain.CheckExpiration].
func (v *VHost) CheckExpiration(raw []byte) (hook.Limit, error) { return v.chain.CheckExpiration(raw) }

// Headers returns the headers of a message that are read before it is routed: CC, BCC, and the headers for ReadHold.
func (v *VHost) Headers() *amqp.Names { return v.headers }

// ReadHold returns how long a message is held, as [chain.Chain.ReadHold].
func (v *VHost) ReadHold(now hook.Instant, values []any) (hook.Wait, error) {
	return v.chain.ReadHold(now, values)
}

// Generation changes whenever a message could be routed differently. A route is valid as long as Generation returns the same as before the
// route was looked up.
func (v *VHost) Generation() uint64 { return v.generation.Load() }

// invalidateRoutes makes all known routes invalid. The caller holds mu for writing.
func (v *VHost) invalidateRoutes() {
	v.unroutedName.Store(false)
	v.generation.Add(1)
}
