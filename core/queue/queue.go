// Package queue is one queue of the broker: its messages, consumers, deadlines
// and hooks.
//
// [Queue] is passive: methods that take the time and return values, called by
// one goroutine at a time. [Mailbox] is the mailbox around it: whoever brings work
// to an idle queue runs it, so that a queue with nothing to do has no goroutine
// and at most one timer.
package queue

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Errors of queue operations that a client asked for.
var (
	ErrGone         = errors.New("queue is gone")
	ErrInUse        = errors.New("queue has consumers")
	ErrNotEmpty     = errors.New("queue has messages")
	ErrExclusiveUse = errors.New("queue is in exclusive use")
)

// Config describes a queue. It never changes: a queue whose policies change gets
// another one, see [Queue.Reconfigure].
type Config struct {
	*Profile
	Name       string
	Durable    bool
	Exclusive  bool
	AutoDelete bool
	// Storage is where a durable queue keeps its persistent messages; nil = in
	// memory alone.
	Storage *Storage
}

// Profile is what follows from a queue's arguments. Queues that are alike share
// one, which never changes.
type Profile struct {
	VHost         string
	Kind          string // [Classic] or [Quorum]
	SingleActive  bool
	Levels        int   // highest priority, 1 to 255; 0 = not a priority queue
	DeliveryLimit int64 // returns a message survives; negative = any number
	Args          hook.Args
	Policies      policies.Applied // to the queue
	// Settings returns an effective setting, named as policies name it: the
	// arguments merged with the policies. It may be called from any goroutine.
	Settings func(name string) (any, bool)
	Strategy string // name of the expiry strategy in force
	// Hooks remembers what the plugins do for queues with these settings, which
	// they all have from one chain.
	Hooks chain.Memo
}

// Host is what a queue asks of the vhost it lives in. It is called from the
// queue's turn.
type Host interface {
	// DeadLetter publishes messages that left from elsewhere. The slices in ds
	// are valid during the call. Every batch made of them gets t, and
	// t.Removal, if there is one, is told their number before the first is published.
	DeadLetter(from *Config, now hook.Instant, ds []DeadLetter, t Tracking)
	// Removed tells of messages that have left for a reason, each once and for good.
	// The slices in ls are valid during the call.
	Removed(from *Config, now hook.Instant, ls []telemetry.Removal)
	// Refused tells how many messages did not get in: their publishers get a nack.
	Refused(from *Config, messages int)
	// Decided tells what a policy decided about a message that is traced.
	Decided(from *Config, now hook.Instant, m *telemetry.Message, d *hook.Decision)
	// Deleted says that the queue deleted itself. Its shell refuses work already.
	Deleted(s *Mailbox, why Deletion)
}

// Deletion is why and how a queue deleted itself.
type Deletion struct {
	Reason       DeletionReason
	At           hook.Instant
	LastUse      hook.Instant
	Lease        hook.Instant // when it ran out; 0 = that was not the reason
	Messages     int          // dropped with it, or while it ended
	DeadLettered int          // before that
}

// Idle is for how long nobody had used the queue.
func (d *Deletion) Idle() time.Duration { return d.At.Sub(d.LastUse) }

// DeletionReason says what ended a queue.
type DeletionReason uint8

// The reasons for which a queue deletes itself.
const (
	DeletedExpired    DeletionReason = iota // its lease ran out
	DeletedAutoDelete                       // its last consumer left
)

// DeadLetter is a message that leaves through a Route verdict.
type DeadLetter struct {
	Exchange, Key []byte
	BCC           []string
	Props, Body   []byte
	Flags         Flags
	Reason        hook.Reason
	Target        *hook.Target
	Seq           uint64 // for the receipt's source: the number the publishes are to carry
	// Set by the host: how many queues the message went to, and what that means.
	Sent    int
	Outcome telemetry.Outcome
}

