package queue

import (
	"sync/atomic"

	"github.com/curfewmq/curfew/core/journal"
)

// A stopped queue keeps what a restart finds of it in the journal, and by that all that lies behind it in the log. It is let go of once
// the queue is deleted, and its definition with it. The queue cannot be asked for it then: so it is counted as the queue stops. What is
// counted is too little at worst, where a turn broke off half-way: too much would be another queue's.

// pins is what a stopped queue has in the journal.
type pins struct {
	live atomic.Pointer[[]journal.Delta]
}

// LetGo lets go of what a deleted queue keeps in the journal because it was stopped, if it was. durable, which may block, waits until the
// deletion is durable; after an error of it nothing is let go of.
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

// liveIn is what a queue has in a journal, by extent.
type liveIn map[uint32]journal.Delta

func (l liveIn) add(extent uint32, messages int32, bytes int64) {
	d := l[extent]
	l[extent] = journal.Delta{Extent: extent, Records: d.Records + messages, Bytes: d.Bytes + bytes}
}

// set sets what LetGo lets go of.
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

// count counts what a queue that stops keeps in the journal. n is what will not be committed of the turn, nil if all will. If the queue's
// data cannot be read, nothing is known, and all of it stays until a restart.
func (p *pins) count(q *Queue, n *opBuffer) {
	if q.cfg.Storage == nil || q.cfg.Storage.Journal.Err() != nil {
		return // nothing is trimmed any more
	}
	_ = contain(func() { p.set(journalledBy(q, n)) })
}

// journalledBy returns what a queue has in each extent, without what n has, which is not committed.
func journalledBy(q *Queue, n *opBuffer) liveIn {
	live, settled := liveIn{}, map[Ref]bool{}
	for _, r := range q.buf.ops.settled { // one may be there still
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

// addJournalled adds a chunk's messages, except for some.
func (c *chunk) addJournalled(live liveIn, without func(seq uint64) bool) {
	for i := range c.slots {
		if extent, bytes := c.extentOf(i, 1); extent != 0 && !c.slots[i].is(stateFree) && !without(c.seq(i)) {
			live.add(extent, 1, bytes)
		}
	}
}
