package vhost

import (
	"maps"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/wlog"
)

// AddConnection admits a user's connection, unless the vhost is at its limit, deleted, or moves. The caller must call RemoveConnection
// later. evict is called at most once, from any goroutine, if the connection must end; it must not block.
func (v *VHost) AddConnection(owner Owner, user string, evict func(reason string)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.left != nil:
		return v.elsewhere(wlog.ErrNotOwner)
	case v.deleted:
		return refuse(NotAllowed, "vhost %s not found", v.name)
	case reached(v.limits.Connections, len(v.connections)):
		return refuse(NotAllowed, "access to vhost '%s' refused for user '%s': connection limit (%d) is reached", v.name, user, v.limits.Connections.N())
	}
	v.connections[owner] = evict
	return nil
}

// RemoveConnection undoes AddConnection and deletes the connection's exclusive queues. The connection must make no more requests.
func (v *VHost) RemoveConnection(owner Owner) {
	v.mu.Lock()
	queues := v.exclusive[owner]
	delete(v.exclusive, owner)
	delete(v.connections, owner)
	v.noteLeft()
	v.mu.Unlock()
	for m := range queues {
		v.deleteQueue(m)
	}
}

// Delete deletes the vhost: it admits no more connections, closes the present ones, and deletes its queues. If the deletion cannot be made
// durable, the vhost stays as it is.
func (v *VHost) Delete() error {
	if err := v.close(); err != nil {
		return err
	}
	v.mu.RLock()
	evictions := slices.Collect(maps.Values(v.connections))
	v.mu.RUnlock()
	for _, evict := range evictions {
		evict("vhost '" + v.name + "' is deleted")
	}
	for _, m := range v.Queues() {
		v.deleteQueue(m)
	}
	for _, m := range v.Schedules() {
		v.dropMailbox(m)
	}
	return nil
}

// close makes the vhost admit nothing more, once that is durable.
func (v *VHost) close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changes.begin(exclusive)
	defer v.changes.end(exclusive)
	if v.left != nil {
		return v.elsewhere(wlog.ErrNotOwner)
	}
	v.deleted = true // nothing may be logged after the deletion
	if v.definitionLog == nil {
		return nil
	}
	v.mu.Unlock()
	v.definitionLog.Rewrite(func(yield func([]byte) bool) { yield(amqp.AppendTable(nil, v.define(opDeleteVHost))) })
	err := v.awaitDurable(true)
	v.mu.Lock()
	v.deleted = err == nil
	return err
}
