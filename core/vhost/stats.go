package vhost

import (
	"sync/atomic"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Stats counts the objects in a vhost, and the events since the broker was started.
type Stats struct {
	Exchanges, Queues, Connections int

	// Removals counts the messages that left queues, by the expiry strategy of the queue. Users choose the names of strategies:
	// see [telemetry.Strategies].
	Removals      map[string]RemovalCounts
	Refused       uint64 // messages; their publishers got basic.nack
	QueuesExpired uint64
}

// RemovalCounts counts removed messages by reason and outcome. Each message is counted once, when its removal is final.
type RemovalCounts [hook.Reasons][telemetry.Outcomes]uint64

// DeadLetterStrategy is RabbitMQ's classification of a message that left its queue for a reason.
type DeadLetterStrategy uint8

// The dead-letter strategies.
const (
	DeadLetterDisabled DeadLetterStrategy = iota // it had no target, or the target's exchange does not exist
	AtMostOnce                                   // it may be lost on its way
	AtLeastOnce                                  // it stays until all targets confirm
	DeadLetterStrategies
)

// String returns RabbitMQ's name.
func (s DeadLetterStrategy) String() string {
	return [DeadLetterStrategies]string{"disabled", "at_most_once", "at_least_once"}[s]
}

// DeadLetterCounts counts removed messages by the type of their queue.
type DeadLetterCounts [queue.Types][DeadLetterStrategies][hook.Reasons]uint64

// Churn counts the queues that were declared, created and deleted since the broker was started.
type Churn struct{ QueuesDeclared, QueuesCreated, QueuesDeleted uint64 }

// removalCounters counts removals. Any goroutine may use it; the zero value is empty.
type removalCounters struct {
	byStrategy telemetry.Strategies[strategyCounters]
	byType     [queue.Types][DeadLetterStrategies][hook.Reasons]atomic.Uint64
	confirmed  [queue.Types]atomic.Uint64
}

type strategyCounters [hook.Reasons][telemetry.Outcomes]atomic.Uint64

// add counts removals from one queue. Nearly always they have the same reason and outcome, and are counted together.
func (c *removalCounters) add(from *queue.Config, rs []telemetry.Removal) {
	counts := c.byStrategy.Of(from.Strategy, func() *strategyCounters { return new(strategyCounters) })
	kind := queue.TypeOf(from.Kind)
	ofType := &c.byType[kind]
	for len(rs) > 0 {
		r, strategy, n := &rs[0], deadLetterStrategyOf(&rs[0]), 1
		for n < len(rs) && rs[n].Reason == r.Reason && rs[n].Outcome == r.Outcome && deadLetterStrategyOf(&rs[n]) == strategy {
			n++
		}
		counts[r.Reason][r.Became()].Add(uint64(n))
		ofType[strategy][r.Reason].Add(uint64(n))
		if strategy == AtLeastOnce && r.Became() == telemetry.DeadLettered {
			c.confirmed[kind].Add(uint64(n))
		}
		rs = rs[n:]
	}
}

func deadLetterStrategyOf(r *telemetry.Removal) DeadLetterStrategy {
	switch {
	case r.Target == nil || r.Outcome == telemetry.NoExchange:
		return DeadLetterDisabled
	case r.Target.AtLeastOnce:
		return AtLeastOnce
	}
	return AtMostOnce
}

func (c *removalCounters) readStrategies() map[string]RemovalCounts {
	all := c.byStrategy.All()
	read := make(map[string]RemovalCounts, len(all))
	for strategy, counts := range all {
		var n RemovalCounts
		for reason := range counts {
			for outcome := range counts[reason] {
				n[reason][outcome] = counts[reason][outcome].Load()
			}
		}
		read[strategy] = n
	}
	return read
}

// readTypes returns the counts, and how many at-least-once dead letters were confirmed, by the type of their queue.
func (c *removalCounters) readTypes() (counts DeadLetterCounts, confirmed [queue.Types]uint64) {
	for kind := range counts {
		confirmed[kind] = c.confirmed[kind].Load()
		for strategy := range counts[kind] {
			for reason := range counts[kind][strategy] {
				counts[kind][strategy][reason] = c.byType[kind][strategy][reason].Load()
			}
		}
	}
	return counts, confirmed
}
