package vhost

import (
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/policies"
)

// DefinitionLog keeps what is durable of a vhost. Its methods may be called from any goroutine; only Wait waits for the disk.
type DefinitionLog interface {
	// NewStorage finds a new durable queue a number, and a place for its messages.
	NewStorage() *queue.Storage
	// Write adds definitions, all of them or none, to those that were written before. defs is the caller's again afterwards.
	Write(defs []byte)
	// NeedsCompaction reports whether so much was written that it is worth a Rewrite.
	NeedsCompaction() bool
	// Rewrite replaces all that was written of the vhost so far by what the parts say together, the first of which begins
	// anew: all of it, or, if it comes to nothing, none. A part is written before the next is asked for, and is the caller's
	// again then. What is written between two of them follows the first and comes before the second.
	Rewrite(parts iter.Seq[[]byte])
	// WaitDurable returns when all that was written before is durable. Its error means that nobody knows whether it is.
	WaitDurable() error
}

// A change of what is durable is in force once it is durable: nobody has seen anything of one that cannot be made so. It is
// checked and written with mu held, awaited without, and carried out with mu held again. What changes in between must not
// contradict what was written. So changes that remove or replace something are made one at a time; those that only add
// something, of which clients make many when they start, share the wait for the disk.
//
// A queue that is deleted, by whatever, goes first and is written after: its messages are not to be had by anybody who takes
// the deletion for failed. What goes with it, bindings and exchanges that delete themselves, goes with it.

// hold is how a change keeps others away until it is made.
type hold uint8

const (
	passing hold = iota // it does not: nothing of it is durable
	adding              // it only adds, or contradicts nothing that others add
	alone               // it removes or replaces
)

// changing is who makes changes of what is durable. The vhost's mu guards it.
type changing struct {
	ended  sync.Cond // broadcast when somebody has made a change
	adding int       // changes that add something
	alone  bool      // there is one that does more
	eager  int       // of those, how many wait for their turn
}

// begin waits for the turn of a change. The caller holds mu, if not all the time.
func (c *changing) begin(h hold) {
	switch h {
	case passing:
	case adding:
		for c.alone || c.eager > 0 {
			c.ended.Wait()
		}
		c.adding++
	case alone:
		c.eager++
		for c.alone || c.adding > 0 {
			c.ended.Wait()
		}
		c.eager--
		c.alone = true
	}
}

func (c *changing) end(h hold) {
	switch h {
	case passing:
		return
	case adding:
		c.adding--
	case alone:
		c.alone = false
	}
	c.ended.Broadcast()
}

// change makes a change. All functions are called with mu held. of says how it keeps others away. plan checks it and notes
// its definitions, if there are any; when they are durable, apply carries it out. Definitions that apply notes are of what
// followed; they are durable, too, when change returns. Without apply there is nothing to do.
func (v *VHost) change(of func() hold, plan func() (apply func() error, err error)) error {
	defer v.CompactDefinitions()
	followed, err := v.carryOut(of, plan)
	if err != nil {
		return err
	}
	return v.await(followed)
}

func (v *VHost) carryOut(of func() hold, plan func() (apply func() error, err error)) (followed bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := of()
	if v.keeper == nil {
		h = passing
	}
	v.changing.begin(h)
	defer v.changing.end(h)
	apply, err := plan()
	if err != nil || apply == nil {
		return false, err
	}
	if v.write() {
		v.mu.Unlock()
		err = v.await(true)
		v.mu.Lock()
	}
	if err != nil {
		return false, err
	}
	err = apply()
	return v.write(), err
}

func always(h hold) func() hold { return func() hold { return h } }

// lasting is the hold of a change of an exchange or of its bindings: with one that is not durable others may go that are.
func (v *VHost) lasting(exchange string, h hold) func() hold {
	return func() hold {
		if x := v.exchanges[exchange]; x != nil && (x.Durable || len(x.sources) > 0) {
			return h
		}
		return passing
	}
}

// pendingQueue is a durable queue that is defined and not in the table: it will be there as soon as its definition is durable, or
// was, and the definition goes once its dead letters have arrived elsewhere. Until then no other has the name.
type pendingQueue struct {
	config *queue.Config
	over   chan struct{} // closed when the queue is in the table, or will not be
	err    error         // why the definition stays
}

// logDefinition adds a definition to those of the change at hand. The caller holds mu.
func (v *VHost) logDefinition(def amqp.Table) { v.noted = amqp.AppendTable(v.noted, def) }

