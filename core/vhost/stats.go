package vhost

import (
	"sync/atomic"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Stats are the counts of a vhost. Those that grow do so for as long as the broker runs, whatever becomes of the queues.
type Stats struct {
	Exchanges, Queues int

	// Removals counts the messages that left queues for a reason, by the expiry strategy of the queue. Users choose the names
	// of strategies: see [telemetry.Strategies].
	Removals      map[string]RemovalCounts
	Refused       uint64 // messages that did not get in: their publishers got a nack
	QueuesExpired uint64
}

// RemovalCounts counts messages that left for a reason, by what became of them. Each is counted once, when it has left for good.
type RemovalCounts [hook.Reasons][telemetry.Outcomes]uint64

// Add adds what others have counted.
func (e *RemovalCounts) Add(o *RemovalCounts) {
	for reason := range e {
		for outcome := range e[reason] {
			e[reason][outcome] += o[reason][outcome]
		}
	}
}

// Stats returns the counts.
func (v *VHost) Stats() Stats {
	v.mu.RLock()
	s := Stats{Exchanges: len(v.exchanges), Queues: len(v.queues)}
	v.mu.RUnlock()
	s.Removals, s.Refused, s.QueuesExpired = v.removals.read(), v.refused.Load(), v.expiredQueues.Load()
	return s
}

// Churn counts queues that came and went since the broker was started.
type Churn struct{ QueuesDeclared, QueuesCreated, QueuesDeleted atomic.Uint64 }

// Churn returns the vhost's counts, which go on counting.
func (v *VHost) Churn() *Churn { return &v.churn }

// removalCounts counts messages that left, by strategy. Any goroutine may use it; the zero value is empty.
type removalCounts struct {
	telemetry.Strategies[exitCounts]
}

type exitCounts [hook.Reasons][telemetry.Outcomes]atomic.Uint64

// add counts messages of one queue. Nearly always all of them left in the same way.
func (e *removalCounts) add(strategy string, ls []telemetry.Removal) {
	counts := e.Of(strategy, func() *exitCounts { return new(exitCounts) })
	for len(ls) > 0 {
		n := 1
		for n < len(ls) && ls[n].Reason == ls[0].Reason && ls[n].Outcome == ls[0].Outcome {
			n++
		}
		counts[ls[0].Reason][ls[0].Outcome].Add(uint64(n))
		ls = ls[n:]
	}
}

func (e *removalCounts) read() map[string]RemovalCounts {
	all := e.All()
	read := make(map[string]RemovalCounts, len(all))
	for strategy, counts := range all {
		read[strategy] = counts.read()
	}
	return read
}

func (c *exitCounts) read() (e RemovalCounts) {
	for reason := range c {
		for outcome := range c[reason] {
			e[reason][outcome] = c[reason][outcome].Load()
		}
	}
	return e
}
