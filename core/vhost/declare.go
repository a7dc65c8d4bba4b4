package vhost

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/sdk/hook"
)

// QueueDeclare is a request to declare a queue.
type QueueDeclare struct {
	Name       string // empty: the server makes one up
	Durable    bool
	Exclusive  bool
	AutoDelete bool
	Args       amqp.Table

	Restored bool // an import restores a queue that may have a reserved name

	Owner  Owner // the connection that makes the request
	NoWait bool  // the client wants no answer: such a declaration does not count as a use of the queue and renews no lease

	// Allow, if not nil, is asked before a queue is created with arguments that name an
	// exchange to which the queue's messages will be published. Its error is returned as it
	// is.
	Allow func(exchange string) error
}

// Declared describes a queue for the answer to its declaration.
type Declared struct {
	Mailbox   *queue.Mailbox
	Messages  int // ready ones
	Consumers int
}

// DeclareQueue creates a queue, or checks that the existing one is equivalent.
func (qs *queues) DeclareQueue(d QueueDeclare) (Declared, error) {
	qs.churn.declared.Add(1)
	d.Durable = d.Durable && !d.Exclusive // an exclusive queue does not outlive its connection
	qs.description.applyDefaultType(&d)
	if err := nameQueue(&d); err != nil {
		return Declared{}, err
	}
	args := hookArgs(d.Args)
	for {
		e, exists := qs.topology.lookup(d.Name)
		if !exists {
			m, err := qs.create(d, args)
			if m != nil || err != nil {
				return Declared{Mailbox: m}, err
			}
			continue
		}
		err := qs.checkEquivalentQueue(e, d, args)
		found, halt := qs.observe(e.mailbox, err == nil && !d.NoWait)
		if errors.Is(halt, queue.ErrGone) {
			continue
		}
		return found, cmp.Or(err, halt)
	}
}

// CheckQueue is the passive declaration. Like the active one it is a use of the queue, unless the client wants no answer.
func (qs *queues) CheckQueue(name string, owner Owner, noWait bool) (Declared, error) {
	m, err := qs.topology.Queue(name, owner)
	if err != nil {
		return Declared{}, err
	}
	found, err := qs.observe(m, !noWait)
	return found, qs.orNoQueue(m, err)
}

// observe reads a queue's counts. A use renews the lease, except for a quorum queue [RabbitMQ: ttl.html#queue-ttl].
func (qs *queues) observe(m *queue.Mailbox, use bool) (d Declared, err error) {
	d.Mailbox = m
	use = use && m.Config().Kind != queue.Quorum
	err = qs.run(m, func(q *queue.Queue, now hook.Instant) {
		if use {
			q.Touch(now)
		}
		s := q.Stats()
		d.Messages, d.Consumers = s.Ready, s.Consumers
	})
	return d, err
}

// nameQueue checks the name, or makes one up.
func nameQueue(d *QueueDeclare) error {
	d.Name = rabbit.Sanitise(d.Name)
	if d.Name != "" {
		return d.checkName()
	}
	if t, _ := d.Args.Lookup(argQueueType); t == queue.Quorum || t == typeStream {
		return refuse(Precondition, "Cannot declare a server-named queue for type rabbit_%s_queue", t)
	}
	d.Name = serverName(d.Args)
	return nil
}

