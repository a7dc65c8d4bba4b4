package vhost

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// queueHost has the methods that the queues of a vhost call from their turns. It counts and
// reports the fates of messages, and sends dead letters.
type queueHost struct {
	topology  *topology
	queues    *queues
	log       *slog.Logger
	telemetry *telemetry.Recorder

	removals      removalCounters
	refused       atomic.Uint64 // messages
	expiredQueues atomic.Uint64
	cycles        death.Warnings
	expiry        expiryLog
	tooLarge      lineBudget // of messages that fit no frame
}

var _ queue.Host = (*queueHost)(nil)

// Removed counts and reports messages that left a queue.
func (h *queueHost) Removed(from *queue.Config, now hook.Instant, rs []telemetry.Removal) {
	h.removals.add(from, rs)
	ref := refOf(from)
	h.telemetry.Removed(&ref, now, rs)
	h.warnTooLarge(from, now, rs)
}

// warnTooLarge logs messages that left because they fit no frame.
func (h *queueHost) warnTooLarge(from *queue.Config, now hook.Instant, rs []telemetry.Removal) {
	for i := range rs {
		r := &rs[i]
		if r.Reason != hook.ReasonTooLarge {
			continue
		}
		if single, unlogged := h.tooLarge.admit(now); single {
			h.log.Warn("a message fits the frames of no consumer", "queue", from.Name, "reason", r.Reason.String(), "outcome", r.Became().String(),
				"exchange", string(r.Exchange), "routing_key", string(r.Key), "properties_bytes", len(r.Props), "messages_unlogged", unlogged)
		}
	}
}

// Refused counts messages that a queue refused.
func (h *queueHost) Refused(_ *queue.Config, messages int) { h.refused.Add(uint64(messages)) }

// Decided reports a policy's decision about a traced message.
func (h *queueHost) Decided(from *queue.Config, now hook.Instant, m *telemetry.Message, d *guest.Decision) {
	if s := h.telemetry.Spans(); s != nil {
		ref := refOf(from)
		s.Decided(&ref, now, m, d)
	}
}

// Deleted removes a queue that deleted itself from the table.
func (h *queueHost) Deleted(m *queue.Mailbox, why queue.Deletion) {
	h.queues.remove(m)
	if why.Reason != queue.DeletedExpired {
		return
	}
	h.expiredQueues.Add(1)
	h.expiry.expired(why.At, m.Config(), &why)
	ref := refOf(m.Config())
	h.telemetry.QueueExpired(&ref, why.At, &telemetry.QueueEnd{
		LastUse: why.LastUse, Lease: why.Lease, Messages: why.Messages, DeadLettered: why.DeadLettered,
	})
}

// Faulted logs a panic that stopped a queue.
func (h *queueHost) Faulted(from *queue.Config, v any, stack []byte) {
	h.log.Error("a queue is stopped until the broker is started again, because of an error in the broker: "+
		"please report the error; until the restart, or the deletion of the queue, the disk keeps its messages and everything written after them",
		"queue", from.Name, "exchange", from.Schedule != nil, "panic", v, "stack", string(stack))
}

// counts returns the removals by strategy, the refused messages and the expired queues.
func (h *queueHost) counts() (removals map[string]RemovalCounts, refused, expired uint64) {
	return h.removals.readStrategies(), h.refused.Load(), h.expiredQueues.Load()
}

// deadLetters returns the removals by the type of their queue, and how many at-least-once dead letters were confirmed.
func (h *queueHost) deadLetters() (DeadLetterCounts, [queue.Types]uint64) {
	return h.removals.readTypes()
}

func refOf(q *queue.Config) telemetry.QueueRef {
	return telemetry.QueueRef{VHost: q.VHost, Queue: q.Name, Strategy: q.Strategy, Schedule: q.Schedule != nil}
}

// warnOfCycle logs a cycle of dead letters the first time.
func (h *queueHost) warnOfCycle(history *death.History, queue string) {
	if h.cycles.First(history, queue) {
		h.log.Warn(history.Warning(queue), "queue", queue) //nolint:sloglint // RabbitMQ's text: operators look for it
	}
}

// expiryLog logs queues that expired: one line each while they are few, and their number when they are many.
type expiryLog struct {
	log *slog.Logger
	lineBudget
}

// lineBudget limits the lines of a kind that are logged.
type lineBudget struct {
	mu       sync.Mutex // guards the fields below
	tokens   int        // lines that may be logged now
	refilled hook.Instant
	unlogged int // expiries without a line since the last line
}

const (
	expiryBurst  = 20                     // lines at once
	expiryRefill = 100 * time.Millisecond // for each further line
)

func (l *expiryLog) expired(now hook.Instant, q *queue.Config, why *queue.Deletion) {
	single, unlogged := l.admit(now)
	switch {
	case single:
		l.log.Info("queue expired", "queue", q.Name, "reason", hook.ReasonQueueExpired.String(), "idle", why.Idle(),
			"messages_dropped", why.Messages, "messages_dead_lettered", why.DeadLettered, "expired_unlogged", unlogged)
	case powerOfTen(unlogged):
		l.log.Info("many queues expire", "reason", hook.ReasonQueueExpired.String(), "expired_unlogged", unlogged)
	}
}

// admit reports whether a line may be logged, and how many lines were left out since the last one.
func (l *lineBudget) admit(now hook.Instant) (single bool, unlogged int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if more := int(now.Sub(l.refilled) / expiryRefill); more > 0 || l.refilled == 0 {
		l.refilled = now
		l.tokens = min(l.tokens+max(more, 0), expiryBurst)
	}
	if l.tokens == 0 {
		l.unlogged++
		return false, l.unlogged
	}
	l.tokens--
	unlogged, l.unlogged = l.unlogged, 0
	return true, unlogged
}

// powerOfTen reports whether n is 10, 100 and so on.
func powerOfTen(n int) bool {
	for n > 10 && n%10 == 0 {
		n /= 10
	}
	return n == 10
}
