package vhost

import (
	"cmp"
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/sdk/hook"
)

// QueueDeclare asks for a queue.
type QueueDeclare struct {
	Name       string // empty: the server makes one up
	Durable    bool
	Exclusive  bool
	AutoDelete bool
	Args       amqp.Table

	Restored bool // by somebody who may use reserved names: the queue was declared elsewhere once, maybe without one

	Owner  Owner // who asks
	NoWait bool  // no answer is wanted: such a declaration is no use of the queue and renews no lease

	// Allow, if not nil, is asked before a queue with a dead-letter exchange is created. Its error is returned as it is.
	Allow func(deadLetterExchange string) error
}

// Declared is a queue as its declaration is answered.
type Declared struct {
	Mailbox   *queue.Mailbox
	Messages  int // ready ones
	Consumers int
}

// DeclareQueue creates a queue, or finds that there is one that is the same.
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
			found, err := v.createQueue(d, args)
			if found.Mailbox != nil || err != nil {
				return found, err
			}
			continue // somebody was faster
		}
		err := v.equivalentQueue(e, d, args)
		found, halt := v.stat(e.mailbox, err == nil && !d.NoWait)
		if errors.Is(halt, queue.ErrGone) {
			continue
		}
		return found, cmp.Or(err, halt)
	}
}

// CheckQueue is the passive declaration. Like the active one it is a use of the queue, unless no answer is wanted.
func (v *VHost) CheckQueue(name string, owner Owner, noWait bool) (Declared, error) {
	shell, err := v.Queue(name, owner)
	if err != nil {
		return Declared{}, err
	}
	found, err := v.stat(shell, !noWait)
	if errors.Is(err, queue.ErrGone) {
		return Declared{}, v.NoQueue(rabbit.Sanitise(name))
	}
	return found, err
}

// stat looks at a queue and, if it is used that way, renews its lease; that of a quorum queue it does not [RabbitMQ:
// ttl.html#queue-ttl]. A queue that is gone, which the error says, is taken out of the table.
func (v *VHost) stat(shell *queue.Mailbox, use bool) (d Declared, err error) {
	d.Mailbox = shell
	use = use && shell.Config().Kind != queue.Quorum
	var halt *queue.StoppedError
	gone := shell.Do(func(q *queue.Queue, now hook.Instant) {
		if use {
			q.Touch(now)
		}
		s := q.Stats()
		d.Messages, d.Consumers, halt = s.Ready, s.Consumers, q.Stopped()
	})
	switch {
	case gone != nil:
		v.removeQueue(shell)
		return d, gone
	case halt != nil:
		return d, stopped(halt)
	}
	return d, nil
}

// nameQueue checks the name or makes one up.
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

// checkName refuses a name that the queue cannot have.
func (d *QueueDeclare) checkName() error {
	if d.Restored {
		return checkLength("queue", d.Name)
	}
	return checkNew("queue", d.Name)
}

// equivalentQueue compares a declaration with the queue that exists.
func (v *VHost) equivalentQueue(e queueEntry, d QueueDeclare, args hook.Args) error {
	owner := Owner(0)
	if d.Exclusive {
		owner = d.Owner
	}
	if e.owner() != owner {
		return v.locked(d.Name)
	}
	what, cfg := v.queueName(d.Name), e.mailbox.Config()
	if err := equivalentField(what, "durable", cfg.Durable, d.Durable); err != nil {
		return err
	}
	if err := equivalentField(what, "auto_delete", cfg.AutoDelete, d.AutoDelete); err != nil {
		return err
	}
	for i := range v.arguments {
		a := &v.arguments[i]
		if !supports(a, cfg.Kind) {
			continue
		}
		if err := equivalentArgument(what, a.Name, queueArgument(cfg.Args, a.Name), queueArgument(args, a.Name)); err != nil {
			return err
		}
	}
	return nil
}

// createQueue creates a queue that does not exist. Without a queue and without an error somebody was faster, or changed the
// policies, and it has to be tried again.
func (v *VHost) createQueue(d QueueDeclare, args hook.Args) (Declared, error) {
	p, err := v.profile(d, args)
	if err != nil {
		return Declared{}, err
	}
	if err := v.checkProperties(d, p); err != nil {
		return Declared{}, err
	}
	if p.deadLetters && d.Allow != nil {
		if err := d.Allow(p.deadLetterTo); err != nil {
			return Declared{}, err
		}
	}
	if d.Durable && v.definitionLog != nil {
		shell, err := v.addDurable(d, p)
		return Declared{Mailbox: shell}, err
	}
	shell, err := v.addQueue(d, p)
	return Declared{Mailbox: shell}, err
}

// checkProperties refuses what a quorum queue cannot be.
func (v *VHost) checkProperties(d QueueDeclare, p *profile) error {
	if p.Kind != queue.Quorum {
		return nil
	}
	const wrong = "invalid property '%s' for %s"
	switch {
	case d.AutoDelete:
		return refuse(Precondition, wrong, "auto-delete", v.queueName(d.Name))
	case d.Exclusive:
		return refuse(Precondition, wrong, "exclusive-owner", v.queueName(d.Name))
	case !d.Durable:
		return refuse(Precondition, wrong, "non-durable", v.queueName(d.Name))
	}
	return nil
}

// addQueue puts a new queue into the table; nil if the name is taken, or the policies have changed since the profile was
// made.
func (v *VHost) addQueue(d QueueDeclare, p *profile) (*queue.Mailbox, error) {
	cfg := p.config(d)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.checkUndelivered(d.Name); err != nil {
		return nil, err
	}
	if !v.awaitName(d.Name) || p.epoch != v.epoch.Load() {
		return nil, nil
	}
	if err := v.checkQueueLimit(d.Name); err != nil {
		return nil, err
	}
	shell := queue.NewMailbox(cfg, v.chain, v.QueueHost(), v.clock)
	if d.Exclusive {
		v.addToTable(shell, d.Owner)
		return shell, nil
	}
	v.addToTable(shell, 0)
	return shell, nil
}

// addToTable puts a queue into the table. It came to be under the lock, which the caller holds, so that one whose time is up at
// once is in the table before it says that it is gone.
func (v *VHost) addToTable(shell *queue.Mailbox, owner Owner) {
	e := queueEntry{mailbox: shell}
	if owner != 0 {
		e.extend().owner = owner
		v.addExclusive(e)
	}
	v.queues[shell.Config().Name] = e
	v.churn.created.Add(1)
	v.peak = max(v.peak, len(v.queues))
	if v.unroutedName.Load() {
		v.invalidateRoutes()
	}
}
