package vhost

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/sdk/hook"
)

// queueEntry is a queue in the table. Most queues need no extras.
type queueEntry struct {
	mailbox *queue.Mailbox
	extras  *queueExtras // nil until the queue has any
}

// queueExtras are fields for exclusive and bound queues only.
type queueExtras struct {
	owner   Owner
	sources []*exchange // exchanges with bindings to the queue
}

func (e *queueEntry) extend() *queueExtras {
	if e.extras == nil {
		e.extras = &queueExtras{}
	}
	return e.extras
}

func (e queueEntry) owner() Owner {
	if e.extras == nil {
		return 0
	}
	return e.extras.owner
}

func (v *VHost) lookup(name string) (queueEntry, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e, ok := v.queues[name]
	return e, ok
}

// checkExclusive refuses other connections' exclusive queues.
func (v *VHost) checkExclusive(name string, e queueEntry, owner Owner) error {
	if o := e.owner(); o != 0 && o != owner {
		return v.locked(name)
	}
	return nil
}

// Queue returns a queue that owner may use. If a method of the mailbox later reports [queue.ErrGone], the queue has been deleted:
// see [VHost.NoQueue].
func (v *VHost) Queue(name string, owner Owner) (*queue.Mailbox, error) {
	name = rabbit.Sanitise(name)
	e, ok := v.lookup(name)
	if !ok {
		return nil, v.NoQueue(name)
	}
	if err := v.checkExclusive(name, e, owner); err != nil {
		return nil, err
	}
	return e.mailbox, nil
}

// Mailbox returns a queue, whichever connection owns it; nil if it does not exist.
func (v *VHost) Mailbox(name string) *queue.Mailbox {
	e, _ := v.lookup(name)
	return e.mailbox
}

// OwnerOf returns the connection that owns an exclusive queue; 0 for any other queue.
func (v *VHost) OwnerOf(queue string) Owner {
	e, _ := v.lookup(queue)
	return e.owner()
}

// Mailboxes returns all queues in no particular order. Some may be deleted by the time they are used.
func (v *VHost) Mailboxes() []*queue.Mailbox {
	v.mu.RLock()
	defer v.mu.RUnlock()
	all := make([]*queue.Mailbox, 0, len(v.queues))
	for _, e := range v.queues {
		all = append(all, e.mailbox)
	}
	return all
}

// Queues returns all queues, sorted by name. Some may be deleted by the time they are used.
func (v *VHost) Queues() []*queue.Mailbox {
	all := v.Mailboxes()
	slices.SortFunc(all, func(a, b *queue.Mailbox) int { return strings.Compare(a.Config().Name, b.Config().Name) })
	return all
}

// run runs fn on a queue's turn. It fails if the queue has stopped or, with [queue.ErrGone], if it is deleted; then the queue is
// removed from the table, too.
func (v *VHost) run(m *queue.Mailbox, fn func(q *queue.Queue, now hook.Instant)) error {
	var halt *queue.StoppedError
	err := m.Do(func(q *queue.Queue, now hook.Instant) {
		if halt = q.Stopped(); halt == nil {
			fn(q, now)
		}
	})
	switch {
	case err != nil:
		v.removeQueue(m)
		return err
	case halt != nil:
		return v.stopped(halt)
	}
	return nil
}

// PurgeQueue drops the ready messages of a queue and returns how many there were.
func (v *VHost) PurgeQueue(name string, owner Owner) (messages int, err error) {
	m, err := v.Queue(name, owner)
	if err != nil {
		return 0, err
	}
	err = v.run(m, func(q *queue.Queue, now hook.Instant) { messages = q.Purge(now) })
	return messages, v.orNoQueue(m, err)
}

// orNoQueue returns err, or the error for a queue that does not exist in place of [queue.ErrGone].
func (v *VHost) orNoQueue(m *queue.Mailbox, err error) error {
	if errors.Is(err, queue.ErrGone) {
		return v.NoQueue(m.Config().Name)
	}
	return err
}

