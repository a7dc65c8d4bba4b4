package vhost

import (
	"maps"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// AddConnection lets a user's connection in, unless the vhost has as many as it may or is gone. The connection is to Leave. evict is
// called, once at most and from any goroutine, if it must end; it must not wait.
func (v *VHost) AddConnection(owner Owner, user string, evict func(reason string)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.deleted:
		return refuse(NotAllowed, "vhost %s not found", v.name)
	case reached(v.limits.Connections, len(v.connections)):
		return refuse(NotAllowed, "access to vhost '%s' refused for user '%s': connection limit (%d) is reached", v.name, user, v.limits.Connections.N())
	}
	if v.connections == nil {
		v.connections = map[Owner]func(string){}
	}
	v.connections[owner] = evict
	return nil
}

// Delete ends the vhost: its connections are closed, its queues deleted, and a restart knows nothing of it. Nobody gets in any
// more. If that cannot be kept, the vhost stays as it is.
func (v *VHost) Delete() error {
	if err := v.end(); err != nil {
		return err
	}
	for _, evict := range v.evictions() {
		evict("vhost '" + v.name + "' is deleted")
	}
	for _, shell := range v.Queues() {
		// An error means that it is gone already.
		_ = shell.Do(func(q *queue.Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
		v.removeQueue(shell)
	}
	return nil
}

// end lets nobody in any more, once that is durable.
func (v *VHost) end() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changes.begin(exclusive)
	defer v.changes.end(exclusive)
	v.deleted = true // nothing is written after the end
	if v.definitionLog == nil {
		return nil
	}
	v.mu.Unlock()
	v.definitionLog.Rewrite(func(yield func([]byte) bool) { yield(amqp.AppendTable(nil, define(opDeleteVHost, v.name))) })
	err := v.awaitDurable(true)
	v.mu.Lock()
	v.deleted = err == nil
	return err
}

// evictions are how to evict those who are in.
func (v *VHost) evictions() []func(reason string) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.Collect(maps.Values(v.connections))
}
