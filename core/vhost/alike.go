package vhost

import (
	"bytes"

	"github.com/curfewmq/curfew/core/queue"
)

// Messages that leave a queue together are mostly alike: one client published them in one way, and they died of one cause. Then
// only the first of them is looked at. The others go where it went, and refer to its properties.

// alike reports whether b differs from a in nothing but its body and its number.
func alike(a, b *queue.DeadLetter) bool {
	return a.Target == b.Target && a.Reason == b.Reason && a.Flags == b.Flags && len(a.BCC)+len(b.BCC) == 0 &&
		bytes.Equal(a.Props, b.Props) && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Exchange, b.Exchange)
}

// follow sends a message where the one before it went, which is alike.
func (b *deadLetterRun) follow(before, d *queue.DeadLetter) {
	d.Outcome = before.Outcome
	if before.Sent == 0 {
		return
	}
	p := b.sent
	p.Seq = d.Seq
	b.room(len(d.Body)) // the batches hold the block in which the properties are
	b.deliver(d, p)
}

// recordSize is about what a record of a death adds to a message.
const recordSize = 640

// expected is about how many bytes dead letters will take, or most if that is less.
func expected(ds []queue.DeadLetter, most int) (bytes int) {
	for i := range ds {
		if bytes >= most { // the next block has the rest, and counts them
			return most
		}
		bytes += len(ds[i].Body)
		if i == 0 || !alike(&ds[i-1], &ds[i]) {
			bytes += len(ds[i].Props) + recordSize
		}
	}
	return min(bytes, most)
}
