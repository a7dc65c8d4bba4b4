package queue

import (
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// While space is low, each message that comes from another queue is committed by itself: a consumer may settle it before its commit is
// written, and the journal writes a commit whole or, once all that it brings is settled, without that. One that moved two messages, of
// which one is settled, would leave that one in its old place until there is space.

// comesApart reports whether the messages of a batch must be committed one by one. If not, the batch has one extent, from before space
// was low.
func (q *Queue) comesApart(b *Batch) bool {
	_, atLeastOnce := b.Publisher.(*deadLetterConfirms)
	if b.Removal == nil && !atLeastOnce || len(b.Messages) < 2 || q.cfg.Storage == nil {
		return false
	}
	extent := q.cfg.Storage.Journal.Extent()
	if journal.IsVoucher(extent) {
		return true
	}
	q.buf.ops.together = extent
	return false
}

// publishApart hands the queue each message of a batch by itself.
func (m *Mailbox) publishApart(now hook.Instant, b *Batch) {
	last := len(b.Messages) - 1
	if b.Removal != nil {
		b.Removal.pending.Add(int32(last))
	}
	if b.report != nil {
		b.report.awaitMore(last)
	}
	for i := range last {
		one := NewBatch()
		one.Messages, one.Tracking, one.to = append(one.Messages, b.Messages[i]), b.Tracking, b.to
		for _, k := range b.blocks {
			one.Hold(k)
		}
		m.handle(now, &task{kind: taskPublish, batch: one})
	}
	b.Messages[0] = b.Messages[last]
	clear(b.Messages[1:])
	b.Messages = b.Messages[:1]
	m.handle(now, &task{kind: taskPublish, batch: b})
}
