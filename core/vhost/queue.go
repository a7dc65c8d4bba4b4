package vhost

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// queues makes and deletes queues, and logs the durable ones. The topology has the table of queues.
type queues struct {
	*rules
	topology    *topology
	changes     *changes
	description *description
	parameters  *Parameters
	policies    *policyTable
	exchanges   *exchanges
	broker      *queue.Broker
	clock       clock.Clock
	host        queue.Host
	log         *slog.Logger

	pending map[string]*pendingQueue // by name; the topology's lock guards it
	churn   churnCounters
}

// pendingQueue is a durable queue that is defined but not in the table. It has its name to itself. A new queue is added to the
// table when its definition is durable; the definition of a deleted one is removed when its last dead letters have arrived.
type pendingQueue struct {
	config *queue.Config
	done   chan struct{} // closed when the queue is added, or will not be, or is removed
	err    error         // why the definition of a deleted queue stays
}

func newPending(cfg *queue.Config) *pendingQueue {
	return &pendingQueue{config: cfg, done: make(chan struct{})}
}

// run runs fn on a queue's turn. It fails if the queue has stopped or, with [queue.ErrGone], if it is deleted; then the queue is
// removed from the table, too.
func (qs *queues) run(m *queue.Mailbox, fn func(q *queue.Queue, now hook.Instant)) error {
	var halt *queue.StoppedError
	err := m.Do(func(q *queue.Queue, now hook.Instant) {
		if halt = q.Stopped(); halt == nil {
			fn(q, now)
		}
	})
	switch {
	case err != nil:
		qs.remove(m)
		return err
	case halt != nil:
		return qs.stopped(halt)
	}
	return nil
}

// orNoQueue returns err, or the error for a queue that does not exist in place of [queue.ErrGone].
func (qs *queues) orNoQueue(m *queue.Mailbox, err error) error {
	if errors.Is(err, queue.ErrGone) {
		return qs.topology.life.NoQueue(m.Config().Name)
	}
	return err
}

// PurgeQueue drops the ready messages of a queue and returns how many there were.
func (qs *queues) PurgeQueue(name string, owner Owner) (messages int, err error) {
	m, err := qs.topology.Queue(name, owner)
	if err != nil {
		return 0, err
	}
	err = qs.run(m, func(q *queue.Queue, now hook.Instant) { messages = q.Purge(now) })
	return messages, qs.orNoQueue(m, err)
}

// DeleteQueue deletes a queue and returns how many ready messages it had. The queue need not exist.
func (qs *queues) DeleteQueue(name string, owner Owner, ifUnused, ifEmpty bool) (messages int, err error) {
	if err := qs.topology.life.checkMoved(); err != nil {
		return 0, err
	}
	name = rabbit.Sanitise(name)
	e, ok := qs.topology.lookup(name)
	if !ok {
		return 0, nil
	}
	if err := qs.checkExclusive(name, e, owner); err != nil {
		return 0, err
	}
	durable := e.mailbox.Config().Storage != nil
	if durable {
		if err := qs.changes.check(); err != nil {
			return 0, err
		}
	}
	if e.mailbox.Do(func(q *queue.Queue, _ hook.Instant) { messages, err = q.Delete(ifUnused, ifEmpty) }) != nil {
		err = nil // deleted already
	}
	switch {
	case errors.Is(err, queue.ErrInUse):
		return 0, refuse(Precondition, "%s in use", qs.queueName(name))
	case errors.Is(err, queue.ErrNotEmpty):
		return 0, refuse(Precondition, "%s not empty", qs.queueName(name))
	}
	pending := qs.remove(e.mailbox)
	defer qs.changes.CompactDefinitions()
	if pending != nil {
		<-pending.done
		if pending.err != nil {
			return messages, interrupted(qs.undelivered(name, pending.err))
		}
	}
	return messages, qs.changes.awaitDurable(durable)
}

