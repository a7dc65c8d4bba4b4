package queue

import (
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// Host is what a queue needs from its vhost. It is called on the queue's turn. Slices
// are valid during the call.
type Host interface {
	// DeadLetter publishes dead letters. Every batch made of them gets t, and t.Expect is
	// called before the first is published. A queue that has a dead letter does not get it
	// again, see [DeadLetter.Has].
	DeadLetter(from *Config, now hook.Instant, ds []DeadLetter, t Tracking)
	// Removed reports messages that have left for a reason, each once and for good. It also
	// reports held messages that are ready from now on, with [telemetry.Ready]: they stay.
	// What became of dead letters that a queue may refuse is reported later, by any goroutine.
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
	Lease        hook.Instant // when it ran out; 0 means that it did not
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

// DeadLetter is a message that leaves with a Route verdict, or for one of the reasons
// that are no verdicts of plugins: [hook.ReasonRedriven] writes no death, but says in the
// header x-redriven that the message was moved.
type DeadLetter struct {
	Exchange, Key []byte
	BCC           []string
	Props, Body   []byte
	Flags         Flags
	Reason        hook.Reason
	Target        *hook.Target
	Routing       *RoutingInfo // what consumers see that it was published with; nil means what follows from Target
	Seq           uint64       // Message.Seq for the tracking Publisher
	// Admitted says that a filter admitted the message when it was sent before, at least
	// once: filters are not asked again. The host sets it when one does.
	Admitted bool
	have     []uint64 // queues that have the message already, by Mailbox.order
	// The host sets how many queues the message went to, which ones (nil: none), and its
	// outcome. What an exchange holds counts, but is no queue with a name.
	Sent int
	// MayBeRefused, which the host sets, says that a queue which the message goes to may
	// refuse it: see [Mailbox.MayRefuse].
	MayBeRefused bool
	Entered      *telemetry.Entered
	Outcome      telemetry.Outcome
}

// Partly reports whether some queues have the message already: it was sent there before,
// and stayed because another queue refused it.
func (d *DeadLetter) Partly() bool { return len(d.have) > 0 }

// Has reports whether a queue has the message already.
func (d *DeadLetter) Has(m *Mailbox) bool { return slices.Contains(d.have, m.order) }
