package vhost

import (
	"slices"

	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/queue"
)

// outgoing collects the messages that a run republishes: one batch for each queue.
type outgoing struct {
	batches []queueBatch
	index   map[*queue.Mailbox]int // of batches; empty while they are few
}

type queueBatch struct {
	mailbox *queue.Mailbox
	batch   *queue.Batch // nil until the first message
}

// slot returns the index of a queue's batch.
func (o *outgoing) slot(m *queue.Mailbox) int {
	const few = 16
	if len(o.batches) < few {
		if i := slices.IndexFunc(o.batches, func(b queueBatch) bool { return b.mailbox == m }); i >= 0 {
			return i
		}
	} else if i, ok := o.index[m]; ok {
		return i
	}
	slot := len(o.batches)
	o.batches = append(o.batches, queueBatch{mailbox: m})
	switch {
	case slot+1 == few:
		for i, b := range o.batches {
			o.index[b.mailbox] = i
		}
	case slot+1 > few:
		o.index[m] = slot
	}
	return slot
}

// add adds a message, which refers to b, to a queue's batch.
func (o *outgoing) add(slot int, m queue.Message, b *block.Block) {
	to := &o.batches[slot]
	if to.batch == nil {
		to.batch = queue.NewBatch()
	}
	to.batch.Hold(b)
	to.batch.Messages = append(to.batch.Messages, m)
}

// publish publishes every batch, all with the same tracking, if there is space for all. The batches were made of ds.
func (o *outgoing) publish(t queue.Tracking, ds []queue.DeadLetter) {
	used := slices.DeleteFunc(o.batches, func(b queueBatch) bool { return b.batch == nil })
	if !t.Expect(len(used), ds) {
		for _, b := range used {
			b.batch.Discard()
		}
		return
	}
	for _, b := range used {
		b.batch.Tracking = t
		b.mailbox.PublishAsync(b.batch)
	}
}

// reset forgets all batches.
func (o *outgoing) reset() {
	const many = 4096 // a map that grew larger would have to be cleared after every run
	if len(o.index) > many {
		o.index = map[*queue.Mailbox]int{}
	}
	clear(o.index)
	clear(o.batches)
	o.batches = o.batches[:0]
}
