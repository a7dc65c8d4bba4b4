package vhost

import (
	"errors"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// DefinitionLog is where a vhost's definitions are written.
type DefinitionLog interface {
	definition.Log
	// NewStorage assigns a number to a new durable queue, and a log to its messages.
	NewStorage() *queue.Storage
}

// A change of something durable takes effect when it is durable. If it cannot be made durable, no other caller has seen any of it. It is
// checked and logged with mu held, awaited without, and applied with mu held again. Changes that take effect in between must not contradict
// the log. So changes that remove or replace something are made one at a time; changes that only add something, of which clients make many
// when they start, wait for the disk together.
//
// The deletion of a queue is the exception: the queue is deleted first, with its bindings and the exchanges that are deleted with those,
// and logged afterwards. A client that takes the deletion for failed must not get its messages.

// changeMode says which other changes may run at the same time.
type changeMode uint8

const (
	notDurableChange changeMode = iota // any: nothing of it is durable
	additive                           // additive ones
	exclusive                          // none
)

// changeLock is a lock for changes of durable objects. mu of the vhost guards it. It is no mutex, because its holders wait for the disk:
// the simulated clock of tests does not advance while goroutines wait for a mutex.
type changeLock struct {
	ended     sync.Cond // broadcast when a change ends
	adding    int       // additive changes
	exclusive bool      // there is an exclusive change
	waiting   int       // exclusive changes that wait to begin
}

// begin waits until a change may run. The caller holds mu, which is released while it waits.
func (c *changeLock) begin(m changeMode) {
	switch m {
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

func (c *changeLock) end(m changeMode) {
	switch m {
	case notDurableChange:
		return
	case additive:
		c.adding--
	case exclusive:
		c.exclusive = false
	}
	c.ended.Broadcast()
}

// change makes a change. All its functions are called with mu held. plan checks the change and logs its definitions, if any; when
// those are durable, apply makes it. A nil apply means there is nothing to do. Definitions that apply logs are durable, too, when
// change returns.
func (v *VHost) change(mode func() changeMode, plan func() (apply func(), err error)) error {
	defer v.CompactDefinitions()
	logged, err := v.changeLocked(mode, plan)
	if err != nil {
		return err
	}
	return v.awaitDurable(logged)
}

// changeLocked reports whether apply logged anything.
func (v *VHost) changeLocked(mode func() changeMode, plan func() (apply func(), err error)) (logged bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := mode()
	if v.definitionLog == nil {
		m = notDurableChange
	}
	v.changes.begin(m)
	defer v.changes.end(m)
	if err := v.checkMoved(); err != nil {
		return false, err
	}
	apply, err := plan()
	if err != nil || apply == nil {
		return false, err
	}
	if v.write() {
		v.mu.Unlock()
		err = v.awaitDurable(true)
		v.mu.Lock()
	}
	if err == nil {
		err = interrupted(v.moved.Load())
	}
	if err != nil {
		return false, err
	}
	apply()
	return v.write(), nil
}

func fixedMode(m changeMode) func() changeMode { return func() changeMode { return m } }

// modeFor returns the mode of a change of an exchange or of its bindings. A transient exchange counts as durable while other exchanges have
// bindings to it, because they may be deleted with it.
func (v *VHost) modeFor(exchange string, m changeMode) func() changeMode {
	return func() changeMode {
		if x := v.exchanges[exchange]; x != nil && (x.Durable || len(x.sources) > 0) {
			return m
		}
		return notDurableChange
	}
}

// logDefinition adds a definition to the current change. The caller holds mu.
func (v *VHost) logDefinition(def amqp.Table) { v.unwritten = amqp.AppendTable(v.unwritten, def) }

// logIfDurable is logDefinition for an object that is durable if the vhost has a definition log.
func (v *VHost) logIfDurable(def amqp.Table) {
	if v.definitionLog != nil {
		v.logDefinition(def)
	}
}

// logs reports whether definitions are written. The caller holds mu.
func (v *VHost) logs() bool { return !v.deleted && v.moved.Load() == nil }

// write writes the definitions of the current change together, and reports whether there were any. The caller holds mu.
func (v *VHost) write() bool {
	written := len(v.unwritten) > 0 && v.logs()
	if written {
		v.definitionLog.Write(v.unwritten)
	}
	v.unwritten = v.unwritten[:0]
	return written
}

// unlock ends a change that took effect before it is durable.
func (v *VHost) unlock() {
	defer v.mu.Unlock()
	v.write()
}

// exclusively calls fn with mu held, which a panic of fn releases: a request that panics ends no broker.
func (v *VHost) exclusively(fn func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fn()
}

// awaitDurable waits until a change is durable, if it is one of something durable.
func (v *VHost) awaitDurable(durable bool) error {
	if !durable || v.definitionLog == nil {
		return nil
	}
	if err := v.definitionLog.WaitDurable(); err != nil {
		v.FailDefinitions(err)
		return interrupted(v.notDurable(err))
	}
	return interrupted(v.moved.Load()) // after that nothing was written
}

// FailDefinitions is called when definitions cannot be written any more. The vhost then refuses to delete durable queues.
func (v *VHost) FailDefinitions(err error) { v.failure.CompareAndSwap(nil, &err) }

// checkDefinitionLog returns an error after FailDefinitions.
func (v *VHost) checkDefinitionLog() error {
	if err := v.failure.Load(); err != nil {
		return v.notDurable(*err)
	}
	return nil
}

// isLogged reports whether changes of an exchange are logged.
func (v *VHost) isLogged(x *exchange) bool { return v.definitionLog != nil && x.Durable }

// isBindingLogged reports whether changes of a binding are logged: both ends must be durable.
func (v *VHost) isBindingLogged(x *exchange, to destination) bool {
	if to.exchange != nil {
		return v.isLogged(x) && to.exchange.Durable
	}
	return v.isLogged(x) && to.queue.Config().Storage != nil
}

// pendingQueue is a durable queue that is defined but not in the table. It has its name to itself. A new queue is added to the
// table when its definition is durable; the definition of a deleted one is removed when its last dead letters have arrived.
type pendingQueue struct {
	config *queue.Config
	done   chan struct{} // closed when the queue is added, or will not be, or is removed
	err    error         // why the definition of a deleted queue stays
}

// addDurable logs a queue, and adds it to the table when that is durable. It returns nil as createQueue does.
func (v *VHost) addDurable(d QueueDeclare, p *profile) (*queue.Mailbox, error) {
	cfg := p.config(d)
	cfg.Storage = v.definitionLog.NewStorage()
	if err := v.checkLog(cfg); err != nil {
		return nil, err
	}
	defer v.CompactDefinitions()
	pending, err := v.reserve(cfg, p)
	if pending == nil {
		return nil, err
	}
	err = v.awaitDurable(true)
	return v.addReserved(pending, err), err
}

// reserve reserves the name of a new queue and begins the change that addReserved ends. It returns nil if the policies have changed since
// the profile was made, or if the name is taken; in that case it returns once the queue that has the name is in the table.
func (v *VHost) reserve(cfg *queue.Config, p *profile) (*pendingQueue, error) {
	v.mu.Lock()
	defer v.unlock()
	// Outside the change, because this waits as long as the disk is full, and other changes must not.
	if free, err := v.awaitName(cfg.Name); !free {
		return nil, err
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
	v.logDefinition(v.defineQueue(cfg))
	return v.addPending(newPending(cfg)), nil
}

// addReserved adds a queue to the table, unless its definition is not durable.
func (v *VHost) addReserved(p *pendingQueue, err error) *queue.Mailbox {
	v.mu.Lock()
	defer v.unlock()
	defer close(p.done)
	defer v.changes.end(additive)
	delete(v.pending, p.config.Name)
	if err != nil || !v.logs() {
		return nil
	}
	cfg := p.config
	if applied := v.policies.Load().Match(subject(cfg)); applied != cfg.Policies {
		cfg = reconfigured(cfg, v.newProfile(cfg.Args, applied))
	}
	m := v.broker.NewMailbox(cfg, v.chain, v.QueueHost(), v.clock)
	v.addToTable(m, 0)
	return m
}

// logDeletion removes the definition of a deleted queue: at once or, if it has dead letters under way, when the last of them has arrived,
// because until then a restart must find the queue that still has them. In that case it returns the pending queue to wait for. The caller
// holds mu.
func (v *VHost) logDeletion(m *queue.Mailbox) *pendingQueue {
	p := newPending(m.Config())
	finish := func(err error) {
		v.finishDeletion(p, err)
		if p.err == nil {
			v.letGo(m)
		}
	}
	if !m.AfterDeadLetters(finish) {
		v.logDefinition(v.defineName(opDeleteQueue, p.config.Name))
		v.letGo(m)
		return nil
	}
	return v.addPending(p)
}

// finishDeletion ends a deletion that logDeletion has begun. After an error the definition and the reservation of the name stay: a restart
// restores the queue with the dead letters that did not arrive.
func (v *VHost) finishDeletion(p *pendingQueue, err error) {
	err = v.removePending(p, err)
	close(p.done)
	if err != nil && !errors.Is(err, journal.ErrClosed) && !errors.Is(err, wlog.ErrNotOwner) {
		v.log.Error("a queue is gone, but will be back after a restart: messages that it dead-lettered could not be written",
			"queue", p.config.Name, "error", err)
	}
}

// removePending removes the definition of a deleted queue, unless there is an error, which it returns.
func (v *VHost) removePending(p *pendingQueue, err error) error {
	v.mu.Lock()
	defer v.unlock()
	if err == nil {
		err = v.checkMoved()
	}
	if p.err = err; err == nil {
		delete(v.pending, p.config.Name)
		v.logDefinition(v.defineName(opDeleteQueue, p.config.Name))
	}
	return err
}

// letGo lets the journal forget the messages that it keeps for a deleted queue or schedule that was stopped. The caller
// has logged the deletion with mu held. letGo waits until that is durable, because until then a restart must find the messages.
func (v *VHost) letGo(m *queue.Mailbox) {
	m.LetGo(func() error {
		v.exclusively(func() {}) // the deletion is written now
		return v.awaitDurable(true)
	})
}

func newPending(cfg *queue.Config) *pendingQueue {
	return &pendingQueue{config: cfg, done: make(chan struct{})}
}

// addPending reserves the name of a queue. The caller holds mu.
func (v *VHost) addPending(p *pendingQueue) *pendingQueue {
	v.pending[p.config.Name] = p
	return p
}

// awaitName reports whether a new queue may have a name. While a pending queue has it, awaitName waits, with mu released, and
// then returns false; the caller looks again. An error means that the name stays reserved until the broker is restarted. The caller
// holds mu.
func (v *VHost) awaitName(name string) (free bool, err error) {
	p := v.pending[name]
	switch {
	case p == nil:
		return !v.isTaken(name), nil
	case p.err != nil:
		return false, v.undelivered(name, p.err)
	}
	v.mu.Unlock()
	<-p.done
	v.mu.Lock()
	return false, nil
}

// isTaken reports whether a queue has the name or reserves it. The caller holds mu.
func (v *VHost) isTaken(name string) bool {
	_, exists := v.queues[name]
	return exists || v.pending[name] != nil
}

// StopShard makes the queues of a failed shard notice, and publishers look up routes again. It returns how many queues there are.
func (v *VHost) StopShard(shard uint32) (queues int) {
	v.exclusively(v.invalidateRoutes)
	for _, m := range append(v.Queues(), v.Schedules()...) {
		if s := m.Config().Storage; s != nil && s.Shard == shard {
			queues++
			_ = m.Do(func(*queue.Queue, hook.Instant) {}) // an error means that the queue is deleted
		}
	}
	return queues
}
