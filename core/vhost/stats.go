package vhost

import (
	"sync/atomic"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Stats are the counts of a vhost.
type Stats struct {
	Exchanges, Queues int
	// Dead counts, by reason, what became of the messages that queues gave up to be dead-lettered.
	Dead [hook.Reasons]DeadLetters
}

// DeadLetters counts dead-lettered messages; each is counted once.
type DeadLetters struct {
	Routed     uint64 // entered at least one queue
	Unroutable uint64 // no queue was bound
	Disabled   uint64 // there was no such exchange
	Cycle      uint64 // every queue it was routed to would have made it go round for ever
}

// Stats returns the counts.
func (v *VHost) Stats() Stats {
	v.mu.RLock()
	s := Stats{Exchanges: len(v.exchanges), Queues: len(v.queues)}
	v.mu.RUnlock()
	for reason := range s.Dead {
		n := &v.deaths[reason]
		s.Dead[reason] = DeadLetters{
			Routed: n[routed].Load(), Unroutable: n[unroutable].Load(), Disabled: n[disabled].Load(), Cycle: n[cycle].Load(),
		}
	}
	return s
}

// Churn counts queues that came and went since the broker was started.
type Churn struct{ QueuesDeclared, QueuesCreated, QueuesDeleted atomic.Uint64 }

// Churn returns the vhost's counts, which go on counting.
func (v *VHost) Churn() *Churn { return &v.churn }

// outcome is what can become of a dead letter.
type outcome uint8

const (
	routed outcome = iota
	unroutable
	disabled
	cycle
	outcomeCount
)

// outcomes counts dead letters of one run.
type outcomes [hook.Reasons][outcomeCount]uint64

// tally counts all dead letters of a vhost.
type tally [hook.Reasons][outcomeCount]atomic.Uint64

func (t *tally) add(o *outcomes) {
	for reason := range o {
		for outcome, n := range o[reason] {
			if n > 0 {
				t[reason][outcome].Add(n)
			}
		}
	}
}
