package vhost

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// life is the state of the vhost as a whole: open, deleted, or moved to another node; and
// the connections that have to leave before it ends.
type life struct {
	*rules
	mu          *sync.RWMutex                 // guards the fields below
	connections map[Owner]func(reason string) // how to evict them
	deleted     bool
	left        chan struct{} // closed when all connections have left a vhost that moves; nil means that it does not move
	allLeft     bool          // left is closed

	moved atomic.Pointer[Error] // the error of all calls, stored with mu held; nil while this node serves the vhost
}

// movedError returns the error of all calls after the vhost has moved; nil before.
func (l *life) movedError() *Error { return l.moved.Load() }

// checkMoved returns an error if the vhost has moved.
func (l *life) checkMoved() error {
	if e := l.moved.Load(); e != nil {
		return e
	}
	return nil
}

// checkOpen returns an error if nothing can be created, because the vhost was deleted or has moved. The caller holds mu.
func (l *life) checkOpen() error {
	if err := l.checkMoved(); err != nil {
		return err
	}
	if l.deleted {
		return refuse(NotFound, "no vhost '%s'", l.name)
	}
	return nil
}

// isServed reports whether this node still serves the vhost, and may write its definitions. The caller holds mu.
func (l *life) isServed() bool { return !l.deleted && l.moved.Load() == nil }

// NoQueue is the error for a queue that does not exist. Sessions return it when a mailbox they hold reports [queue.ErrGone].
func (l *life) NoQueue(name string) *Error {
	if e := l.moved.Load(); e != nil {
		return e
	}
	return &Error{Kind: NotFound, Text: "no " + l.queueName(name)}
}

func (l *life) noExchange(name string) *Error {
	if e := l.moved.Load(); e != nil {
		return e
	}
	return &Error{Kind: NotFound, Text: "no " + l.exchangeName(name)}
}

// admit adds a user's connection, unless the vhost ends, or has as many as allowed. The caller holds mu.
func (l *life) admit(owner Owner, user string, most hook.Limit, evict func(reason string)) error {
	switch {
	case l.left != nil:
		return l.elsewhere(wlog.ErrNotOwner)
	case l.deleted:
		return refuse(NotAllowed, "vhost %s not found", l.name)
	case reached(most, len(l.connections)):
		return refuse(NotAllowed, "access to vhost '%s' refused for user '%s': connection limit (%d) is reached", l.name, user, most.N())
	}
	l.connections[owner] = evict
	return nil
}

// dismiss removes a connection. The caller holds mu.
func (l *life) dismiss(owner Owner) {
	delete(l.connections, owner)
	l.noteLeft()
}

// connected returns how many connections there are. The caller holds mu.
func (l *life) connected() int { return len(l.connections) }

// evictions returns functions that evict the present connections.
func (l *life) evictions() []func(reason string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Collect(maps.Values(l.connections))
}

// startMove makes the vhost admit no connections. It returns functions that evict the present ones, and a channel that is closed when they
// have left; nil means that the vhost moves already.
func (l *life) startMove() (evictions []func(reason string), left <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left != nil {
		return nil, nil
	}
	l.left = make(chan struct{})
	l.noteLeft()
	if l.deleted {
		return nil, l.left // they are evicted
	}
	return slices.Collect(maps.Values(l.connections)), l.left
}

// noteLeft notes when the last connection has left a vhost that moves. The caller holds mu.
func (l *life) noteLeft() {
	if l.left != nil && len(l.connections) == 0 && !l.allLeft {
		l.allLeft = true
		close(l.left)
	}
}

// finishMove makes all calls fail. The caller holds mu.
func (l *life) finishMove() { l.moved.Store(l.elsewhere(wlog.ErrNotOwner)) }

// startDeletion makes the vhost admit nothing more, unless it moves. The caller holds mu.
func (l *life) startDeletion() error {
	if l.left != nil {
		return l.elsewhere(wlog.ErrNotOwner)
	}
	l.deleted = true
	return nil
}

// cancelDeletion undoes startDeletion. The caller holds mu.
func (l *life) cancelDeletion() { l.deleted = false }

// AddConnection admits a user's connection, unless the vhost is at its limit, deleted, or moves. The caller must call RemoveConnection
// later. evict is called at most once, from any goroutine, if the connection must end; it must not block.
func (v *VHost) AddConnection(owner Owner, user string, evict func(reason string)) error {
	v.topology.mu.Lock()
	defer v.topology.mu.Unlock()
	return v.life.admit(owner, user, v.parameters.limitsNow().Connections, evict)
}

