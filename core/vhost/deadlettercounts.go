package vhost

import (
	"sync/atomic"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// DeadLetterStrategy is how much care is taken of a message that leaves its queue for a reason, as RabbitMQ counts them.
type DeadLetterStrategy uint8

// The kinds of care.
const (
	DeadLetterDisabled DeadLetterStrategy = iota // none: it was not to be dead-lettered, or to an exchange that does not exist
	AtMostOnce                                   // it may be lost on its way
	AtLeastOnce                                  // it stays until it has arrived
	DeadLetterStrategies
)

// String returns RabbitMQ's name.
func (c DeadLetterStrategy) String() string {
	return [DeadLetterStrategies]string{"disabled", "at_most_once", "at_least_once"}[c]
}

// DeadLetterCounts counts messages that left queues for a reason, by the type of the queue.
type DeadLetterCounts [queue.Types][DeadLetterStrategies][hook.Reasons]uint64

// DeadLetters returns what was counted since the broker was started, and how many of those of which AtLeastOnce care was taken have
// arrived.
func (v *VHost) DeadLetters() (b DeadLetterCounts, arrived uint64) {
	for kind := range b {
		for care := range b[kind] {
			for reason := range b[kind][care] {
				b[kind][care][reason] = v.deadLetters.left[kind][care][reason].Load()
			}
		}
	}
	return b, v.deadLetters.arrived.Load()
}

// deadLetterCounts is what Buried returns while it grows.
type deadLetterCounts struct {
	left    [queue.Types][DeadLetterStrategies][hook.Reasons]atomic.Uint64
	arrived atomic.Uint64
}

// add counts messages of one queue. Nearly always all of them left in the same way.
func (n *deadLetterCounts) add(kind string, ls []telemetry.Removal) {
	of := &n.left[queue.TypeOf(kind)]
	for len(ls) > 0 {
		same, care := 1, careOf(&ls[0])
		for same < len(ls) && ls[same].Reason == ls[0].Reason && careOf(&ls[same]) == care {
			same++
		}
		of[care][ls[0].Reason].Add(uint64(same))
		if care == AtLeastOnce {
			n.arrived.Add(arrived(ls[:same]))
		}
		ls = ls[same:]
	}
}

func careOf(l *telemetry.Removal) DeadLetterStrategy {
	switch {
	case l.Target == nil || l.Outcome == telemetry.NoExchange:
		return DeadLetterDisabled
	case l.Target.AtLeastOnce:
		return AtLeastOnce
	}
	return AtMostOnce
}

func arrived(ls []telemetry.Removal) (n uint64) {
	for i := range ls {
		if ls[i].Outcome == telemetry.DeadLettered {
			n++
		}
	}
	return n
}
