package queue

import (
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Config describes a queue. It never changes: a queue whose policies change gets
// another one, see [Mailbox.Reconfigure].
type Config struct {
	*Profile
	Name       string
	Durable    bool
	Exclusive  bool
	AutoDelete bool
	Storage    *Storage  // of a durable queue's persistent messages; nil means in memory only
	Schedule   *Schedule // nil means that it is an ordinary queue
}

// Profile is what follows from a queue's arguments and policies. Queues that are alike
// share one, which never changes.
type Profile struct {
	VHost         string
	Kind          string // [Classic] or [Quorum]
	SingleActive  bool
	Levels        int   // highest priority, 1 to 255; 0 means that it is not a priority queue
	DeliveryLimit int64 // returns that a message survives; negative means any number
	// DeliveryLease is how long a delivery may stay unsettled before its message comes
	// back by itself, unless the consumer has a lease of its own; 0 means any time.
	DeliveryLease time.Duration
	Args          hook.Args
	Policies      policies.Applied
	// Settings returns an effective setting, named as policies name it: the
	// arguments merged with the policies. It may be called from any goroutine.
	Settings func(name string) (any, bool)
	Strategy string // the expiry strategy in force
	// Hooks remembers the plugins' hooks for queues with these settings, which all get
	// them from one chain.
	Hooks chain.Memo
}

// Queue types.
const (
	Classic = "classic"
	Quorum  = "quorum"
)

// Type is a queue type as a number, to count by.
type Type uint8

// The types.
const (
	ClassicType Type = iota
	QuorumType
	Types
)

// TypeOf returns the number of a [Profile]'s Kind.
func TypeOf(kind string) Type {
	if kind == Quorum {
		return QuorumType
	}
	return ClassicType
}
