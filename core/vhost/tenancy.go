package vhost

import (
	"errors"
	"maps"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Enter lets a user's connection in, unless the vhost has as many as it may or is gone. The connection is to Leave. evict is
// called, once at most and from any goroutine, if it must end; it must not wait.
func (v *VHost) Enter(owner Owner, user string, evict func(reason string)) error {
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
// more.
func (v *VHost) Delete() error {
	for _, evict := range v.end() {
		evict("vhost '" + v.name + "' is deleted")
	}
	var err error
	if v.keeper != nil {
		v.keeper.Rewrite(amqp.AppendTable(nil, define(opDeleteVHost, v.name)))
		err = v.keeper.Wait()
	}
	for _, shell := range v.Queues() {
		// An error means that it is gone already.
		_ = shell.Do(func(q *queue.Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
		v.forget(shell)
	}
	if err != nil {
		return errors.Join(err, errors.New("vhost "+v.name+": whether it is deleted shows when the broker is started again"))
	}
	return nil
}

// end lets nobody in any more, and returns how to evict those that are.
func (v *VHost) end() []func(reason string) {
	v.mu.Lock()
	defer v.unlock()
	v.gone = true
	return slices.Collect(maps.Values(v.clients))
}
