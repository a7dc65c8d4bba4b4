package queue

import (
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Config describes a queue. It never changes: when policies change, the queue gets
// another Config, see [Mailbox.Reconfigure].
type Config struct {
	*Profile
	Name       string
	Durable    bool
	Exclusive  bool
	AutoDelete bool
	Storage    *Storage  // for persistent messages; nil means that they are only in memory
	Schedule   *Schedule // nil for an ordinary queue
}

// Profile is the part of a Config that follows from a queue's arguments and policies.
// Queues with equal ones share a Profile, which never changes.
type Profile struct {
	VHost         string
	Kind          string // [Classic] or [Quorum]
	SingleActive  bool
	Levels        int   // highest priority, 1 to 255; 0 means that this is no priority queue
	DeliveryLimit int64 // how many failed deliveries a message survives; negative means any number
	// DeliveryLease is how long a delivery may stay unsettled before its message is
	// returned to the queue; 0 means without limit. A consumer's own lease takes
	// precedence.
	DeliveryLease time.Duration
	Args          hook.Args
	Policies      policies.Applied
	// Settings returns an effective setting, named as policies name it: the
	// arguments merged with the policies. It may be called from any goroutine.
	Settings func(name string) (any, bool)
	Strategy string // the expiry strategy in force
	// Hooks caches the hooks that queues with this Profile get from their chain.
	Hooks chain.Memo
}

// Queue types.
const (
	Classic = "classic"
	Quorum  = "quorum"
)

// Type is a queue type as a number, for counters by type.
type Type uint8

// The types.
const (
	ClassicType Type = iota
	QuorumType
	Types
)

// TypeOf returns the Type for a [Profile]'s Kind.
func TypeOf(kind string) Type {
	if kind == Quorum {
		return QuorumType
	}
	return ClassicType
}