// Queue is one queue. It belongs to whoever runs its shell's turn.
type Queue struct {
	cfg     *Config
	hooks   *chain.Hooks
	host    Host
	mailbox *Mailbox

	*contents            // nil until the first message
	consumers *consumers // nil until the first consumer

	ready, unacked int
	readyBytes     int64
	departing      *departing // nil unless messages wait to leave
	ending         *ending    // nil unless its lease ran out
	discards       *discards  // nil until at-least-once dead-lettering is at work
	garbage        *garbage
	stopped        *StoppedError // nil: it is at work

	buf     *turnBuffers // room to work in, during a turn
	lastUse hook.Instant
	lease   hook.Instant // when OnIdle wants to be asked again
	trim    hook.Instant // when an empty queue gives its memory back
	zeroTTL bool         // this turn took in messages that may only leave in it
	closed  bool
}

// contents is what a queue needs once it has had a message: a queue that waits
// for its first one, as reply queues do by the thousand, should weigh little.
type contents struct {
	levels     []fifo // one, or Levels+1
	store      store
	heap       deadline.Heap // ScanAnywhere: deadlines outside the sorted runs
	stale      int           // items of heap whose message is not ready
	count      Counters
	relocating relocationCursor
	compacting compaction

	restamping  *restampCursor // nil when no change of the settings is under way
	overflowing bool           // there is more to drop than one turn may
	askBackoff  askBackoff
	census      *census // nil if the queue is small, or nobody wants to know: see DueSampler
}

// Counters count what happened to a queue's messages. Published is the sum of
// those that are there (ready and unacknowledged) and those that left, each for
// one reason: DeliveredNoAck, Acked, Dropped, DeadLettered, Purged, Deleted or Lost.
type Counters struct {
	Published      uint64 // entered, or tried to and were refused or dropped at once
	DeadLetters    uint64 // of them, those that another queue had given up
	Restored       uint64 // of them, those that were there when the broker was started
	Refused        uint64 // did not get in: basic.nack
	Delivered      uint64 // handed out with an acknowledgement due
	DeliveredNoAck uint64
	Redelivered    uint64 // of both, those that had been handed out before
	Requeued       uint64
	Acked          uint64
	Purged         uint64
	Deleted        uint64 // went with the queue
	Lost           uint64 // in memory alone when the queue stopped
	Dropped        [hook.Reasons]uint64
	DeadLettered   [hook.Reasons]uint64
}

// FromClients counts the messages that clients published to the queue.
func (c *Counters) FromClients() uint64 { return c.Published - c.DeadLetters - c.Restored }

// Stats is a queue's state at one moment.
type Stats struct {
	Ready, Unacked, Consumers int
	Discarded                 int // on their way to a dead-letter queue, until they have arrived
	ReadyBytes                int64
	NextDeadline              hook.Instant // 0 = none
	LeaseExpires              hook.Instant // 0 = none
	Counters
}

// attach puts the hooks of a chain in force and starts the queue's lease anew.
func (q *Queue) attach(now hook.Instant, c *chain.Chain) {
	q.hooks = c.Attach((*pluginView)(q), &q.cfg.Hooks)
	if q.contents != nil {
		q.askBackoff = askBackoff{}
	}
	q.Touch(now)
}

// Config returns the queue's description.
func (q *Queue) Config() *Config { return q.cfg }

// Stats returns the queue's counts.
func (q *Queue) Stats() Stats {
	s := Stats{
		Ready: q.ready, Unacked: q.unacked, Consumers: q.consumers.count(), Discarded: q.waiting(),
		ReadyBytes: q.readyBytes, NextDeadline: q.nextDeadline(), LeaseExpires: q.lease,
	}
	if q.contents != nil {
		s.Counters = q.count
	}
	if e := q.stopped; e != nil && !q.closed {
		s.Ready, s.Unacked, s.Discarded, s.ReadyBytes = e.ready, e.unacked, e.discarded, e.readyBytes
	}
	return s
}

// Touch renews the queue's lease: it was used.
func (q *Queue) Touch(now hook.Instant) {
	q.lastUse = now
	q.lease, q.ending = 0, nil
	if q.stopped != nil || !q.hooks.WantsIdle || q.consumers.count() > 0 {
		return
	}
	v := hook.Verdict{}
	q.hooks.Idle(now, 0, &v)
	q.lease = v.Deadline
}