// write writes what was noted, all at once, and reports whether there was anything. The caller holds mu.
func (v *VHost) write() bool {
	written := len(v.noted) > 0 && !v.gone
	if written {
		v.keeper.Write(v.noted)
	}
	v.noted = v.noted[:0]
	return written
}

// unlock ends a change that is in force before it is durable.
func (v *VHost) unlock() {
	v.write()
	v.mu.Unlock()
}

// await waits until a change of something durable is durable itself.
func (v *VHost) await(durable bool) error {
	if !durable || v.keeper == nil {
		return nil
	}
	if err := v.keeper.WaitDurable(); err != nil {
		v.Fail(err)
		return v.notDurable(err)
	}
	return nil
}

// Fail notes that nothing durable can be changed any more. Queues stay then.
func (v *VHost) Fail(err error) { v.failure.CompareAndSwap(nil, &err) }

// kept returns an error if nothing durable can be changed any more.
func (v *VHost) kept() error {
	if err := v.failure.Load(); err != nil {
		return v.notDurable(*err)
	}
	return nil
}

// keeps reports whether an exchange is written down.
func (v *VHost) keeps(x *exchange) bool { return v.keeper != nil && x.Durable }

// keepsBinding reports whether a binding is: both of its ends must be.
func (v *VHost) keepsBinding(x *exchange, to destination) bool {
	if to.exchange != nil {
		return v.keeps(x) && to.exchange.Durable
	}
	return v.keeps(x) && to.queue.Config().Storage != nil
}

// addDurable writes a queue down and puts it into the table when that is durable. Without a queue and without an error
// somebody was faster.
func (v *VHost) addDurable(d QueueDeclare, p *profile) (*queue.Mailbox, error) {
	cfg := p.config(d)
	cfg.Storage = v.keeper.NewStorage()
	if err := cfg.Storage.Journal.Err(); err != nil {
		return nil, stopped(&queue.StoppedError{VHost: v.name, Queue: d.Name, Shard: cfg.Storage.Shard, Err: err})
	}
	defer v.CompactDefinitions()
	c, err := v.announce(cfg, p)
	if c == nil {
		return nil, err
	}
	err = v.await(true)
	return v.arrive(c, err), err
}

// announce reserves the name of a queue that is coming, a change that ends when it has arrived. It returns nil, but not
// before that one is there, if the name is taken, and if the policies have changed since the profile was made.
func (v *VHost) announce(cfg *queue.Config, p *profile) (*pendingQueue, error) {
	v.mu.Lock()
	defer v.unlock()
	if err := v.barred(cfg.Name); err != nil {
		return nil, err
	}
	if !v.free(cfg.Name) { // which may take as long as the disk is full, and is nothing that others are to wait for
		return nil, nil
	}
	v.changing.begin(adding)
	if v.taken(cfg.Name) || p.epoch != v.epoch.Load() {
		v.changing.end(adding)
		return nil, nil
	}
	if err := v.admits(cfg.Name); err != nil {
		v.changing.end(adding)
		return nil, err
	}
	c := &pendingQueue{config: cfg, over: make(chan struct{})}
	v.announced(c)
	v.logDefinition(v.defineQueue(cfg))
	return c, nil
}

// arrive puts a queue that was coming into the table, unless it could not be made durable.
func (v *VHost) arrive(c *pendingQueue, err error) *queue.Mailbox {
	v.mu.Lock()
	defer v.unlock()
	defer close(c.over)
	defer v.changing.end(adding)
	delete(v.coming, c.config.Name)
	if err != nil || v.gone {
		return nil
	}
	cfg := c.config
	if applied := v.policies.Load().Match(subject(cfg)); applied != cfg.Policies {
		cfg = reconfigured(cfg, v.newProfile(cfg.Args, applied))
	}
	shell := queue.NewMailbox(cfg, v.chain, v, v.clock)
	v.enter(shell, 0)
	return shell
}

// undefine deletes the definition of a queue that is gone: at once, or when the last of the messages that it gave up has
// arrived, as a restart would look for it in the queue until then. In that case what it returns says when. The caller holds mu.
func (v *VHost) undefine(s *queue.Mailbox) *pendingQueue {
	c := &pendingQueue{config: s.Config(), over: make(chan struct{})}
	if !s.AfterDeadLetters(func(err error) { v.departed(c, err) }) {
		v.logDefinition(v.defineName(opDeleteQueue, c.config.Name))
		return nil
	}
	v.announced(c)
	return c
}