// serverName makes up a name that clients cannot guess. The client may choose its prefix,
// which is checked with the other arguments.
func serverName(args amqp.Table) string {
	v, _ := args.Lookup(argNamePrefix)
	prefix, ok := v.(string)
	if !ok {
		prefix = "amq.gen"
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return prefix + "-" + base64.RawURLEncoding.EncodeToString(random[:])
}

func (d *QueueDeclare) exclusiveOwner() Owner {
	if d.Exclusive {
		return d.Owner
	}
	return 0
}

// create creates a queue that does not exist. It returns nil without an error if the caller
// must try again, because another caller took the name or the policies changed.
func (qs *queues) create(d QueueDeclare, args hook.Args) (*queue.Mailbox, error) {
	if err := checkFields(qs.queueName(d.Name), d.Args); err != nil {
		return nil, err
	}
	p, err := qs.policies.profileFor(d.Name, d.Args, args, true)
	if err != nil {
		return nil, err
	}
	if err := qs.checkProperties(d, p.Kind); err != nil {
		return nil, err
	}
	if err := d.allowed(p.exchanges); err != nil {
		return nil, err
	}
	if d.Durable && qs.changes.durable() {
		return qs.addDurable(d, p)
	}
	return qs.addTransient(d, p)
}

// allowed asks whether the queue's messages may be published to exchanges.
func (d *QueueDeclare) allowed(exchanges []string) error {
	if d.Allow == nil {
		return nil
	}
	for _, x := range exchanges {
		if err := d.Allow(x); err != nil {
			return err
		}
	}
	return nil
}

// addTransient adds a queue that is not logged. It returns nil as create does.
func (qs *queues) addTransient(d QueueDeclare, p *profile) (*queue.Mailbox, error) {
	qs.topology.mu.Lock()
	defer qs.topology.mu.Unlock()
	if free, err := qs.awaitName(d.Name); !free {
		return nil, err
	}
	if !qs.policies.isCurrent(p) {
		return nil, nil
	}
	if err := qs.checkLimit(d.Name); err != nil {
		return nil, err
	}
	return qs.make(p.config(d), d.exclusiveOwner()), nil
}

// addDurable logs a queue, and adds it to the table when that is durable. It returns nil as create does.
func (qs *queues) addDurable(d QueueDeclare, p *profile) (*queue.Mailbox, error) {
	cfg := p.config(d)
	cfg.Storage = qs.changes.newStorage()
	if err := qs.checkLog(cfg); err != nil {
		return nil, err
	}
	defer qs.changes.CompactDefinitions()
	pending, err := qs.reserve(cfg, p)
	if pending == nil {
		return nil, err
	}
	err = qs.changes.awaitDurable(true)
	return qs.addReserved(pending, err), err
}

// reserve reserves the name of a new queue and begins the change that addReserved ends. It
// returns nil if the policies have changed since the profile was made, or if the name is
// taken; in that case it returns once the queue that has the name is in the table.
func (qs *queues) reserve(cfg *queue.Config, p *profile) (*pendingQueue, error) {
	qs.topology.mu.Lock()
	defer qs.changes.unlock()
	// Outside the change, because this waits as long as the disk is full, and other changes must not.
	if free, err := qs.awaitName(cfg.Name); !free {
		return nil, err
	}
	qs.changes.begin(additive)
	if qs.isTaken(cfg.Name) || !qs.policies.isCurrent(p) {
		qs.changes.end(additive)
		return nil, nil
	}
	if err := qs.checkLimit(cfg.Name); err != nil {
		qs.changes.end(additive)
		return nil, err
	}
	qs.changes.add(qs.changes.defineQueue(cfg))
	return qs.addPending(newPending(cfg)), nil
}

// addReserved adds a queue to the table, unless its definition is not durable.
func (qs *queues) addReserved(p *pendingQueue, err error) *queue.Mailbox {
	qs.topology.mu.Lock()
	defer qs.changes.unlock()
	defer close(p.done)
	defer qs.changes.end(additive)
	delete(qs.pending, p.config.Name)
	if err != nil || !qs.topology.life.isServed() {
		return nil
	}
	cfg := p.config
	if applied := qs.policies.match(subject(cfg)); applied != cfg.Policies {
		cfg = reconfigured(cfg, qs.policies.newProfile(cfg.Args, applied))
	}
	return qs.make(cfg, 0)
}

// addPending reserves the name of a queue. The caller holds mu.
func (qs *queues) addPending(p *pendingQueue) *pendingQueue {
	qs.pending[p.config.Name] = p
	return p
}

// awaitName reports whether a new queue may have a name. While a pending queue has it,
// awaitName waits, with mu released, and then returns false; the caller looks again. An
// error means that the name stays reserved until the broker is restarted. The caller holds
// mu.
func (qs *queues) awaitName(name string) (free bool, err error) {
	p := qs.pending[name]
	switch {
	case p == nil:
		return !qs.isTaken(name), nil
	case p.err != nil:
		return false, qs.undelivered(name, p.err)
	}
	qs.topology.mu.Unlock()
	<-p.done
	qs.topology.mu.Lock()
	return false, nil
}

// isTaken reports whether a queue has the name or reserves it. The caller holds mu.
func (qs *queues) isTaken(name string) bool {
	_, exists := qs.topology.queues.get(name)
	return exists || qs.pending[name] != nil
}

// checkLimit refuses to create a queue at the limit, or in a vhost that was deleted or has moved. The caller holds mu.
func (qs *queues) checkLimit(name string) error {
	if err := qs.topology.life.checkOpen(); err != nil {
		return err
	}
	if most := qs.parameters.limitsNow().Queues; reached(most, qs.topology.queues.count()+len(qs.pending)) {
		return refuse(Precondition, "cannot declare queue '%s': queue limit in vhost '%s' (%d) is reached", name, qs.name, most.N())
	}
	return nil
}
