package queue

import (
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// Host is a queue's vhost. It is called on the queue's turn. Slices are valid during the
// call.
type Host interface {
	// DeadLetter publishes dead letters. Each batch made of them gets t, and t.Expect is
	// called before the first batch is published. No dead letter is sent to a queue that
	// has it already: see [DeadLetter.Has].
	DeadLetter(from *Config, now hook.Instant, ds []DeadLetter, t Tracking)
	// Removed reports messages that have left for a reason, each once. It also reports
	// held messages that have become ready and stay, with the outcome [telemetry.Ready].
	// If a target may refuse a dead letter, Removed is called when all its targets have
	// answered, from any goroutine.
	Removed(from *Config, now hook.Instant, ls []telemetry.Removal)
	// Refused reports how many messages were refused: their publishers get basic.nack.
	Refused(from *Config, messages int)
	// Decided reports what a policy decided about a traced message.
	Decided(from *Config, now hook.Instant, m *telemetry.Message, d *guest.Decision)
	// Deleted reports that the queue deleted itself. Its mailbox rejects tasks already.
	Deleted(m *Mailbox, why Deletion)
}

// Deletion is why and how a queue deleted itself.
type Deletion struct {
	Reason       DeletionReason
	At           hook.Instant
	LastUse      hook.Instant
	Lease        hook.Instant // when the lease ran out; 0 means that it did not
	Messages     int          // dropped with the queue, or while it ended
	DeadLettered int          // before that
}

// Idle returns for how long the queue had not been used.
func (d *Deletion) Idle() time.Duration { return d.At.Sub(d.LastUse) }

// DeletionReason says why a queue deleted itself.
type DeletionReason uint8

// The reasons for which a queue deletes itself.
const (
	DeletedExpired    DeletionReason = iota // its lease ran out
	DeletedAutoDelete                       // its last consumer left
)

// DeadLetter is a message that leaves its queue for another one: by the verdict Route, by
// a redrive, or by a release. A redrive ([hook.ReasonRedriven]) adds no death; it adds
// the header x-redriven.
type DeadLetter struct {
	Exchange, Key []byte
	BCC           []string
	Props, Body   []byte
	Flags         Flags
	Reason        hook.Reason
	Target        *hook.Target
	Routing       *RoutingInfo // the routing info that consumers see; nil means that of Target
	Seq           uint64       // becomes Message.Seq, by which the batch's Tracking finds the message
	// Admitted says that a filter admitted the message on an earlier attempt, so filters
	// are not asked again. The host sets it when a filter admits the message.
	Admitted bool
	have     []uint64 // queues that have the message already, by Mailbox.order
	// The host sets Sent (to how many queues the message went), Entered (which ones; nil
	// means none) and Outcome. An exchange that holds the message counts in Sent, but has
	// no name in Entered.
	Sent int
	// MayBeRefused, set by the host, says that one of the queues that the message goes to
	// may refuse it: see [Mailbox.MayRefuse].
	MayBeRefused bool
	Entered      *telemetry.Entered
	Outcome      telemetry.Outcome
}

// Partly reports whether some queues have the message already, because it was sent before
// and another queue refused it.
func (d *DeadLetter) Partly() bool { return len(d.have) > 0 }

// Has reports whether a queue has the message already.
func (d *DeadLetter) Has(m *Mailbox) bool { return slices.Contains(d.have, m.order) }
