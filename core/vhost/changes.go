package vhost

import (
	"iter"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/queue"
)

// DefinitionLog is the log of a vhost's definitions.
type DefinitionLog interface {
	definition.Log
	// NewStorage assigns a number to a new durable queue, and a log to its messages.
	NewStorage() *queue.Storage
}

// A change of a durable object takes effect when it is durable. If it cannot be made
// durable, no other caller has seen any part of it. The change is checked and logged with
// mu held, waits for the disk without mu, and is applied with mu held again. Changes that
// take effect in between must not contradict the log. So changes that remove or replace an
// object are made one at a time. Changes that only add objects wait for the disk together,
// because clients make many of them when they start.
//
// The deletion of a queue is the exception: the queue is deleted first, with its bindings
// and the exchanges that thereby lose their last one, and the deletion is logged
// afterwards. If that fails, the client gets an error, but no longer the queue's messages.

// changes makes the changes of a vhost, and writes the definitions of everything durable.
type changes struct {
	*rules
	definer
	changeLock
	mu   *sync.RWMutex // the topology's, as in other parts of the vhost
	life *life
	log  DefinitionLog           // nil means that nothing is durable
	all  func() iter.Seq[[]byte] // the definitions of everything durable, in parts

	unwritten []byte                // definitions of the current change; mu guards it
	failure   atomic.Pointer[error] // why definitions cannot be written any more; nil while they can
}

// changeMode says which other changes may run at the same time.
type changeMode uint8

const (
	notDurableChange changeMode = iota // all: the change is not durable
	additive                           // additive changes
	exclusive                          // none
)

// changeLock is a lock for changes of durable objects. The lock of the topology guards it.
// It is no mutex, because its holders wait for the disk: the simulated clock of tests does
// not advance while goroutines wait for a mutex.
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

// durable reports whether anything in the vhost is durable.
func (c *changes) durable() bool { return c.log != nil }

// newStorage returns the storage of a new durable queue. The caller has called durable.
func (c *changes) newStorage() *queue.Storage { return c.log.NewStorage() }

// make makes a change. All its functions are called with mu held. plan checks the change
// and logs its definitions, if any; when these are durable, apply carries the change out. A
// nil apply means there is nothing to do. Definitions that apply logs are durable, too,
// when make returns.
func (c *changes) make(mode func() changeMode, plan func() (apply func(), err error)) error {
	defer c.CompactDefinitions()
	logged, err := c.makeLocked(mode, plan)
	if err != nil {
		return err
	}
	return c.awaitDurable(logged)
}

// makeLocked reports whether apply logged anything.
func (c *changes) makeLocked(mode func() changeMode, plan func() (apply func(), err error)) (logged bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := mode()
	if !c.durable() {
		m = notDurableChange
	}
	c.begin(m)
	defer c.end(m)
	if err := c.life.checkMoved(); err != nil {
		return false, err
	}
	apply, err := plan()
	if err != nil || apply == nil {
		return false, err
	}
	if c.flush() {
		c.mu.Unlock()
		err = c.awaitDurable(true)
		c.mu.Lock()
	}
	if err == nil {
		err = interrupted(c.life.movedError())
	}
	if err != nil {
		return false, err
	}
	apply()
	return c.flush(), nil
}

func fixedMode(m changeMode) func() changeMode { return func() changeMode { return m } }

// add adds a definition to the current change. The caller holds mu.
func (c *changes) add(def amqp.Table) { c.unwritten = amqp.AppendTable(c.unwritten, def) }

// addIfDurable is add for an object that is durable if the vhost has a definition log.
func (c *changes) addIfDurable(def amqp.Table) {
	if c.durable() {
		c.add(def)
	}
}

// flush writes the definitions of the current change together, and reports whether there were any. The caller holds mu.
func (c *changes) flush() bool {
	written := len(c.unwritten) > 0 && c.life.isServed()
	if written {
		c.log.Write(c.unwritten)
	}
	c.unwritten = c.unwritten[:0]
	return written
}

// unlock unlocks mu after a change that has taken effect and is not durable yet, and writes
// its definitions.
func (c *changes) unlock() {
	defer c.mu.Unlock()
	c.flush()
}

// exclusively calls fn with mu held. It unlocks mu even if fn panics, so that a request
// that panics does not block the vhost.
func (c *changes) exclusively(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn()
}

// awaitDurable waits until a change is durable, if durable is set.
func (c *changes) awaitDurable(durable bool) error {
	if !durable || !c.durable() {
		return nil
	}
	if err := c.log.WaitDurable(); err != nil {
		c.FailDefinitions(err)
		return interrupted(c.notDurable(err))
	}
	return interrupted(c.life.movedError()) // a vhost that has moved has not written the change
}

// FailDefinitions is called when definitions cannot be written any more. The vhost then refuses to delete durable queues.
func (c *changes) FailDefinitions(err error) { c.failure.CompareAndSwap(nil, &err) }

// check returns an error after fail.
func (c *changes) check() error {
	if err := c.failure.Load(); err != nil {
		return c.notDurable(*err)
	}
	return nil
}

func (c *changes) isLogged(x *exchange) bool { return c.durable() && x.Durable }

// isBindingLogged reports whether changes of a binding are logged: both ends must be durable.
func (c *changes) isBindingLogged(x *exchange, to destination) bool {
	if to.exchange != nil {
		return c.isLogged(x) && to.exchange.Durable
	}
	return c.isLogged(x) && to.queue.Config().Storage != nil
}

// letGo lets the journal forget the messages that it keeps for a deleted queue or schedule
// that was stopped. The caller has logged the deletion with mu held. letGo waits until that
// is durable, because until then a restart must find the messages.
func (c *changes) letGo(m *queue.Mailbox) {
	m.LetGo(func() error {
		c.exclusively(func() {}) // the goroutine that logged the deletion has written it by now
		return c.awaitDurable(true)
	})
}

// deleteAll writes that the vhost is deleted, in place of all its definitions, and waits until that is durable.
func (c *changes) deleteAll() error {
	c.log.Rewrite(func(yield func([]byte) bool) { yield(amqp.AppendTable(nil, c.define(opDeleteVHost))) })
	return c.awaitDurable(true)
}

// CompactDefinitions rewrites the log of definitions, if that is worthwhile. The vhost is locked for one part at a time. Nothing
// durable is added between parts; queues may be deleted.
func (c *changes) CompactDefinitions() {
	if c.log == nil || !c.log.NeedsCompaction() {
		return
	}
	needed := false
	c.exclusively(func() {
		c.begin(exclusive)
		needed = c.log.NeedsCompaction() && c.life.isServed() // no other change compacted while this one waited
	})
	defer c.exclusively(func() { c.end(exclusive) })
	if needed {
		c.log.Rewrite(c.all())
	}
}
