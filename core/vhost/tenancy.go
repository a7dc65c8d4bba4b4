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
	case v.gone:
		return refuse(NotAllowed, "vhost %s not found", v.name)
	case reached(v.limits.Connections, len(v.clients)):
		return refuse(NotAllowed, "access to vhost '%s' refused for user '%s': connection limit (%d) is reached", v.name, user, v.limits.Connections.N())
	}
	if v.clients == nil {
		v.clients = map[Owner]func(string){}
	}
	v.clients[owner] = evict
	return nil
}

// Connections is how many connections are in the vhost.
func (v *VHost) Connections() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.clients)
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
		v.forget(shell)
	}
	return nil
}

// end lets nobody in any more, once that is durable.
func (v *VHost) end() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changing.begin(alone)
	defer v.changing.end(alone)
	v.gone = true // nothing is written after the end
	if v.keeper == nil {
		return nil
	}
	v.mu.Unlock()
	v.keeper.Rewrite(func(yield func([]byte) bool) { yield(amqp.AppendTable(nil, define(opDeleteVHost, v.name))) })
	err := v.await(true)
	v.mu.Lock()
	v.gone = err == nil
	return err
}

// evictions are how to evict those who are in.
func (v *VHost) evictions() []func(reason string) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.Collect(maps.Values(v.clients))
}
