package session

import "github.com/curfewmq/curfew/core/queue"

// cancellation is a channel in its role as publisher of a mandatory message that only cancels another. Whether the message is returned, which
// happens before its confirm, depends on the messages that the exchange holds.
type cancellation channel

var _ queue.Publisher = (*cancellation)(nil)

// publishCancellation publishes a mandatory message that cancels another. Earlier messages of the connection reach the exchange first.
func (ch *channel) publishCancellation(m *queue.Message, to *queue.Mailbox) {
	c := ch.conn
	c.flushBatches() // which also tracks the confirm of m
	b := queue.NewBatch()
	b.Publisher = (*cancellation)(ch)
	addTo(b, m, ch.blockRefs())
	to.Publish(b)
}

// Confirmed implements [queue.Publisher].
func (p *cancellation) Confirmed(b *queue.Batch) {
	ch := (*channel)(p)
	o := ch.lock()
	defer o.mu.Unlock()
	if ch.closed {
		return
	}
	for i := range b.Messages {
		m := &b.Messages[i]
		if m.Flags&queue.Mandatory != 0 {
			ch.counters.Returned++
			o.pending = ch.appendReturn(o.pending, m)
		}
		if m.Seq > 0 {
			o.pending = ch.confirms.settle(o.pending, ch.id, b.Messages[i:i+1])
		}
	}
	o.kick()
}

// Failed implements [queue.Publisher].
func (p *cancellation) Failed(b *queue.Batch, err error) { (*channel)(p).Failed(b, err) }

// returnLost returns the mandatory messages of a transaction that found nothing to cancel.
func (ch *channel) returnLost(ms []pendingMessage) {
	for i := range ms {
		if ms[i].lost {
			ch.unroutable(&ms[i].Message, true)
		}
	}
	ch.counts.share(&ch.sharedCounts)
}