// RemoveConnection undoes AddConnection and deletes the connection's exclusive queues. The connection must make no more requests.
func (v *VHost) RemoveConnection(owner Owner) {
	v.topology.mu.Lock()
	queues := v.topology.queues.disown(owner)
	v.life.dismiss(owner)
	v.topology.mu.Unlock()
	for m := range queues {
		v.queues.drop(m)
	}
}

// Delete deletes the vhost: it admits no more connections, closes the present ones, and deletes its queues. If the deletion cannot be made
// durable, the vhost stays as it is.
func (v *VHost) Delete() error {
	if err := v.close(); err != nil {
		return err
	}
	for _, evict := range v.life.evictions() {
		evict("vhost '" + v.name + "' is deleted")
	}
	for _, m := range v.topology.Queues() {
		v.queues.drop(m)
	}
	for _, m := range v.topology.Schedules() {
		v.exchanges.dropMailbox(m)
	}
	return nil
}

// close makes the vhost admit nothing more, once that is durable.
func (v *VHost) close() error {
	v.topology.mu.Lock()
	defer v.topology.mu.Unlock()
	v.changes.begin(exclusive)
	defer v.changes.end(exclusive)
	// Before the deletion is written, because nothing may be written after it.
	if err := v.life.startDeletion(); err != nil || !v.changes.durable() {
		return err
	}
	v.topology.mu.Unlock()
	err := v.changes.deleteAll()
	v.topology.mu.Lock()
	if err != nil {
		v.life.cancelDeletion()
	}
	return err
}

// leaveTimeout is how long Move waits for connections to leave.
const leaveTimeout = time.Second

// Move ends the vhost on this node, because another node serves it. It admits no more connections, evicts the present ones for a reason,
// and waits until they have left, but not for long. Then it frees the contents of the queues, and all calls fail; nothing is written. It
// returns, and reports, how many messages were in memory only, and are lost to the other node. A call after the first does nothing.
//
// A connection that has not left may go on using the vhost: it gets errors. This node may serve the same vhost again meanwhile, as another
// VHost.
func (v *VHost) Move(reason string) (lost int) {
	evictions, left := v.life.startMove()
	if left == nil {
		return 0
	}
	for _, evict := range evictions {
		evict(reason)
	}
	awaitLeft(left)
	v.changes.exclusively(func() {
		v.life.finishMove()
		v.topology.invalidateRoutes()
	})
	all := v.mailboxes()
	for _, m := range all {
		_ = m.Do(func(q *queue.Queue, _ hook.Instant) { lost += q.Abandon() }) // an error means that it is deleted
	}
	v.telemetry.Notice(telemetry.Notice{Kind: telemetry.VHostMoved, VHost: v.name, Queues: len(all), Messages: lost})
	v.log.Info("vhost is not served here any more", "reason", reason, "connections", len(evictions), "queues", len(all), "messages_lost", lost)
	return lost
}

// MovesFreely reports whether Move would have no cost: no connection uses the vhost, no redrive runs, everything in the vhost is durable,
// and no plugin may remember messages, as one that drops duplicates does. It looks at every queue.
func (v *VHost) MovesFreely() bool {
	if !v.isUnusedAndDurable() {
		return false
	}
	if slices.ContainsFunc(v.redrives.List(), func(j *RedriveJob) bool { s, _ := j.Status(); return s.Ended == 0 }) {
		return false
	}
	for _, m := range v.mailboxes() {
		free := true
		_ = m.Look(func(q *queue.Queue) { // an error means that it is deleted
			s := q.Stats()
			all := s.Ready + s.Unacked + s.Held + s.Discarded
			free = q.Config().Durable && all == s.Persistent && (all == 0 || !m.SettlesFirst())
		})
		if !free {
			return false
		}
	}
	return true
}

func awaitLeft(left <-chan struct{}) {
	limit := time.NewTimer(leaveTimeout) //nolint:forbidigo // a connection need not answer; nothing is due at this time
	defer limit.Stop()
	select {
	case <-left:
	case <-limit.C:
	}
}

// isUnusedAndDurable reports whether there are no connections, and all exchanges are durable and have no plugin that may remember messages.
func (v *VHost) isUnusedAndDurable() bool {
	v.topology.mu.RLock()
	defer v.topology.mu.RUnlock()
	return v.life.connected() == 0 && v.topology.durableOnly()
}

// mailboxes returns the queues and the schedules of exchanges.
func (v *VHost) mailboxes() []*queue.Mailbox {
	return append(v.topology.Mailboxes(), v.topology.Schedules()...)
}
