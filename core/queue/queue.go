// Package queue is one queue of the broker: its messages, consumers, deadlines and hooks.
//
// [Queue] is passive: its methods take the time and return values, and one goroutine at a
// time calls them. [Mailbox] is its concurrency-safe front. A caller that posts a task to
// an idle queue runs the queue's turn, so an idle queue needs no goroutine and at most
// one timer.
package queue

import (
	"errors"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Errors of operations that a client asked for.
var (
	ErrGone         = errors.New("queue is gone")
	ErrInUse        = errors.New("queue has consumers")
	ErrNotEmpty     = errors.New("queue has messages")
	ErrExclusiveUse = errors.New("queue is in exclusive use")
)

// Queue is one queue. It belongs to the goroutine that runs its mailbox's turn.
type Queue struct {
	hooks   *chain.Hooks
	host    Host
	mailbox *Mailbox

	*contents            // nil until the first message
	consumers *consumers // nil until the first consumer

	essentials
	departing departures
	ending    *ending   // nil unless the lease has run out
	discards  *discards // nil until the first at-least-once dead letter
	redrive   *Redrive  // nil while there is none
	moving    int       // messages under way in parts of the redrive
	garbage   *garbage
	parted    parted        // nil unless the queue was deleted with messages under way
	stopped   *StoppedError // nil unless the queue is stopped

	lastUse hook.Instant
	lease   hook.Instant // when the idle hooks are asked again; 0 means never
	trim    hook.Instant // when an empty queue releases its memory, or a compaction goes on; 0 means never
	closed  bool
	emptied bool // the queue is deleted or stopped, and has dropped its contents
}

// Counters count what happened to a queue's messages. Published is the number of messages
// in the queue (ready, held, unacknowledged, or waiting to leave) plus those that have
// left or did not enter, each for one reason: Refused, DeliveredNoAck, Acked, Dropped,
// DeadLettered, Purged, Deleted or Lost.
type Counters struct {
	Published      uint64 // messages that entered, were refused, or left as they entered
	DeadLetters    uint64 // of Published: dead letters and redriven messages
	Restored       uint64 // of Published: brought back by a replay
	Refused        uint64 // kept out: the publisher gets basic.nack
	Delivered      uint64 // deliveries that await an acknowledgement
	DeliveredNoAck uint64
	Redelivered    uint64 // of Delivered and DeliveredNoAck: messages that had been delivered before
	Requeued       uint64
	LeasesEnded    uint64 // deliveries that were not settled by the end of their lease
	Acked          uint64
	Purged         uint64
	Deleted        uint64 // dropped with the deleted queue
	Lost           uint64 // not in the journal when the queue stopped
	Dropped        [hook.Reasons]uint64
	DeadLettered   [hook.Reasons]uint64
}

// FromClients counts the messages that clients published to the queue.
func (c *Counters) FromClients() uint64 { return c.Published - c.DeadLetters - c.Restored }

// Expired counts the messages that left because of their deadline.
func (c *Counters) Expired() uint64 {
	return c.Dropped[hook.ReasonExpired] + c.DeadLettered[hook.ReasonExpired]
}

// Stats is a queue's state at one moment.
type Stats struct {
	Ready, Unacked, Consumers int
	Held                      int
	Undecided                 int // messages whose strategy is asked again; some may have left
	Discarded                 int // messages that wait to leave, or for the answers of their targets
	Persistent                int // how many of all these are persistent; 0 for a queue that is not durable
	InMemory                  int // how many of all these have their record in memory, not only in the spill file
	ReadyBytes                int64
	NextDeadline              hook.Instant // 0 means none
	NextRelease               hook.Instant // end of the next hold; 0 means none
	LeaseExpires              hook.Instant // 0 means none
	Counters
}

// attach replaces the queue's hooks by those of a chain, and renews the lease.
func (q *Queue) attach(now hook.Instant, c *chain.Chain) {
	was := q.hooks
	if q.hooks = c.Attach((*pluginView)(q), &q.cfg.Hooks); was != nil && was.WantsGone() {
		was.EndGone(q.hooks)
		if q.contents != nil && !q.hooks.WantsGone() {
			q.unwatch()
		}
	}
	if q.mailbox != nil { // tests of replays have none
		q.mailbox.settlesFirst.Store(q.hooks.WantsGone())
		q.mailbox.mayRefuse.Store(q.hooks.Refuses())
	}
	if q.contents != nil {
		q.askBackoff, q.rules = askBackoff{}, rulesOf(q.hooks)
	}
	q.Touch(now)
}

// DeadLetters returns the target of the queue's dead letters. A strategy may choose
// another target for a message; nil means that no plugin announces a target.
func (q *Queue) DeadLetters() *hook.Target { return q.hooks.DeadLetters() }

// Config returns the queue's configuration.
func (q *Queue) Config() *Config { return q.cfg }

// Stats returns the queue's counts.
func (q *Queue) Stats() Stats {
	s := Stats{
		Ready: q.ready, Unacked: q.unacked, Consumers: q.consumers.count(), Discarded: q.waiting(),
		ReadyBytes: q.readyBytes, NextDeadline: q.nextDeadline(), LeaseExpires: q.lease,
		Held: q.held(), NextRelease: q.nextRelease(),
	}
	if q.contents != nil {
		s.Counters = q.count
		s.Undecided = q.undecided.count()
		s.InMemory = q.messages() - q.store.away
		if q.cfg.Durable {
			s.Persistent = q.store.persistent
		}
	}
	if e := q.stopped; e != nil && !q.closed {
		s.Ready, s.Unacked, s.Discarded, s.ReadyBytes = e.ready, e.unacked, e.discarded, e.readyBytes
		s.Held, s.Persistent, s.InMemory = e.held, e.persistent, 0
	}
	return s
}

// tick does everything that is due: it ends the lease, sends waiting dead letters,
// releases held messages, expires messages and frees memory. One tick handles a bounded
// number of messages; if more are due, next returns an instant that has passed.
func (q *Queue) tick(now hook.Instant) {
	if q.lease != 0 && now >= q.lease {
		q.idle(now)
	}
	if q.closed {
		return
	}
	q.departing.send(q, now)
	if q.ending.advance(q, now); q.closed {
		return
	}
	if q.contents != nil {
		q.restamping.goOn(q, now)
		q.undecided.ask(q, now)
	}
	if q.cfg.Schedule != nil {
		q.publishDue(now)
	} else if q.contents != nil && q.holding.releaseDue(q, now) {
		q.consumers.deliver(q, now) // first: a message that a consumer takes at once counts towards no limit
		q.enforceLimits(now)
	}
	if q.contents != nil && q.overflowing {
		q.enforceLimits(now)
	}
	q.expireDue(now)
	q.redrive.goOn(q, now)
	q.consumers.deliver(q, now)
	q.endTurn(now)
}

// atOnce is an instant that has passed.
const atOnce hook.Instant = 1

// next returns when tick must be called, 0 for never.
func (q *Queue) next() hook.Instant {
	if q.garbage != nil {
		return atOnce
	}
	if q.closed || q.stopped != nil {
		return 0
	}
	if q.contents != nil && (q.overflowing || q.restamping != nil) {
		return atOnce
	}
	if q.ending != nil && len(q.departing.list) == 0 && (q.ready+q.held() > 0 || q.waiting() == 0) {
		return atOnce
	}
	var next, nextAsk hook.Instant
	if q.contents != nil {
		nextAsk = q.undecided.nextAt(q)
	}
	for _, t := range [...]hook.Instant{q.lease, q.trim, q.nextDeparture(), q.nextHoldEnd(), q.redrive.nextAt(q), nextAsk} {
		if t != 0 && (next == 0 || t < next) {
			next = t
		}
	}
	return next
}

// nextDeparture returns when messages are due to leave: at a deadline, or when discards
// or dead letters that found no space are sent again. It returns 0 for never, and while
// the queue stands in the line of traffic, which runs tick when there is capacity.
func (q *Queue) nextDeparture() hook.Instant {
	if q.mailbox.inLine {
		return 0
	}
	next, again := q.nextDeadline(), q.discards.retryAt()
	if len(q.departing.list) > 0 && q.departing.at != 0 && (next == 0 || q.departing.at < next) {
		next = q.departing.at
	}
	if next == 0 || again != 0 && again < next {
		return again
	}
	return next
}

// end deletes the queue, with the messages that remain, and reports to the host that it
// has deleted itself.
func (q *Queue) end(now hook.Instant, d Deletion) {
	q.departing.sendAll(q, now)
	d.At, d.LastUse = now, q.lastUse
	d.Messages += q.messages()
	q.close()
	q.host.Deleted(q.mailbox, d)
}

// close deletes the queue and drops its contents. The mailbox rejects tasks from then on.
func (q *Queue) close() {
	q.closed = true
	if err := contain(q.dropAll); err != nil {
		q.breakDown(err)
	}
	q.lease, q.trim = 0, 0
}

// dropAll drops the messages and the consumers of a deleted queue.
func (q *Queue) dropAll() {
	if q.contents != nil {
		q.count.Deleted += uint64(q.messages())
		q.dropContents() // before the redrive ends: its parts are needed
	}
	q.abandonRedrive()
	if e := q.stopped; e != nil && q.contents != nil {
		q.count.Deleted += uint64(e.ready + e.unacked + e.held + e.discarded)
	}
	q.consumers.sortByTag() // the order in which RabbitMQ cancels them
	for c := q.consumers.pop(); c != nil; c = q.consumers.pop() {
		c.dismiss(q)
	}
}

// Delete deletes the queue with its messages, cancels its consumers, and returns how many
// messages were ready.
func (q *Queue) Delete(ifUnused, ifEmpty bool) (messages int, err error) {
	if ifUnused && q.consumers.count() > 0 {
		return 0, ErrInUse
	}
	if ifEmpty && q.ready+q.held() > 0 {
		return 0, ErrNotEmpty
	}
	messages = q.ready
	if len(q.departing.list) > 0 {
		q.departing.sendAll(q, q.mailbox.clock())
	}
	q.close()
	return messages, nil
}

// messages returns how many messages the queue has in any state.
func (q *Queue) messages() int { return q.ready + q.unacked + q.held() + q.waiting() }

// waiting returns how many messages wait to leave, or for the answers of their targets.
func (q *Queue) waiting() int {
	n := len(q.departing.list) + q.moving
	if q.discards != nil {
		n += q.discards.count
	}
	return n
}

// level returns the level of messages of a priority.
func (e *essentials) level(priority uint8) int { return min(int(priority), e.cfg.Levels) }
