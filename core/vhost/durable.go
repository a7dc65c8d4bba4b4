package vhost

import (
	"errors"
	"fmt"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/policies"
)

// DefinitionLog is where a vhost's definitions are written.
type DefinitionLog interface {
	definition.Log
	// NewStorage chooses a number for a new durable queue, and a log for its messages.
	NewStorage() *queue.Storage
}

// A change of what is durable is in force once it is durable: nobody has seen anything of one that cannot be made so. It is
// checked and written with mu held, awaited without, and carried out with mu held again. What changes in between must not
// contradict what was written. So changes that remove or replace something are made one at a time; those that only add
// something, of which clients make many when they start, share the wait for the disk.
//
// A queue that is deleted, by whatever, goes first and is written after: its messages are not to be had by anybody who takes
// the deletion for failed. What goes with it, bindings and exchanges that delete themselves, goes with it.

// changeMode is how a change keeps others away until it is made.
type changeMode uint8

const (
	notDurableChange changeMode = iota // it does not: nothing of it is durable
	additive                           // it only adds, or contradicts nothing that others add
	exclusive                          // it removes or replaces
)

// changeLock is who makes changes of what is durable. The vhost's mu guards it.
type changeLock struct {
	ended     sync.Cond // broadcast when somebody has made a change
	adding    int       // changes that add something
	exclusive bool      // there is one that does more
	waiting   int       // of those, how many wait for their turn
}

// begin waits for the turn of a change. The caller holds mu, if not all the time.
func (c *changeLock) begin(h changeMode) {
	switch h {
	case notDurableChange:
	case additive:
		for c.exclusive || c.waiting > 0 {
			c.ended.Wait()
		}
		c.adding++
	case exclusive:
		c.waiting++
		for c.exclusive || c.adding > 0 {
			c.ended.Wait()
		}
		c.waiting--
		c.exclusive = true
	}
}

func (c *changeLock) end(h changeMode) {
	switch h {
	case notDurableChange:
		return
	case additive:
		c.adding--
	case exclusive:
		c.exclusive = false
	}
	c.ended.Broadcast()
}

// change makes a change. All functions are called with mu held. of says how it keeps others away. plan checks it and notes
// its definitions, if there are any; when they are durable, apply carries it out. Definitions that apply notes are of what
// followed; they are durable, too, when change returns. Without apply there is nothing to do.
func (v *VHost) change(of func() changeMode, plan func() (apply func() error, err error)) error {
	defer v.CompactDefinitions()
	followed, err := v.changeLocked(of, plan)
	if err != nil {
		return err
	}
	return v.awaitDurable(followed)
}

func (v *VHost) changeLocked(of func() changeMode, plan func() (apply func() error, err error)) (followed bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := of()
	if v.definitionLog == nil {
		h = notDurableChange
	}
	v.changes.begin(h)
	defer v.changes.end(h)
	apply, err := plan()
	if err != nil || apply == nil {
		return false, err
	}
	if v.write() {
		v.mu.Unlock()
		err = v.awaitDurable(true)
		v.mu.Lock()
	}
	if err != nil {
		return false, err
	}
	err = apply()
	return v.write(), err
}

func fixedMode(h changeMode) func() changeMode { return func() changeMode { return h } }

// modeFor is the hold of a change of an exchange or of its bindings: with one that is not durable others may go that are.
func (v *VHost) modeFor(exchange string, h changeMode) func() changeMode {
	return func() changeMode {
		if x := v.exchanges[exchange]; x != nil && (x.Durable || len(x.sources) > 0) {
			return h
		}
		return notDurableChange
	}
}

// pendingQueue is a durable queue that is defined and not in the table: it will be there as soon as its definition is durable, or
// was, and the definition goes once its dead letters have arrived elsewhere. Until then no other has the name.
type pendingQueue struct {
	config *queue.Config
	done   chan struct{} // closed when the queue is in the table, or will not be
	err    error         // why the definition stays
}

// logDefinition adds a definition to those of the change at hand. The caller holds mu.
func (v *VHost) logDefinition(def amqp.Table) { v.unwritten = amqp.AppendTable(v.unwritten, def) }