// departed ends what undefine began. With an error the definition stays, and nobody else gets the name: a restart finds the queue
// with what has not arrived.
func (v *VHost) departed(c *pendingQueue, err error) {
	v.mu.Lock()
	if c.err = err; err == nil {
		delete(v.coming, c.config.Name)
		v.logDefinition(v.defineName(opDeleteQueue, c.config.Name))
	}
	v.unlock()
	close(c.over)
	if err != nil && !errors.Is(err, journal.ErrClosed) {
		v.log.Error("a queue is gone, but will be back after a restart: messages that it dead-lettered could not be written",
			"queue", c.config.Name, "error", err)
	}
}

// announced reserves the name of a queue. The caller holds mu.
func (v *VHost) announced(c *pendingQueue) {
	if v.coming == nil {
		v.coming = map[string]*pendingQueue{}
	}
	v.coming[c.config.Name] = c
}

// barred returns why no queue may have that name until the broker is started again, nil if one may. The caller holds mu.
func (v *VHost) barred(name string) error {
	if c := v.coming[name]; c != nil && c.err != nil {
		return v.undelivered(name, c.err)
	}
	return nil
}

// free reports whether a queue may have that name. If one is coming by it, or going, it waits until that is over; the caller holds
// mu, and holds it again when it returns.
func (v *VHost) free(name string) bool {
	if c := v.coming[name]; c != nil {
		v.mu.Unlock()
		<-c.over
		v.mu.Lock()
		return false
	}
	return !v.taken(name)
}

// taken reports whether a queue has that name, or is coming by it, or going. The caller holds mu.
func (v *VHost) taken(name string) bool {
	_, there := v.queues[name]
	return there || v.coming[name] != nil
}

// Restore makes what definitions say. Nobody else may use the vhost yet. place returns the place a queue has its messages
// in, by its number. The queues that are made are returned: a [queue.Replayer] is to fill and start them.
func (v *VHost) Restore(d *Definitions, place func(id uint64) (*queue.Storage, error)) ([]*queue.Mailbox, error) {
	v.policies.Store(d.policies)
	v.metadata, v.parameters = d.metadata, d.parameters
	v.followLimits()
	for name, x := range d.exchanges {
		if v.exchanges[name] == nil {
			v.exchanges[name] = newExchange(x.Exchange)
		}
		v.exchanges[name].follow(d.policies)
	}
	shells := make([]*queue.Mailbox, 0, len(d.queues))
	owners := make(map[uint64]string, len(d.queues)) // of numbers
	for _, q := range d.queues {
		if other, taken := owners[q.id]; taken {
			return nil, fmt.Errorf("queues '%s' and '%s' have the same number, %d", other, q.name, q.id)
		}
		owners[q.id] = q.name
		r, err := place(q.id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.queueName(q.name), err)
		}
		shells = append(shells, v.restoreQueue(q, r))
	}
	for name, x := range d.exchanges {
		v.restoreBindings(v.exchanges[name], x)
	}
	return shells, nil
}

// restoreQueue makes a queue that was declared before. Its arguments were checked then; a plugin that would not take them
// any more does not make it go away.
func (v *VHost) restoreQueue(q definedQueue, r *queue.Storage) *queue.Mailbox {
	args := hookArgs(q.args)
	key := profileKey{encoded(q.args), v.policies.Load().Match(policies.Subject{Name: q.name, Type: queueType(args)})}
	p := v.recall(key)
	if p == nil {
		p = v.newProfile(args, key.policies)
		v.remember(key, p)
	}
	cfg := p.config(QueueDeclare{Name: q.name, Durable: true, AutoDelete: q.autoDelete})
	cfg.Storage = r
	shell := queue.NewPausedMailbox(cfg, v.chain, v, v.clock)
	v.enter(shell, 0)
	return shell
}

func (v *VHost) restoreBindings(x *exchange, from *definedExchange) {
	if from.table == nil {
		return
	}
	for b := range from.table.All() {
		to := destination{exchange: v.exchanges[b.Destination.name]}
		if !b.Destination.exchange {
			to = destination{queue: v.queues[b.Destination.name].shell}
		}
		if x.table.Add(b.Key, b.Args, to) {
			v.bound++
		}
		v.link(x, to)
	}
}
