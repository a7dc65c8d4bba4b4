package queue

import (
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// RoutingInfo is the exchange and the keys that a message was published with. One value
// serves all messages that a channel publishes to the same exchange and key. It never
// changes.
type RoutingInfo struct {
	Exchange string
	Key      string
	CC, BCC  []string // further routing keys; those of BCC were removed from the headers
}

// Message is a routed message before it is in a queue. Props has the flags and values
// from the wire. Props and Body alias blocks of the batch.
type Message struct {
	Routing    *RoutingInfo
	Props      []byte
	Body       []byte
	Block      *block.Block // the block of the batch that Body lies in; nil means unknown
	Seq        uint64       // the publisher's confirm sequence number, or DeadLetter.Seq; 0 means none
	Expiration hook.Limit
	Wait       Wait
	Priority   uint8
	Flags      Flags
	// Planned means that Wait comes from a plan that the exchange's schedule has made.
	// The message goes only to that exchange's queue, which does not ask for a plan
	// again.
	Planned bool
	// Released means that an exchange has released the message, and all others of its
	// batch. If the queue refuses it, the message is lost.
	Released bool
	// Passes means that the message was routed by exchanges that do not hold it. The
	// queue of such an exchange only cancels the held message with the same ID. With
	// Planned, no exchange holds the message.
	Passes bool
}

// Wait is how long a publisher wants its message held; 0 means that it is not held.
type Wait int64

// WaitFor returns a wait of the positive duration d, which begins when the message enters
// a queue.
func WaitFor(d time.Duration) Wait { return Wait(-d) }

// WaitUntil returns the wait until t.
func WaitUntil(t hook.Instant) Wait { return Wait(max(t, 0)) }

// Holds reports whether a message that enters a queue now is held.
func (w Wait) Holds(now hook.Instant) bool { return w.until(now) > now }

// until returns the end of the wait for a message that enters a queue now.
func (w Wait) until(now hook.Instant) hook.Instant {
	if w < 0 {
		return now.Add(time.Duration(-w))
	}
	return hook.Instant(w)
}

// Flags are a message's flags.
type Flags uint8

// The flags of a message that a queue stores. They have the same bits in a slot.
const (
	Persistent      = Flags(persistent)      // delivery-mode 2
	Redelivered     = Flags(redelivered)     // it was delivered before
	HasDeathHistory = Flags(hasDeathHistory) // the broker wrote its x-death header
	Traced          = Flags(traced)          // its headers have a trace context, and its spans are recorded
)

// The flags that a message has only until it is in a queue.
const (
	Refused     Flags = 1 << 3 // set by the queue: answer basic.nack
	HasPriority Flags = 1 << 4 // the publisher gave a priority
	HasHeaders  Flags = 1 << 6 // a headers table is present
	// Mandatory is for a message that only cancels another one: it is returned if it
	// finds none. Then the queue leaves the flag set. A queue without a schedule ignores
	// the flag.
	Mandatory Flags = 1 << 7
)

// Publisher awaits the confirms of its batches.
type Publisher interface {
	// Confirmed is called once for a batch, when every message in it is in the queue or
	// has left it; messages with the flag Refused were kept out. It may be called from
	// any goroutine and must not retain b.
	Confirmed(b *Batch)
	// Failed is called instead of Confirmed when it is unknown whether a restart finds
	// the messages: they must not be confirmed.
	Failed(b *Batch, err error)
}

// Tracking follows a batch until it is durable or has failed. At most one of its exported
// fields is set.
type Tracking struct {
	Publisher Publisher        // gets the confirms; nil means none are awaited
	Removal   *DeferredRemoval // removes dead letters from their old queue; nil means none

	// kept has the messages, if their old queue keeps those that are refused. A queue
	// that refuses one must not dead-letter it itself.
	kept   *transfer
	from   *Queue      // the sender of the dead letters, until Expect; nil if they are sent even without space
	leaves *Queue      // the sender of dead letters that are sent at most once, until Expect; nil otherwise
	report *lateReport // the report of such dead letters; nil means that none waits for an answer
}

// Expect is called with dead letters that were routed, and the number of batches that
// have them, before the first batch is published. If it reports false, there is no space:
// none may be published, and their queue keeps the messages.
func (t *Tracking) Expect(batches int, ds []DeadLetter) bool {
	if from := t.from; from != nil && !from.mailbox.broker.underway.fits(ds) {
		from.buf.unsent = true
		return false
	}
	t.from = nil
	if t.kept != nil {
		t.kept.expect(ds)
	}
	if t.leaves != nil {
		t.report = newLateReport(t.leaves, batches, ds)
		t.leaves.buf.removals.later, t.leaves = t.report, nil
	}
	t.Removal.expect(batches, ds)
	return true
}

// once reports whether the batch has dead letters that are sent at most once. A queue
// that refuses such a message and dead-letters it itself has taken it.
func (t *Tracking) once() bool {
	return t.report != nil || t.Removal != nil
}

// awaited reports whether the outcome of the messages is awaited. The count of bytes
// under way and a late report do not matter here.
func (t *Tracking) awaited() bool { return t.Publisher != nil || t.Removal != nil || t.kept != nil }

// Batch is messages from one publisher to one queue. It has one owner: Publish passes it
// to the queue, which returns it to the pool.
type Batch struct {
	Messages []Message
	Tracking
	blocks   []*block.Block
	to       *Mailbox // the queue that dead letters were published to
	traffic  *traffic // the traffic that counts it; nil = none does
	underway int64    // its bytes in traffic
}

var batches = sync.Pool{New: func() any { return new(Batch) }}

// NewBatch returns an empty batch.
func NewBatch() *Batch { return batches.Get().(*Batch) }

// Hold retains a block until the batch is released. Holding the same block again costs
// nothing.
func (b *Batch) Hold(k *block.Block) {
	if n := len(b.blocks); n > 0 && b.blocks[n-1] == k {
		return
	}
	k.Retain()
	b.blocks = append(b.blocks, k)
}

// Discard releases a batch that is not published.
func (b *Batch) Discard() { b.release() }

// release returns the batch to the pool and releases its blocks.
func (b *Batch) release() {
	for i, k := range b.blocks {
		k.Release()
		b.blocks[i] = nil
	}
	clear(b.Messages)
	const large = 4096 // messages: a batch that grew larger is not kept
	if cap(b.Messages) > large {
		b.Messages = nil
	}
	b.Messages, b.blocks, b.Tracking, b.to = b.Messages[:0], b.blocks[:0], Tracking{}, nil
	b.traffic, b.underway = nil, 0
	batches.Put(b)
}

// complete passes the batch's outcome to its tracking, and releases it.
func (b *Batch) complete(err error) {
	switch {
	case b.Publisher == nil:
	case err == nil:
		b.Publisher.Confirmed(b)
	default:
		b.Publisher.Failed(b, err)
	}
	if b.Removal != nil {
		b.Removal.arrived(b, err)
	}
	if b.kept != nil {
		b.kept.answer(b, err)
	}
	if b.report != nil {
		b.report.arrived(b)
	}
	bytes, t := b.underway, b.traffic
	b.release()
	if bytes > 0 {
		t.remove(bytes)
	}
}

// batchCommit completes a batch when its operations are durable.
type batchCommit Batch

var _ journal.Completer = (*batchCommit)(nil)

// Durable implements [journal.Completer].
func (c *batchCommit) Durable() { (*Batch)(c).complete(nil) }

// Failed implements [journal.Completer].
func (c *batchCommit) Failed(err error) { (*Batch)(c).complete(err) }