// tick does what time has brought: expiry of messages, of the queue, return of
// memory. It handles a bounded number of messages; Next says whether more are
// due.
func (q *Queue) tick(now hook.Instant) {
	if q.lease != 0 && now >= q.lease {
		q.idle(now)
	}
	if q.closed {
		return
	}
	q.depart(now)
	if q.advanceEnding(now); q.closed {
		return
	}
	q.restampSome(now)
	if q.contents != nil && q.overflowing {
		q.enforceLimits(now)
	}
	q.expireDue(now)
	q.deliver(now)
	q.endTurn(now)
}

// atOnce is an instant that has passed.
const atOnce hook.Instant = 1

// next returns when Tick wants to be called, 0 for never.
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
	if q.ending != nil && q.departing.count() == 0 && (q.ready > 0 || q.waiting() == 0) {
		return atOnce
	}
	var next hook.Instant
	for _, t := range [...]hook.Instant{q.lease, q.trim, q.nextDeparture()} {
		if t != 0 && (next == 0 || t < next) {
			next = t
		}
	}
	return next
}

// nextDeparture returns when messages are due to leave, 0 for never. While there is no
// room for dead letters it is not a matter of time.
func (q *Queue) nextDeparture() hook.Instant {
	if q.mailbox != nil && q.mailbox.inLine {
		return 0
	}
	next, again := q.nextDeadline(), q.retryAt()
	if next == 0 || again != 0 && again < next {
		return again
	}
	return next
}

// idle asks whether an unused queue may live on.
func (q *Queue) idle(now hook.Instant) {
	due := q.lease
	q.lease = 0
	if q.consumers.count() > 0 {
		return
	}
	v := hook.Verdict{}
	q.hooks.Idle(now, now.Sub(q.lastUse), &v)
	if v.Action != hook.Drop {
		q.lease = v.Deadline
		if q.lease != 0 && q.lease <= now { // a hook that asks for the past must not spin
			q.lease = now.AddMillis(askAgainMillis)
		}
		return
	}
	if v.DeadLetter && q.contents != nil {
		q.ending = &ending{
			lease: due, before: q.count.DeadLettered[hook.ReasonQueueExpired], dropped: q.count.Dropped[hook.ReasonQueueExpired],
		}
		return
	}
	q.end(now, Deletion{Reason: DeletedExpired, Lease: due})
}

// end deletes the queue from within. What is left in it goes with it.
func (q *Queue) end(now hook.Instant, d Deletion) {
	q.departNow(now)
	d.At, d.LastUse = now, q.lastUse
	d.Messages += q.ready + q.unacked + q.waiting()
	q.close()
	q.host.Deleted(q.mailbox, d)
}

// close drops everything the queue holds; the shell refuses work from now on.
func (q *Queue) close() {
	q.closed = true
	if q.contents != nil {
		q.count.Deleted += uint64(q.ready + q.unacked + q.waiting())
		q.dropContents()
	}
	if e := q.stopped; e != nil && q.contents != nil {
		q.count.Deleted += uint64(e.ready + e.unacked + e.discarded)
	}
	consumers := q.consumers.removeAll()
	slices.SortFunc(consumers, func(a, b *Consumer) int { return cmp.Compare(a.Tag, b.Tag) }) // as RabbitMQ tells each channel
	for _, c := range consumers {
		c.removed = true
		c.Sink.Cancelled(c)
	}
	q.lease, q.trim = 0, 0
}

// Delete deletes the queue with its messages, which it counts, and cancels its
// consumers.
func (q *Queue) Delete(ifUnused, ifEmpty bool) (messages int, err error) {
	if ifUnused && q.consumers.count() > 0 {
		return 0, ErrInUse
	}
	if ifEmpty && q.ready > 0 {
		return 0, ErrNotEmpty
	}
	messages = q.ready
	if q.departing.count() > 0 {
		q.departNow(q.mailbox.clock())
	}
	q.close()
	return messages, nil
}

// level returns the list a message of that priority belongs to.
func (q *Queue) level(priority uint8) int { return min(int(priority), q.cfg.Levels) }

// open makes room for messages when the first one comes.
func (q *Queue) open() {
	if q.contents == nil {
		q.contents = &contents{levels: make([]fifo, q.cfg.Levels+1)}
	}
}

// topLevel returns the highest level that holds ready messages, of which there must
// be some.
func (q *Queue) topLevel() int {
	l := len(q.levels) - 1
	for q.levels[l].ready == 0 {
		l--
	}
	return l
}