// drop deletes a queue unconditionally. An error of Do means that it is deleted already.
func (qs *queues) drop(m *queue.Mailbox) {
	_ = m.Do(func(q *queue.Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
	qs.remove(m)
}

// make makes a queue and adds it to the table, with its owner if it is exclusive. The caller holds mu since before the queue is made: so a
// queue that expires at once is in the table before it reports its deletion.
func (qs *queues) make(cfg *queue.Config, owner Owner) *queue.Mailbox {
	return qs.add(qs.broker.NewMailbox(cfg, qs.chain, qs.host, qs.clock), owner)
}

func (qs *queues) add(m *queue.Mailbox, owner Owner) *queue.Mailbox {
	qs.topology.addQueue(m, owner)
	qs.churn.created.Add(1)
	return m
}

// remove removes a deleted queue from the table, with its bindings. It does nothing if that has been done, even if there is another
// queue of that name by now. If the deletion is not logged at once, it returns the pending queue to wait for.
func (qs *queues) remove(m *queue.Mailbox) *pendingQueue {
	qs.topology.mu.Lock()
	defer qs.changes.unlock()
	if e, _ := qs.topology.queues.get(m.Config().Name); e.mailbox != m {
		return nil
	}
	var pending *pendingQueue
	if m.Config().Storage != nil {
		pending = qs.logDeletion(m)
	}
	sources := qs.topology.removeQueue(m)
	qs.churn.deleted.Add(1)
	for _, x := range sources {
		qs.exchanges.loseDestination(x, destination{queue: m})
	}
	return pending
}

// logDeletion removes the definition of a deleted queue: at once or, if it has dead letters under way, when the last of them has arrived,
// because until then a restart must find the queue that still has them. In that case it returns the pending queue to wait for. The caller
// holds mu.
func (qs *queues) logDeletion(m *queue.Mailbox) *pendingQueue {
	p := newPending(m.Config())
	finish := func(err error) {
		qs.finishDeletion(p, err)
		if p.err == nil {
			qs.changes.letGo(m)
		}
	}
	if !m.AfterDeadLetters(finish) {
		qs.changes.add(qs.changes.defineName(opDeleteQueue, p.config.Name))
		qs.changes.letGo(m)
		return nil
	}
	return qs.addPending(p)
}

// finishDeletion ends a deletion that logDeletion has begun. After an error the definition and the reservation of the name stay: a restart
// restores the queue with the dead letters that did not arrive.
func (qs *queues) finishDeletion(p *pendingQueue, err error) {
	err = qs.removePending(p, err)
	close(p.done)
	if err != nil && !errors.Is(err, journal.ErrClosed) && !errors.Is(err, wlog.ErrNotOwner) {
		qs.log.Error("a queue is gone, but will be back after a restart: messages that it dead-lettered could not be written",
			"queue", p.config.Name, "error", err)
	}
}

// removePending removes the definition of a deleted queue, unless there is an error, which it returns.
func (qs *queues) removePending(p *pendingQueue, err error) error {
	qs.topology.mu.Lock()
	defer qs.changes.unlock()
	if err == nil {
		err = qs.topology.life.checkMoved()
	}
	if p.err = err; err == nil {
		delete(qs.pending, p.config.Name)
		qs.changes.add(qs.changes.defineName(opDeleteQueue, p.config.Name))
	}
	return err
}

// restore makes a queue that was declared before. Its arguments are not checked again: the queue stays, even if a plugin
// no longer accepts them.
func (qs *queues) restore(q definedQueue, s *queue.Storage) *queue.Mailbox {
	p, _ := qs.policies.profileFor(q.name, q.args, hookArgs(q.args), false)
	cfg := p.config(QueueDeclare{Name: q.name, Durable: true, AutoDelete: q.autoDelete})
	cfg.Storage = s
	return qs.add(qs.broker.NewPausedMailbox(cfg, qs.chain, qs.host, qs.clock), 0)
}

// definers returns functions that append the definitions of the durable queues, with their bindings. The caller, and theirs, holds mu.
func (qs *queues) definers() (all []definitionAppender) {
	for name, e := range qs.topology.queues.all() {
		if e.mailbox.Config().Storage != nil {
			all = append(all, func(b []byte) []byte { return qs.appendDefinition(b, name) })
		}
	}
	for name := range qs.pending { // none is new, because no change is under way, but some may be about to be deleted
		all = append(all, func(b []byte) []byte { return qs.appendDefinition(b, name) })
	}
	return all
}

// appendDefinition appends a durable queue with its bindings, or a pending one.
func (qs *queues) appendDefinition(b []byte, name string) []byte {
	if p := qs.pending[name]; p != nil {
		return amqp.AppendTable(b, qs.changes.defineQueue(p.config))
	}
	e, _ := qs.topology.queues.get(name)
	if e.mailbox == nil || e.mailbox.Config().Storage == nil {
		return b
	}
	b = amqp.AppendTable(b, qs.changes.defineQueue(e.mailbox.Config()))
	return qs.exchanges.appendBindings(b, destination{queue: e.mailbox})
}

// Churn returns the current counts.
func (qs *queues) Churn() Churn { return qs.churn.read() }

// churnCounters is Churn while it grows.
type churnCounters struct{ declared, created, deleted atomic.Uint64 }

func (c *churnCounters) read() Churn {
	return Churn{c.declared.Load(), c.created.Load(), c.deleted.Load()}
}
