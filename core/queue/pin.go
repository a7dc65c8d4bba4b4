package queue

import (
	"sync/atomic"

	"github.com/curfewmq/curfew/core/journal"
)

// The messages of a stopped queue stay live in the journal, because a restart restores
// them. So no extent behind them is trimmed. When the queue is deleted, and its
// definition with it, LetGo subtracts their live bytes. The queue has no messages any
// more then, so the bytes are counted as it stops. If a turn broke off half-way, the
// count may be too small; it is never too large, which would subtract bytes of other
// queues.

// pins is the live bytes of a stopped queue in the journal.
type pins struct {
	live atomic.Pointer[[]journal.Delta]
}

// LetGo subtracts the live bytes of a deleted queue that was stopped; for other queues it
// does nothing. On a goroutine of its own it first calls durable, which may block until
// the deletion is durable. If durable returns an error, the bytes stay live.
func (m *Mailbox) LetGo(durable func() error) {
	if m.pins.live.Load() == nil {
		return
	}
	go func() {
		if durable() != nil {
			return
		}
		if live := m.pins.live.Swap(nil); live != nil {
			m.Config().Storage.Journal.Commit(nil, *live, nil)
		}
	}()
}

// liveIn is the live records and bytes of a queue, by extent.
type liveIn map[uint32]journal.Delta

func (l liveIn) add(extent uint32, messages int32, bytes int64) {
	d := l[extent]
	l[extent] = journal.Delta{Extent: extent, Records: d.Records + messages, Bytes: d.Bytes + bytes}
}

// set sets the live bytes that LetGo will subtract.
func (p *pins) set(live liveIn) {
	var ds []journal.Delta
	for _, d := range live {
		if d.Bytes > 0 {
			ds = append(ds, journal.Delta{Extent: d.Extent, Records: -max(d.Records, 0), Bytes: -d.Bytes})
		}
	}
	if ds != nil {
		p.live.Store(&ds)
	}
}

// count counts the live bytes of a queue that stops. n has the operations of the turn
// that will not be committed; nil means that all will be. If the queue's data cannot be
// read, count counts nothing, and all of it stays live until a restart.
func (p *pins) count(q *Queue, n *opBuffer) {
	if q.cfg.Storage == nil || q.cfg.Storage.Journal.Err() != nil {
		return // nothing is trimmed any more
	}
	_ = contain(func() { p.set(journalledBy(q, n)) })
}

// journalledBy returns the live bytes of a queue in each extent, without those of n,
// which is not committed.
func journalledBy(q *Queue, n *opBuffer) liveIn {
	live, settled := liveIn{}, map[Ref]bool{}
	for _, r := range q.buf.ops.settled { // a settled message may still be in the list
		settled[r] = true
	}
	if p := q.buf.parting; p != nil && p.queue == q.cfg.Storage.ID {
		for i := range p.parting {
			settled[p.parting[i].ref] = p.parting[i].again == nil
		}
	}
	if q.contents != nil {
		for l := range q.levels {
			for c := range q.levels[l].chunks {
				q.levels[l].chunks[c].addJournalled(live, func(seq uint64) bool { return settled[ref(l, seq)] })
			}
		}
	}
	for w := q.garbage; w != nil; w = w.next {
		for l := range w.levels {
			for c := range w.levels[l].chunks {
				w.levels[l].chunks[c].addJournalled(live, func(seq uint64) bool { return q.isThere(l, seq) })
			}
		}
	}
	if n == nil {
		return live
	}
	for _, d := range n.deltas {
		if d.Bytes > 0 || !n.others {
			live.add(d.Extent, -d.Records, -d.Bytes)
		}
	}
	return live
}

// addJournalled adds a chunk's messages, except for those for which without returns true.
func (c *chunk) addJournalled(live liveIn, without func(seq uint64) bool) {
	for i := range c.slots {
		if extent, bytes := c.extentOf(i, 1); extent != 0 && !c.slots[i].is(stateFree) && !without(c.seq(i)) {
			live.add(extent, 1, bytes)
		}
	}
}
