package vhost

import (
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

func placeOf(q *queue.Config) telemetry.QueueRef {
	return telemetry.QueueRef{VHost: q.VHost, Queue: q.Name, Strategy: q.Strategy}
}

// Removed counts messages that left a queue, and tells of them. It is part of [queue.Host].
func (v *VHost) Removed(from *queue.Config, now hook.Instant, ls []telemetry.Removal) {
	v.removals.add(from.Strategy, ls)
	v.deadLetters.add(from.Kind, ls)
	p := placeOf(from)
	v.telemetry.Removed(&p, now, ls)
}

// Refused counts messages that a queue did not take. It is part of [queue.Host].
func (v *VHost) Refused(_ *queue.Config, messages int) { v.refused.Add(uint64(messages)) }

// Decided tells what a policy decided about a message that is traced. It is part of [queue.Host].
func (v *VHost) Decided(from *queue.Config, now hook.Instant, m *telemetry.Message, d *hook.Decision) {
	if s := v.telemetry.Spans(); s != nil {
		p := placeOf(from)
		s.Decided(&p, now, m, d)
	}
}

// Deleted takes a queue that deleted itself out of the table. It is part of [queue.Host].
func (v *VHost) Deleted(s *queue.Mailbox, why queue.Deletion) {
	v.removeQueue(s)
	if why.Reason != queue.DeletedExpired {
		return
	}
	v.expiredQueues.Add(1)
	v.expiry.expired(why.At, s.Config(), &why)
	p := placeOf(s.Config())
	v.telemetry.QueueExpired(&p, why.At, &telemetry.QueueEnd{
		LastUse: why.LastUse, Lease: why.Lease, Messages: why.Messages, DeadLettered: why.DeadLettered,
	})
}