// DeleteQueue deletes a queue and returns how many ready messages it had. The queue need not exist.
func (v *VHost) DeleteQueue(name string, owner Owner, ifUnused, ifEmpty bool) (messages int, err error) {
	if err := v.checkMoved(); err != nil {
		return 0, err
	}
	name = rabbit.Sanitise(name)
	e, ok := v.lookup(name)
	if !ok {
		return 0, nil
	}
	if err := v.checkExclusive(name, e, owner); err != nil {
		return 0, err
	}
	durable := e.mailbox.Config().Storage != nil
	if durable {
		if err := v.checkDefinitionLog(); err != nil {
			return 0, err
		}
	}
	if e.mailbox.Do(func(q *queue.Queue, _ hook.Instant) { messages, err = q.Delete(ifUnused, ifEmpty) }) != nil {
		err = nil // deleted already
	}
	switch {
	case errors.Is(err, queue.ErrInUse):
		return 0, refuse(Precondition, "%s in use", v.queueName(name))
	case errors.Is(err, queue.ErrNotEmpty):
		return 0, refuse(Precondition, "%s not empty", v.queueName(name))
	}
	pending := v.removeQueue(e.mailbox)
	defer v.CompactDefinitions()
	if pending != nil {
		<-pending.done
		if pending.err != nil {
			return messages, interrupted(v.undelivered(name, pending.err))
		}
	}
	return messages, v.awaitDurable(durable)
}

// deleteQueue deletes a queue unconditionally. An error of Do means that it is deleted already.
func (v *VHost) deleteQueue(m *queue.Mailbox) {
	_ = m.Do(func(q *queue.Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
	v.removeQueue(m)
}

// addToTable adds a queue, with its owner if it is exclusive. The caller holds mu since before it made the queue: so a queue that expires
// at once is in the table before it reports its deletion.
func (v *VHost) addToTable(m *queue.Mailbox, owner Owner) {
	e := queueEntry{mailbox: m}
	if owner != 0 {
		e.extend().owner = owner
		if v.exclusive[owner] == nil {
			v.exclusive[owner] = map[*queue.Mailbox]struct{}{}
		}
		v.exclusive[owner][m] = struct{}{}
	}
	v.queues[m.Config().Name] = e
	v.churn.created.Add(1)
	v.peak = max(v.peak, len(v.queues))
	if v.unroutedName.Load() {
		v.invalidateRoutes()
	}
}

// removeQueue removes a deleted queue from the table, with its bindings. It does nothing if that has been done, even if there is another
// queue of that name by now. If the deletion is not logged at once, it returns the pending queue to wait for.
func (v *VHost) removeQueue(m *queue.Mailbox) *pendingQueue {
	v.mu.Lock()
	defer v.unlock()
	name := m.Config().Name
	e := v.queues[name]
	if e.mailbox != m {
		return nil
	}
	var pending *pendingQueue
	if m.Config().Storage != nil {
		pending = v.logDeletion(m)
	}
	delete(v.queues, name)
	v.churn.deleted.Add(1)
	v.shrink()
	v.invalidateRoutes()
	if e.extras == nil {
		return pending
	}
	owned := v.exclusive[e.extras.owner]
	if delete(owned, m); len(owned) == 0 {
		delete(v.exclusive, e.extras.owner)
	}
	for _, x := range e.extras.sources {
		v.bindings -= x.table.RemoveDestination(destination{queue: m})
		v.noteLastBinding(x)
		if x.isUnused() {
			v.removeExchange(x, nil)
		}
	}
	return pending
}

// shrink rebuilds the table when few of many queues are left, because a map never gives memory back. The caller holds mu.
func (v *VHost) shrink() {
	const small = 1024
	if v.peak <= small || len(v.queues) > v.peak/8 {
		return
	}
	queues := make(map[string]queueEntry, 2*len(v.queues))
	maps.Copy(queues, v.queues)
	v.queues, v.peak = queues, len(queues)
}
