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

// queueEntry is a queue in the table. Most queues are just that: what only some need is kept apart.
type queueEntry struct {
	mailbox *queue.Mailbox
	extras  *queueExtras
}

// queueExtras is what a queue has that is exclusive or bound to something.
type queueExtras struct {
	owner   Owner
	sources []*exchange // with bindings to the queue
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

// lookup finds a queue by name.
func (v *VHost) lookup(name string) (queueEntry, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e, ok := v.queues[name]
	return e, ok
}

// checkExclusive refuses exclusive queues of other connections.
func (v *VHost) checkExclusive(name string, e queueEntry, owner Owner) error {
	if o := e.owner(); o != 0 && o != owner {
		return v.locked(name)
	}
	return nil
}

// Queue returns a queue that owner may use. A shell that turns out to be gone when it is used means that the queue does not
// exist any more: see [VHost.NoQueue].
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

// do runs fn on the turn of a queue that owner may use. A queue that is gone is taken out of the table.
func (v *VHost) do(name string, owner Owner, fn func(q *queue.Queue, now hook.Instant)) error {
	shell, err := v.Queue(name, owner)
	if err != nil {
		return err
	}
	var halt *queue.StoppedError
	gone := shell.Do(func(q *queue.Queue, now hook.Instant) {
		if halt = q.Stopped(); halt == nil {
			fn(q, now)
		}
	})
	switch {
	case gone != nil:
		v.removeQueue(shell)
		return v.NoQueue(rabbit.Sanitise(name))
	case halt != nil:
		return stopped(halt)
	}
	return nil
}

// PurgeQueue drops the ready messages of a queue and returns how many there were.
func (v *VHost) PurgeQueue(name string, owner Owner) (messages int, err error) {
	err = v.do(name, owner, func(q *queue.Queue, now hook.Instant) { messages = q.Purge(now) })
	return messages, err
}

// DeleteQueue deletes a queue and returns how many ready messages went with it. One that does not exist is as good as
// deleted.
func (v *VHost) DeleteQueue(name string, owner Owner, ifUnused, ifEmpty bool) (messages int, err error) {
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
		err = nil // gone already
	}
	switch {
	case errors.Is(err, queue.ErrInUse):
		return 0, refuse(Precondition, "%s in use", v.queueName(name))
	case errors.Is(err, queue.ErrNotEmpty):
		return 0, refuse(Precondition, "%s not empty", v.queueName(name))
	}
	left := v.removeQueue(e.mailbox)
	defer v.CompactDefinitions()
	if left != nil {
		<-left.done
		if left.err != nil {
			return messages, v.undelivered(name, left.err)
		}
	}
	return messages, v.awaitDurable(durable)
}

// RemoveConnection ends the stay of a connection, which must not ask for anything any more, and deletes its exclusive queues.
func (v *VHost) RemoveConnection(owner Owner) {
	v.mu.Lock()
	shells := v.exclusive[owner]
	delete(v.exclusive, owner)
	delete(v.connections, owner)
	v.mu.Unlock()
	for shell := range shells {
		// An error means that it is gone already.
		_ = shell.Do(func(q *queue.Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
		v.removeQueue(shell)
	}
}

// removeQueue takes a queue that is gone out of the table, with its bindings. It does nothing when that has been done, even if
// there is another queue by that name now. What it returns, if it is not nil, says when the definition has been deleted.
func (v *VHost) removeQueue(s *queue.Mailbox) *pendingQueue {
	v.mu.Lock()
	defer v.unlock()
	name := s.Config().Name
	e := v.queues[name]
	if e.mailbox != s {
		return nil
	}
	var left *pendingQueue
	if s.Config().Storage != nil {
		left = v.logDeletion(s)
	}
	delete(v.queues, name)
	v.churn.deleted.Add(1)
	v.shrink()
	v.invalidateRoutes()
	if e.extras == nil {
		return left
	}
	v.removeExclusive(e)
	for _, x := range e.extras.sources {
		v.bindings -= x.table.RemoveDestination(destination{queue: s})
		if x.unused() {
			v.removeExchange(x, nil)
		}
	}
	return left
}

// addExclusive notes whose an exclusive queue is. The caller holds mu.
func (v *VHost) addExclusive(e queueEntry) {
	owner := e.owner()
	if owner == 0 {
		return
	}
	shells := v.exclusive[owner]
	if shells == nil {
		shells = map[*queue.Mailbox]struct{}{}
		v.exclusive[owner] = shells
	}
	shells[e.mailbox] = struct{}{}
}

// removeExclusive undoes own.
func (v *VHost) removeExclusive(e queueEntry) {
	owner := e.owner()
	shells := v.exclusive[owner]
	delete(shells, e.mailbox)
	if len(shells) == 0 {
		delete(v.exclusive, owner)
	}
}

// shrink makes the table anew when few queues are left of many: a map never gives memory back. The caller holds mu.
func (v *VHost) shrink() {
	const small = 1024
	if v.peak <= small || len(v.queues) > v.peak/8 {
		return
	}
	queues := make(map[string]queueEntry, 2*len(v.queues))
	maps.Copy(queues, v.queues)
	v.queues, v.peak = queues, len(queues)
}

// Queues lists all queues by name. Some may be gone when they are used.
func (v *VHost) Queues() []*queue.Mailbox {
	v.mu.RLock()
	all := make([]*queue.Mailbox, 0, len(v.queues))
	for _, e := range v.queues {
		all = append(all, e.mailbox)
	}
	v.mu.RUnlock()
	slices.SortFunc(all, func(a, b *queue.Mailbox) int { return strings.Compare(a.Config().Name, b.Config().Name) })
	return all
}
