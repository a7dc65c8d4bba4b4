// Package vhost implements virtual hosts: exchanges, bindings, the table of queues, routing and dead-lettering.
//
// Sessions call a vhost for clients; its queues call it as their [queue.Host]. A refused request is an [*Error] with RabbitMQ's
// text, which only sessions turn into a reply code.
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

// VHost is one virtual host. It is safe for concurrent use, also by its queues' turns. It consists of parts, and itself does only what
// takes several of them.
type VHost struct {
	rules
	clock     clock.Clock
	offset    time.Duration
	placement uint64
	log       *slog.Logger
	telemetry *telemetry.Recorder
	headers   *amqp.Names // see Headers

	life        life
	topology    topology
	changes     changes
	description description
	parameters  Parameters
	policies    policyTable
	maker       exchangeMaker
	exchanges   exchanges
	queues      queues
	host        queueHost
	redrives    Redrives
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
	v.topology = topology{rules: r, life: &v.life, clock: c.Clock, exchanges: map[string]*exchange{}, queues: newQueueTable()}
	v.changes = changes{
		rules: r, mu: mu, life: &v.life, definer: definer{c.Name, c.Placement}, log: c.DefinitionLog, all: v.parts,
	}
	v.changes.ended.L = mu
	v.description = description{mu: mu, changes: &v.changes}
	v.parameters = Parameters{rules: r, mu: mu, changes: &v.changes, values: map[parameterKey]json.RawMessage{}}
	v.policies = policyTable{
		rules: r, mu: mu, topology: t, changes: &v.changes, maker: &v.maker, log: log, telemetry: c.Telemetry,
		profiles: map[profileKey]*profile{},
	}
	v.maker = exchangeMaker{
		rules: r, changes: &v.changes, broker: c.Queues, clock: c.Clock, host: &v.host, log: log, heldChain: emptyChain(), drained: v.exchanges.deleteDrained,
	}
	v.exchanges = exchanges{
		rules: r, topology: t, changes: &v.changes, policies: &v.policies, maker: &v.maker, maxBindings: c.MaxBindings,
		log: log, telemetry: c.Telemetry,
	}
	v.queues = queues{
		rules: r, topology: t, changes: &v.changes, description: &v.description, parameters: &v.parameters, policies: &v.policies,
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

// Placement returns the number that distinguishes vhosts of a cluster that had the same name at different times. 0 means that the
// vhost is not in a cluster.
func (v *VHost) Placement() uint64 { return v.placement }

// Offset returns the difference between the vhost's clock and this node's. All instants in the vhost belong to the vhost's clock.
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

// Metadata returns the metadata.
func (v *VHost) Metadata() Metadata { return v.description.get() }

// SetMetadata replaces the metadata. Existing queues keep their type.
func (v *VHost) SetMetadata(m Metadata) error { return v.description.set(m) }

// Tracing reports whether the vhost is traced.
func (v *VHost) Tracing() bool { return v.description.traced() }

// Policies returns the policies in force. The set is never modified: a change replaces it.
func (v *VHost) Policies() *policies.Set { return v.policies.inForce() }

// SetPolicy adds a policy, or replaces the policy of that name. An equal policy changes nothing. SetPolicy returns when the change is
// durable and has been adopted by all queues and exchanges that the policy applies to, or no longer applies to.
func (v *VHost) SetPolicy(kind policies.Kind, p *policies.Policy) (created bool, err error) {
	return v.policies.setPolicy(kind, p)
}

// ClearPolicy deletes a policy, and reports whether it existed.
func (v *VHost) ClearPolicy(kind policies.Kind, name string) (existed bool, err error) {
	return v.policies.clearPolicy(kind, name)
}

// StrategyChanged attaches plugins again to the queues with an expiry strategy that was added, removed or replaced. With recompute, their
// messages are restamped.
func (v *VHost) StrategyChanged(name string, recompute bool) {
	v.policies.strategyChanged(name, recompute)
}

// ProfileOf returns the profile that a durable queue would have if it were declared now. It returns the errors of the declaration, but
// declares no queue.
func (v *VHost) ProfileOf(name string, args amqp.Table) (*queue.Profile, error) {
	d := QueueDeclare{Name: name, Durable: true, Args: args}
	v.description.applyDefaultType(&d)
	return v.policies.profileOf(name, d.Args)
}

// CompactDefinitions rewrites the log of definitions, if that is worthwhile.
func (v *VHost) CompactDefinitions() { v.changes.compact() }

// FailDefinitions is called when definitions cannot be written any more. The vhost then refuses to delete durable queues.
func (v *VHost) FailDefinitions(err error) { v.changes.fail(err) }

// StopShard makes the queues of a failed shard notice, and publishers look up routes again. It returns how many queues there are.
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

// Exchange returns the description of an exchange and whether it exists.
func (v *VHost) Exchange(name string) (Exchange, bool) { return v.topology.describe(name) }

// Exchanges returns all exchanges, sorted by name.
func (v *VHost) Exchanges() []Exchange { return v.topology.describeAll() }

// MissingTypes counts exchanges of types that no plugin offers, by type.
func (v *VHost) MissingTypes() map[string]int { return v.topology.missingTypes() }

// CheckExchange is the passive declaration.
func (v *VHost) CheckExchange(name string) error { return v.exchanges.check(name) }

// DeclareExchange creates an exchange, or checks that the existing one is equivalent. allow, if not nil, is asked before an
// exchange with an alternate is created; its error is returned as it is.
func (v *VHost) DeclareExchange(d Exchange, allow func(alternate string) error) error {
	return v.exchanges.declare(d, allow)
}

// DeleteExchange deletes an exchange and all bindings from and to it. It need not exist.
func (v *VHost) DeleteExchange(name string, ifUnused bool) error {
	return v.exchanges.delete(name, ifUnused)
}

// Bind adds a binding. An existing one is left as it is. owner is the connection that asks.
func (v *VHost) Bind(b Binding, owner Owner) error { return v.exchanges.bind(b, owner) }

// Unbind removes a binding, which need not exist. An auto-delete exchange is deleted with its last one.
func (v *VHost) Unbind(b Binding, owner Owner) error { return v.exchanges.unbind(b, owner) }

// HasBinding reports whether a binding exists.
func (v *VHost) HasBinding(b Binding) bool { return v.topology.hasBinding(&b) }

// Bindings returns all bindings, in no particular order, except the bindings of the default exchange: every queue has one.
func (v *VHost) Bindings() []Binding { return v.topology.allBindings() }

// BindingsFrom returns the bindings from an exchange, in no particular order. The default exchange shows none.
func (v *VHost) BindingsFrom(exchange string) []Binding { return v.topology.bindingsFrom(exchange) }

// BindingsTo returns the bindings to a queue or, with toExchange, to an exchange, in no particular order. That of the default
// exchange is left out.
func (v *VHost) BindingsTo(name string, toExchange bool) []Binding {
	return v.topology.bindingsTo(name, toExchange)
}

// BindingCount returns how many bindings there are.
func (v *VHost) BindingCount() int {
	v.topology.mu.RLock()
	defer v.topology.mu.RUnlock()
	return v.topology.bindingCount()
}

// Schedules returns the schedules of exchanges, as queues that are not in the table, in no particular order.
func (v *VHost) Schedules() []*queue.Mailbox { return v.topology.schedules() }

// Schedule returns an exchange's schedule, as a queue that is not in the table. It is an error if exchanges of its type hold nothing.
func (v *VHost) Schedule(exchange string) (*queue.Mailbox, error) {
	return v.topology.schedule(exchange)
}

// Generation changes whenever a message could be routed differently. A route is valid as long as Generation returns the same as before the
// route was looked up.
func (v *VHost) Generation() uint64 { return v.topology.routeGeneration() }

// Route appends to dst the queues for a message that is published to the exchange, each once. reusable means that the result depends on
// exchange and keys alone, and is valid as long as Generation returns the same as before the call. Route sets the message's Exchange, and
// does not retain the message.
func (v *VHost) Route(exchange string, m *parts.Message, dst []*queue.Mailbox) (_ []*queue.Mailbox, reusable bool, err error) {
	return v.topology.route(exchange, m, dst)
}

// RouteCopy appends to dst the queues that the trace exchange routes the copy of a message to.
func (v *VHost) RouteCopy(m *parts.Message, dst []*queue.Mailbox) []*queue.Mailbox {
	dst, _, _ = v.topology.routeInternal(TraceExchange, m, dst)
	return dst
}

// Publishable returns an error if Route would return it for every message to an exchange; nil if that depends on the message.
func (v *VHost) Publishable(exchange string) error { return v.topology.checkPublishable(exchange) }

// Successors replaces each queue in place by the queue that has its name now, and leaves out queues with names that are unused.
func (v *VHost) Successors(queues []*queue.Mailbox) []*queue.Mailbox {
	return v.topology.successors(queues)
}

// Leads returns the names of the queues to which an exchange would route a message from its schedule if it released it now; nil if none. If
// a plugin chooses anew for each message, it returns all queues that the plugin may choose. Leads changes nothing.
func (v *VHost) Leads(exchange string, m *parts.Message) (queues []string) {
	return v.topology.leads(exchange, m)
}

// LeadsTo returns the names of the queues to which a message that the broker publishes to an exchange would be routed now, and the outcome
// for a dead letter. If a plugin chooses anew for each message, it returns all queues that the plugin may choose; exchanges hold nothing,
// and filters are not asked. LeadsTo changes nothing.
func (v *VHost) LeadsTo(exchange string, m *parts.Message) (queues []string, outcome telemetry.Outcome) {
	return v.topology.leadsTo(exchange, m)
}

// Reach follows dead letters with a target through bindings and alternate exchanges. It needs no message, and changes nothing. If the
// target has no key, messages keep their own keys, which are unknown here. At most so many queues are named.
func (v *VHost) Reach(t *hook.Target, most int) Reach { return v.topology.reach(t, most) }

// Queue returns a queue that owner may use. If a method of the mailbox later reports [queue.ErrGone], the queue has been deleted:
// see [VHost.NoQueue].
func (v *VHost) Queue(name string, owner Owner) (*queue.Mailbox, error) {
	return v.topology.queue(name, owner)
}

// NoQueue is the error for a queue that does not exist. Sessions return it when a mailbox they hold reports [queue.ErrGone].
func (v *VHost) NoQueue(name string) *Error { return v.life.noQueue(name) }

// Mailbox returns a queue, whichever connection owns it; nil if it does not exist.
func (v *VHost) Mailbox(name string) *queue.Mailbox { return v.topology.mailbox(name) }

// OwnerOf returns the connection that owns an exclusive queue; 0 for any other queue.
func (v *VHost) OwnerOf(queue string) Owner {
	e, _ := v.topology.lookup(queue)
	return e.owner()
}

// Mailboxes returns all queues in no particular order. Some may be deleted by the time they are used.
func (v *VHost) Mailboxes() []*queue.Mailbox { return v.topology.mailboxes() }

// Queues returns all queues, sorted by name. Some may be deleted by the time they are used.
func (v *VHost) Queues() []*queue.Mailbox { return v.topology.sortedMailboxes() }

// DeclareQueue creates a queue, or checks that the existing one is equivalent.
func (v *VHost) DeclareQueue(d QueueDeclare) (Declared, error) { return v.queues.declare(d) }

// CheckQueue is the passive declaration. Like the active one it is a use of the queue, unless the client wants no answer.
func (v *VHost) CheckQueue(name string, owner Owner, noWait bool) (Declared, error) {
	return v.queues.check(name, owner, noWait)
}

// PurgeQueue drops the ready messages of a queue and returns how many there were.
func (v *VHost) PurgeQueue(name string, owner Owner) (messages int, err error) {
	return v.queues.purge(name, owner)
}

// DeleteQueue deletes a queue and returns how many ready messages it had. The queue need not exist.
func (v *VHost) DeleteQueue(name string, owner Owner, ifUnused, ifEmpty bool) (messages int, err error) {
	return v.queues.delete(name, owner, ifUnused, ifEmpty)
}

// Stats returns the current counts.
func (v *VHost) Stats() Stats {
	v.topology.mu.RLock()
	s := Stats{Exchanges: v.topology.exchangeCount(), Queues: v.topology.queues.count(), Connections: v.life.connected()}
	v.topology.mu.RUnlock()
	s.Removals, s.Refused, s.QueuesExpired = v.host.counts()
	return s
}

// Churn returns the current counts.
func (v *VHost) Churn() Churn { return v.queues.counts() }

// DeadLetters returns the counts since the broker was started, and how many at-least-once dead letters were confirmed, by the type of
// their queue.
func (v *VHost) DeadLetters() (DeadLetterCounts, [queue.Types]uint64) {
	return v.host.deadLetters()
}