// write writes what was noted, all at once, and reports whether there was anything. The caller holds mu.
func (v *VHost) write() bool {
	written := len(v.unwritten) > 0 && !v.deleted
	if written {
		v.definitionLog.Write(v.unwritten)
	}
	v.unwritten = v.unwritten[:0]
	return written
}

// unlock ends a change that is in force before it is durable.
func (v *VHost) unlock() {
	v.write()
	v.mu.Unlock()
}

// awaitDurable waits until a change of something durable is durable itself.
func (v *VHost) awaitDurable(durable bool) error {
	if !durable || v.definitionLog == nil {
		return nil
	}
	if err := v.definitionLog.WaitDurable(); err != nil {
		v.FailDefinitions(err)
		return v.notDurable(err)
	}
	return nil
}

// FailDefinitions notes that nothing durable can be changed any more. Queues stay then.
func (v *VHost) FailDefinitions(err error) { v.failure.CompareAndSwap(nil, &err) }

// checkDefinitionLog returns an error if nothing durable can be changed any more.
func (v *VHost) checkDefinitionLog() error {
	if err := v.failure.Load(); err != nil {
		return v.notDurable(*err)
	}
	return nil
}

// isLogged reports whether an exchange is written down.
func (v *VHost) isLogged(x *exchange) bool { return v.definitionLog != nil && x.Durable }

// isBindingLogged reports whether a binding is: both of its ends must be.
func (v *VHost) isBindingLogged(x *exchange, to destination) bool {
	if to.exchange != nil {
		return v.isLogged(x) && to.exchange.Durable
	}
	return v.isLogged(x) && to.queue.Config().Storage != nil
}

// addDurable writes a queue down and puts it into the table when that is durable. Without a queue and without an error
// somebody was faster.
func (v *VHost) addDurable(d QueueDeclare, p *profile) (*queue.Mailbox, error) {
	cfg := p.config(d)
	cfg.Storage = v.definitionLog.NewStorage()
	if err := cfg.Storage.Journal.Err(); err != nil {
		return nil, stopped(&queue.StoppedError{VHost: v.name, Queue: d.Name, Shard: cfg.Storage.Shard, Err: err})
	}
	defer v.CompactDefinitions()
	c, err := v.reserve(cfg, p)
	if c == nil {
		return nil, err
	}
	err = v.awaitDurable(true)
	return v.addReserved(c, err), err
}

// reserve reserves the name of a queue that is coming, a change that ends when it has arrived. It returns nil, but not
// before that one is there, if the name is taken, and if the policies have changed since the profile was made.
func (v *VHost) reserve(cfg *queue.Config, p *profile) (*pendingQueue, error) {
	v.mu.Lock()
	defer v.unlock()
	if err := v.checkUndelivered(cfg.Name); err != nil {
		return nil, err
	}
	if !v.awaitName(cfg.Name) { // which may take as long as the disk is full, and is nothing that others are to wait for
		return nil, nil
	}
	v.changes.begin(additive)
	if v.isTaken(cfg.Name) || p.epoch != v.epoch.Load() {
		v.changes.end(additive)
		return nil, nil
	}
	if err := v.checkQueueLimit(cfg.Name); err != nil {
		v.changes.end(additive)
		return nil, err
	}
	c := &pendingQueue{config: cfg, done: make(chan struct{})}
	v.addPending(c)
	v.logDefinition(v.defineQueue(cfg))
	return c, nil
}

// addReserved puts a queue that was coming into the table, unless it could not be made durable.
func (v *VHost) addReserved(c *pendingQueue, err error) *queue.Mailbox {
	v.mu.Lock()
	defer v.unlock()
	defer close(c.done)
	defer v.changes.end(additive)
	delete(v.pending, c.config.Name)
	if err != nil || v.deleted {
		return nil
	}
	cfg := c.config
	if applied := v.policies.Load().Match(subject(cfg)); applied != cfg.Policies {
		cfg = reconfigured(cfg, v.newProfile(cfg.Args, applied))
	}
	shell := queue.NewMailbox(cfg, v.chain, v.QueueHost(), v.clock)
	v.addToTable(shell, 0)
	return shell
}

