package queue

import "github.com/curfewmq/curfew/core/journal"

// parted is the messages of a deleted queue that were under way to other queues when it
// was deleted. The removal of its other messages might be durable before these have
// arrived: on a full disk, long before. So the messages of parted are left out of that
// removal, and a crash finds them in the deleted queue. Each is removed when it has
// arrived.
type parted map[Ref]journal.Delta // the live bytes of the message, to be subtracted

// partWithMoving moves the messages that are under way out of a queue that is being
// deleted.
func (q *Queue) partWithMoving() {
	if q.cfg.Storage == nil || !q.mailbox.Sends() {
		return
	}
	q.parted = parted{}
	for _, r := range q.movingRefs() {
		h := q.at(r)
		if !q.isJournalled(h.slot()) {
			continue
		}
		extent, bytes := h.chunk.extentOf(h.index, -1)
		q.parted[r] = journal.Delta{Extent: extent, Bytes: bytes}
		q.store.free(*h.slot()) // unread: the hooks learn at once that all messages are gone
		h.list.remove(h.chunk, h.index)
	}
}

// movingRefs returns the messages that a redrive has under way, and the released ones
// that are held again once they have arrived.
func (q *Queue) movingRefs() (refs []Ref) {
	if q.redrive != nil {
		for _, t := range q.redrive.parts {
			for i := range t.messages {
				refs = append(refs, t.messages[i].ref)
			}
		}
	}
	if n := q.holding; n != nil && n.scheduled != nil {
		for r := range n.arriving {
			refs = append(refs, r)
		}
	}
	return refs
}

// forgetMoved removes messages of a redrive, unless it is unknown whether they are in
// their target.
func (p parted) forgetMoved(q *Queue, t *transfer) {
	var refs []Ref
	for i := range t.messages {
		if m := &t.messages[i]; m.failure() != FailTargetStopped {
			refs = append(refs, m.ref)
		}
	}
	p.forget(q, refs)
}

// forgetArrived removes messages whose last release has arrived durably.
func (p parted) forgetArrived(q *Queue, ls []departed) {
	var refs []Ref
	for i := range ls {
		refs = append(refs, ls[i].ref)
	}
	p.forget(q, refs)
}

// forget journals the removal of messages, and accounts for them.
func (p parted) forget(q *Queue, refs []Ref) {
	var left []Ref
	for _, r := range refs {
		if d, ok := p[r]; ok {
			delete(p, r)
			q.buf.ops.account(d.Extent, d.Bytes)
			left = append(left, r)
		}
	}
	if left != nil {
		q.buf.ops.buf = appendLeft(q.buf.ops.buf, q.cfg.Storage.ID, left)
	}
}
