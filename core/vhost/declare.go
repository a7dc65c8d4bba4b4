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

	Owner  Owner // the connection that asks
	NoWait bool  // the client wants no answer: such a declaration does not count as a use of the queue and renews no lease

	// Allow, if not nil, is asked before a queue is created with arguments that name an exchange to which the queue's messages will be
	// published. Its error is returned as it is.
	Allow func(exchange string) error
}

// Declared describes a queue for the answer to its declaration.
type Declared struct {
	Mailbox   *queue.Mailbox
	Messages  int // ready ones
	Consumers int
}

// DeclareQueue creates a queue, or checks that the existing one is equivalent.
func (v *VHost) DeclareQueue(d QueueDeclare) (Declared, error) {
	v.churn.declared.Add(1)
	d.Durable = d.Durable && !d.Exclusive // an exclusive queue does not outlive its connection
	v.applyDefaultType(&d)
	if err := nameQueue(&d); err != nil {
		return Declared{}, err
	}
	args := hookArgs(d.Args)
	for {
		e, exists := v.lookup(d.Name)
		if !exists {
			m, err := v.createQueue(d, args)
			if m != nil || err != nil {
				return Declared{Mailbox: m}, err
			}
			continue
		}
		err := v.checkEquivalentQueue(e, d, args)
		found, halt := v.observe(e.mailbox, err == nil && !d.NoWait)
		if errors.Is(halt, queue.ErrGone) {
			continue
		}
		return found, cmp.Or(err, halt)
	}
}

// CheckQueue is the passive declaration. Like the active one it is a use of the queue, unless the client wants no answer.
func (v *VHost) CheckQueue(name string, owner Owner, noWait bool) (Declared, error) {
	m, err := v.Queue(name, owner)
	if err != nil {
		return Declared{}, err
	}
	found, err := v.observe(m, !noWait)
	return found, v.orNoQueue(m, err)
}

// observe reads a queue's counts. A use renews the lease, except for a quorum queue [RabbitMQ: ttl.html#queue-ttl].
func (v *VHost) observe(m *queue.Mailbox, use bool) (d Declared, err error) {
	d.Mailbox = m
	use = use && m.Config().Kind != queue.Quorum
	err = v.run(m, func(q *queue.Queue, now hook.Instant) {
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

// serverName makes up a name that clients cannot guess. The client may choose its prefix, which is checked with the other arguments.
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

// checkEquivalentQueue compares a declaration with the existing queue.
func (v *VHost) checkEquivalentQueue(e queueEntry, d QueueDeclare, args hook.Args) error {
	if e.owner() != d.exclusiveOwner() {
		return v.locked(d.Name)
	}
	what, cfg := v.queueName(d.Name), e.mailbox.Config()
	if err := checkEquivalent(what, property{"durable", cfg.Durable, d.Durable}, property{"auto_delete", cfg.AutoDelete, d.AutoDelete}); err != nil {
		return err
	}
	for i := range v.arguments {
		a := &v.arguments[i]
		if !supports(a, cfg.Kind) {
			continue
		}
		if err := checkEquivalentArgument(what, a.Name, optional(cfg.Args.Lookup(a.Name)), optional(args.Lookup(a.Name))); err != nil {
			return err
		}
	}
	return nil
}

func (d *QueueDeclare) exclusiveOwner() Owner {
	if d.Exclusive {
		return d.Owner
	}
	return 0
}

// createQueue creates a queue that does not exist. It returns nil without an error if the caller must try again, because another
// caller took the name or the policies changed.
func (v *VHost) createQueue(d QueueDeclare, args hook.Args) (*queue.Mailbox, error) {
	if err := checkFields(v.queueName(d.Name), d.Args); err != nil {
		return nil, err
	}
	p, err := v.profileFor(d.Name, d.Args, args, true)
	if err != nil {
		return nil, err
	}
	if err := v.checkProperties(d, p.Kind); err != nil {
		return nil, err
	}
	if err := d.allowed(p.exchanges); err != nil {
		return nil, err
	}
	if d.Durable && v.definitionLog != nil {
		return v.addDurable(d, p)
	}
	return v.addTransient(d, p)
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

// addTransient adds a queue that is not logged. It returns nil as createQueue does.
func (v *VHost) addTransient(d QueueDeclare, p *profile) (*queue.Mailbox, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if free, err := v.awaitName(d.Name); !free {
		return nil, err
	}
	if p.epoch != v.epoch.Load() {
		return nil, nil
	}
	if err := v.checkQueueLimit(d.Name); err != nil {
		return nil, err
	}
	m := v.broker.NewMailbox(p.config(d), v.chain, v.QueueHost(), v.clock)
	v.addToTable(m, d.exclusiveOwner())
	return m, nil
}