// logDeletion deletes the definition of a queue that is gone: at once, or when the last of the messages that it gave up has
// arrived, as a restart would look for it in the queue until then. In that case what it returns says when. The caller holds mu.
func (v *VHost) logDeletion(s *queue.Mailbox) *pendingQueue {
	c := &pendingQueue{config: s.Config(), done: make(chan struct{})}
	if !s.AfterDeadLetters(func(err error) { v.finishDeletion(c, err) }) {
		v.logDefinition(v.defineName(opDeleteQueue, c.config.Name))
		return nil
	}
	v.addPending(c)
	return c
}

// finishDeletion ends what undefine began. With an error the definition stays, and nobody else gets the name: a restart finds the queue
// with what has not arrived.
func (v *VHost) finishDeletion(c *pendingQueue, err error) {
	v.mu.Lock()
	if c.err = err; err == nil {
		delete(v.pending, c.config.Name)
		v.logDefinition(v.defineName(opDeleteQueue, c.config.Name))
	}
	v.unlock()
	close(c.done)
	if err != nil && !errors.Is(err, journal.ErrClosed) {
		v.log.Error("a queue is gone, but will be back after a restart: messages that it dead-lettered could not be written",
			"queue", c.config.Name, "error", err)
	}
}

// addPending reserves the name of a queue. The caller holds mu.
func (v *VHost) addPending(c *pendingQueue) {
	if v.pending == nil {
		v.pending = map[string]*pendingQueue{}
	}
	v.pending[c.config.Name] = c
}

// checkUndelivered returns why no queue may have that name until the broker is started again, nil if one may. The caller holds mu.
func (v *VHost) checkUndelivered(name string) error {
	if c := v.pending[name]; c != nil && c.err != nil {
		return v.undelivered(name, c.err)
	}
	return nil
}

// awaitName reports whether a queue may have that name. If one is coming by it, or going, it waits until that is over; the caller holds
// mu, and holds it again when it returns.
func (v *VHost) awaitName(name string) bool {
	if c := v.pending[name]; c != nil {
		v.mu.Unlock()
		<-c.done
		v.mu.Lock()
		return false
	}
	return !v.isTaken(name)
}

// isTaken reports whether a queue has that name, or is coming by it, or going. The caller holds mu.
func (v *VHost) isTaken(name string) bool {
	_, there := v.queues[name]
	return there || v.pending[name] != nil
}

// Restore makes what definitions say. Nobody else may use the vhost yet. place returns the place a queue has its messages
// in, by its number. The queues that are made are returned: a [queue.Replayer] is to fill and start them.
func (v *VHost) Restore(d *Definitions, place func(id uint64) (*queue.Storage, error)) ([]*queue.Mailbox, error) {
	v.policies.Store(d.policies)
	v.metadata, v.parameters = d.metadata, d.parameters
	v.applyLimits()
	for name, x := range d.exchanges {
		if v.exchanges[name] == nil {
			v.exchanges[name] = newExchange(x.Exchange)
		}
		v.exchanges[name].applyPolicies(d.policies)
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
	p := v.cachedProfile(key)
	if p == nil {
		p = v.newProfile(args, key.policies)
		v.cacheProfile(key, p)
	}
	cfg := p.config(QueueDeclare{Name: q.name, Durable: true, AutoDelete: q.autoDelete})
	cfg.Storage = r
	shell := queue.NewPausedMailbox(cfg, v.chain, v.QueueHost(), v.clock)
	v.addToTable(shell, 0)
	return shell
}

func (v *VHost) restoreBindings(x *exchange, from *definedExchange) {
	if from.table == nil {
		return
	}
	for b := range from.table.All() {
		to := destination{exchange: v.exchanges[b.Destination.name]}
		if !b.Destination.exchange {
			to = destination{queue: v.queues[b.Destination.name].mailbox}
		}
		if x.table.Add(b.Key, b.Args, to) {
			v.bindings++
		}
		v.link(x, to)
	}
}
