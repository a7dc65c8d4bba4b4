package queue

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Whoever follows what becomes of messages is told by the host, in batches: of
// those that leave for a reason, always, and of decisions about those that are
// traced.

// removalOf describes a message of the queue that leaves. Its record must be there
// still.
func (q *Queue) removalOf(now hook.Instant, p pick, r *record, v *hook.Verdict) telemetry.Removal {
	f := &q.levels[p.level]
	return telemetry.Removal{
		Exchange: r.exchange, Key: r.key, Props: r.props, Size: len(r.body),
		Enqueued: min(r.enqueued, now), Deadline: f.deadline(p.seq),
		Reason: v.Reason, Target: targetOf(v), Digest: r.digest,
		Underway: q.discards.underway(now, p.ref()), Traced: f.slot(p.seq).flags&traced != 0,
	}
}

// refusedRemoval describes a message that leaves as it comes.
func refusedRemoval(now hook.Instant, m *Message, v *hook.Verdict) telemetry.Removal {
	return telemetry.Removal{
		Exchange: amqp.BytesOf(m.Routing.Exchange), Key: amqp.BytesOf(m.Routing.Key), Props: m.Props, Size: len(m.Body),
		Enqueued: now, Deadline: v.Deadline, Reason: v.Reason, Target: targetOf(v), Digest: v.Digest,
		Traced: m.Flags&Traced != 0,
	}
}

// targetOf is where a message goes, nil for one that is dropped.
func targetOf(v *hook.Verdict) *hook.Target {
	if v.Action != hook.Route {
		return nil
	}
	return v.Target
}

// fillOutcomes fills in what became of those with a target, which are dead, in order.
func fillOutcomes(left []telemetry.Removal, dead []DeadLetter) {
	for i := range left {
		if left[i].Target != nil {
			left[i].Outcome = dead[0].Outcome
			dead = dead[1:]
		}
	}
}

// reportRemovals tells of messages that leave and forgets the slice, which is the one to
// work in.
func (q *Queue) reportRemovals(now hook.Instant, left []telemetry.Removal) {
	if len(left) > 0 {
		q.host.Removed(q.cfg, now, left)
	}
	clear(left)
	q.buf.left = left[:0]
}

// decided tells what was decided about a message that is traced.
func (q *Queue) decided(now hook.Instant, d *hook.Decision, m *telemetry.Message) {
	m.VHost = q.cfg.VHost
	q.host.Decided(q.cfg, now, m, d)
}
