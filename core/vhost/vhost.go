// Package vhost implements virtual hosts: exchanges, bindings, the table of queues, routing and dead-lettering.
//
// Sessions call a vhost for clients; its queues call it as their [queue.Host]. A refused
// request is an [*Error] with RabbitMQ's text, which only sessions turn into a reply code.
package vhost

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
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

// VHost is one virtual host. It is safe for concurrent use, also by its queues' turns. It
// consists of parts; its own methods combine several of them.
type VHost struct {
	rules
	clock     clock.Clock
	offset    time.Duration
	placement uint64
	log       *slog.Logger
	telemetry *telemetry.Recorder
	headers   *amqp.Names // see Headers

	// The parts. A vhost has the exported methods of the embedded parts.
	life
	topology
	changes
	description
	policyTable
	exchanges
	queues
	parameters Parameters
	maker      exchangeMaker
	host       queueHost
	redrives   Redrives
}

// New returns a vhost with the exchanges that every vhost has [AMQP 3.1.3.1].
func New(c Config) *VHost {
	log := c.Log.With("vhost", c.Name)
	if c.Queues == nil {
		c.Queues = new(queue.Broker)
	}
	v := &VHost{
		rules: NewValidator(c.Chain).rulesOf(c.Name), clock: c.Clock, offset: c.Offset, placement: c.Placement, log: log, telemetry: c.Telemetry,
		headers: amqp.NewNames(append([]string{death.HeaderCC, death.HeaderBCC}, c.Chain.HoldHeaders()...)...),
	}
	r, mu, t := &v.rules, &v.topology.mu, &v.topology
	v.life = life{rules: r, mu: mu, connections: map[Owner]func(string){}}
	v.topology = topology{rules: r, life: &v.life, clock: c.Clock, exchanges: map[string]*exchange{}, queues: queueTable{byName: map[string]queueEntry{}, exclusive: map[Owner]map[*queue.Mailbox]struct{}{}}}
	v.changes = changes{
		rules: r, mu: mu, life: &v.life, definer: definer{c.Name, c.Placement}, log: c.DefinitionLog, all: v.parts,
	}
	v.changes.ended.L = mu
	v.description = description{mu: mu, changes: &v.changes}
	v.parameters = Parameters{rules: r, mu: mu, changes: &v.changes, values: map[parameterKey]json.RawMessage{}}
	v.policyTable = policyTable{
		rules: r, mu: mu, topology: t, changes: &v.changes, maker: &v.maker, log: log, telemetry: c.Telemetry,
		profiles: map[profileKey]*profile{},
	}
	v.maker = exchangeMaker{
		rules: r, changes: &v.changes, broker: c.Queues, clock: c.Clock, host: &v.host, log: log, heldChain: emptyChain(), drained: v.exchanges.deleteDrained,
	}
	v.exchanges = exchanges{
		rules: r, topology: t, changes: &v.changes, policies: &v.policyTable, maker: &v.maker, maxBindings: c.MaxBindings,
		log: log, telemetry: c.Telemetry,
	}
	v.queues = queues{
		rules: r, topology: t, changes: &v.changes, description: &v.description, parameters: &v.parameters, policies: &v.policyTable,
		exchanges: &v.exchanges, broker: c.Queues, clock: c.Clock, host: &v.host, log: log, pending: map[string]*pendingQueue{},
	}
	v.host = queueHost{
		topology: t, queues: &v.queues, log: log, telemetry: c.Telemetry,
		expiry: expiryLog{log: log, lineBudget: lineBudget{tokens: expiryBurst}},
	}
	v.redrives = Redrives{
		rules: r, topology: t, queues: &v.queues, clock: c.Clock, offset: c.Offset, log: log, telemetry: c.Telemetry,
	}
	v.description.adopt(c.Metadata)
	for _, x := range predeclared {
		t.addExchange(v.maker.restore(x, nil))
	}
	return v
}

// Name returns the name of the vhost.
func (v *VHost) Name() string { return v.name }

// Placement returns the number that distinguishes vhosts of a cluster that had the same
// name at different times. 0 means that the vhost is not in a cluster.
func (v *VHost) Placement() uint64 { return v.placement }

// Offset returns the difference between the vhost's clock and this node's. All instants in
// the vhost belong to the vhost's clock.
func (v *VHost) Offset() time.Duration { return v.offset }

// Moved reports whether the vhost has moved: all calls fail.
func (v *VHost) Moved() bool { return v.life.movedError() != nil }

// CheckExpiration reads the expiration property of a message, as [chain.Chain.CheckExpiration].
func (v *VHost) CheckExpiration(raw []byte) (hook.Limit, error) { return v.chain.CheckExpiration(raw) }

// Headers returns the headers of a message that are read before it is routed: CC, BCC, and the headers for ReadHold.
func (v *VHost) Headers() *amqp.Names { return v.headers }

// ReadHold returns how long a message is held, as [chain.Chain.ReadHold].
func (v *VHost) ReadHold(now hook.Instant, values []any) (hook.Wait, error) {
	return v.chain.ReadHold(now, values)
}

// QueueHost returns the methods that queues of this vhost call.
func (v *VHost) QueueHost() queue.Host { return &v.host }

// Redrives returns the redrives.
func (v *VHost) Redrives() *Redrives { return &v.redrives }

// Parameters returns the parameters, with the limits of the vhost.
func (v *VHost) Parameters() *Parameters { return &v.parameters }

// ProfileOf returns the profile that a durable queue would have if it were declared now. It
// returns the errors of the declaration, but declares no queue.
func (v *VHost) ProfileOf(name string, args amqp.Table) (*queue.Profile, error) {
	d := QueueDeclare{Name: name, Durable: true, Args: args}
	v.description.applyDefaultType(&d)
	return v.policyTable.profileOf(name, d.Args)
}

// StopShard makes the queues of a failed shard notice the failure, and publishers look up
// routes again. It returns the number of these queues.
func (v *VHost) StopShard(shard uint32) (queues int) {
	v.changes.exclusively(v.topology.invalidateRoutes)
	for _, m := range v.mailboxes() {
		if s := m.Config().Storage; s != nil && s.Shard == shard {
			queues++
			_ = m.Do(func(*queue.Queue, hook.Instant) {}) // an error means that the queue is deleted
		}
	}
	return queues
}

// BindingCount returns how many bindings there are.
func (v *VHost) BindingCount() int {
	v.topology.mu.RLock()
	defer v.topology.mu.RUnlock()
	return v.topology.bindingCount()
}

// RouteCopy appends to dst the queues that the trace exchange routes the copy of a message to.
func (v *VHost) RouteCopy(m *parts.Message, dst []*queue.Mailbox) []*queue.Mailbox {
	dst, _, _ = v.topology.routeInternal(TraceExchange, m, dst)
	return dst
}

// OwnerOf returns the connection that owns an exclusive queue; 0 for any other queue.
func (v *VHost) OwnerOf(queue string) Owner {
	e, _ := v.topology.lookup(queue)
	return e.owner()
}

// Stats returns the current counts.
func (v *VHost) Stats() Stats {
	v.topology.mu.RLock()
	s := Stats{Exchanges: v.topology.exchangeCount(), Queues: v.topology.queues.count(), Connections: v.life.connected()}
	v.topology.mu.RUnlock()
	s.Removals, s.Refused, s.QueuesExpired = v.host.counts()
	return s
}

// DeadLetters returns the counts since the broker was started, and how many at-least-once
// dead letters were confirmed, by the type of their queue.
func (v *VHost) DeadLetters() (DeadLetterCounts, [queue.Types]uint64) {
	return v.host.deadLetters()
}
