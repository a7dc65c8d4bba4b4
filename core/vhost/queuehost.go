package vhost

import (
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// queueHost is a vhost as its queues call it, from their turns. The type of its own hides these methods from VHost's users.
type queueHost VHost

// QueueHost returns the methods that queues of this vhost call.
func (v *VHost) QueueHost() queue.Host { return (*queueHost)(v) }

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
	(*VHost)(h).removeQueue(m)
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
		"please report it; unless it is deleted, the disk keeps its messages until then, and what was written after them",
		"queue", from.Name, "exchange", from.Schedule != nil, "panic", v, "stack", string(stack))
}

func refOf(q *queue.Config) telemetry.QueueRef {
	return telemetry.QueueRef{VHost: q.VHost, Queue: q.Name, Strategy: q.Strategy, Schedule: q.Schedule != nil}
}

// warnOfCycle logs a cycle of dead letters the first time.
func (v *VHost) warnOfCycle(h *death.History, queue string) {
	if v.cycles.First(h, queue) {
		v.log.Warn(h.Warning(queue), "queue", queue) //nolint:sloglint // RabbitMQ's text: operators look for it
	}
}
