package vhost

import (
	"maps"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// leaveTimeout is how long Move waits for connections to leave.
const leaveTimeout = time.Second

// Move ends the vhost on this node, because another node serves it. It admits no more connections, evicts the present ones for a reason,
// and waits until they have left, but not for long. Then it frees the contents of the queues, and all calls fail; nothing is written. It
// returns, and reports, how many messages were in memory only, and are lost to the other node. A call after the first does nothing.
//
// A connection that has not left may go on using the vhost: it gets errors. This node may serve the same vhost again meanwhile, as another
// VHost.
func (v *VHost) Move(reason string) (lost int) {
	evictions, left := v.startMove()
	if left == nil {
		return 0
	}
	for _, evict := range evictions {
		evict(reason)
	}
	v.awaitLeft(left)
	all := v.finishMove()
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
	if slices.ContainsFunc(v.Redrives(), func(j *RedriveJob) bool { s, _ := j.Status(); return s.Ended == 0 }) {
		return false
	}
	for _, m := range append(v.Mailboxes(), v.Schedules()...) {
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

// isUnusedAndDurable reports whether there are no connections, and all exchanges are durable and have no plugin that may remember messages.
func (v *VHost) isUnusedAndDurable() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if len(v.connections) > 0 {
		return false
	}
	for _, x := range v.exchanges {
		if !x.Durable || x.volatile {
			return false
		}
	}
	return true
}

// startMove makes the vhost admit no connections. It returns functions that evict the present ones, and a channel that is closed when they
// have left; nil means that the vhost moves already.
func (v *VHost) startMove() (evictions []func(reason string), left <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left != nil {
		return nil, nil
	}
	v.left = make(chan struct{})
	v.noteLeft()
	if v.deleted {
		return nil, v.left // they are evicted
	}
	return slices.Collect(maps.Values(v.connections)), v.left
}

// noteLeft notes when the last connection has left a vhost that moves. The caller holds mu.
func (v *VHost) noteLeft() {
	if v.left != nil && len(v.connections) == 0 && !v.allLeft {
		v.allLeft = true
		close(v.left)
	}
}

func (v *VHost) awaitLeft(left <-chan struct{}) {
	limit := time.NewTimer(leaveTimeout) //nolint:forbidigo // a connection need not answer; nothing is due at this time
	defer limit.Stop()
	select {
	case <-left:
	case <-limit.C:
	}
}

// finishMove makes all calls fail, and returns the queues and the schedules of exchanges.
func (v *VHost) finishMove() []*queue.Mailbox {
	v.mu.Lock()
	v.moved.Store(v.elsewhere(wlog.ErrNotOwner))
	v.invalidateRoutes()
	v.mu.Unlock()
	return append(v.Mailboxes(), v.Schedules()...)
}

// checkMoved returns an error after Move.
func (v *VHost) checkMoved() error {
	if e := v.moved.Load(); e != nil {
		return e
	}
	return nil
}

// Moved reports whether the vhost has moved: all calls fail.
func (v *VHost) Moved() bool { return v.moved.Load() != nil }

// Offset returns the difference between the vhost's clock and this node's. All instants in the vhost belong to the vhost's clock.
func (v *VHost) Offset() time.Duration { return v.offset }
