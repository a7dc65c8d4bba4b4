package queue

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Journal keeps operations. One journal serves many queues; its methods may be
// called from any goroutine and do not wait for the disk.
type Journal interface {
	// Commit appends operations, all of them or none. c, if there is one, is
	// told when they are durable. ops is the caller's again afterwards.
	Commit(ops []byte, c Completer)
	// Extent is a part of the journal that operations committed from now on lie
	// in, or behind. It is never 0.
	Extent() uint32
	// Account adds to the bytes that are of use in extents.
	Account(ds []Delta)
}

// Completer is told what became of operations.
type Completer interface {
	Durable()
	// Failed says that nobody knows: they may be there after a restart or not.
	Failed(err error)
}

// Delta is bytes that came to be of use in an extent, or ceased to.
type Delta struct {
	Extent uint32
	Bytes  int64
}

// Record is a durable queue's place in a journal.
type Record struct {
	Journal Journal
	ID      uint64 // never given to another queue
}

// notes is what a turn has to tell the journal.
type notes struct {
	ops      []byte
	settled  []Ref
	deltas   []Delta
	enqueued int // messages of the batch at hand that are in ops
}

func (n *notes) account(extent uint32, bytes int64) {
	if k := len(n.deltas); k > 0 && n.deltas[k-1].Extent == extent {
		n.deltas[k-1].Bytes += bytes
		return
	}
	n.deltas = append(n.deltas, Delta{extent, bytes})
}

// kept reports whether a message is in the journal.
func (q *Queue) kept(s *slot) bool { return q.cfg.Record != nil && s.flags&persistent != 0 }

// weight is what a message's operation takes in the journal.
func weight(s *slot) int64 { return enqueueHeader + int64(s.length) }

func (q *Queue) noteEnqueued(now hook.Instant, l int, f *fifo, seq uint64, s slot, deadline hook.Instant) {
	if !q.kept(&s) {
		return
	}
	n := &q.work.notes
	extent := q.cfg.Record.Journal.Extent()
	f.setExtent(seq, extent)
	n.account(extent, weight(&s))
	n.ops = appendEnqueued(n.ops, q.cfg.Record.ID, ref(l, seq), deadline, now, s, q.store.peek(s))
	n.enqueued++
}

func (q *Queue) noteSettled(l int, f *fifo, seq uint64, s *slot) {
	if !q.kept(s) {
		return
	}
	n := &q.work.notes
	n.account(f.extent(seq), -weight(s))
	n.settled = append(n.settled, ref(l, seq))
}

func (q *Queue) noteReturned(r Ref, s *slot) {
	if q.kept(s) {
		q.work.notes.ops = appendReturned(q.work.notes.ops, q.cfg.Record.ID, r, s.deliveries)
	}
}

// noteRenewed notes a deadline that a message did not have before, or a state
// that may be new.
func (q *Queue) noteRenewed(r Ref, f *fifo, seq uint64, s *slot, at hook.Instant) {
	if !q.kept(s) || at == f.deadline(seq) && s.flags&hasState == 0 {
		return
	}
	var state int64
	if s.flags&hasState != 0 {
		state = q.store.read(*s).state
	}
	q.work.notes.ops = appendRenewed(q.work.notes.ops, q.cfg.Record.ID, r, at, state)
}

// setState changes the strategy's bytes of a message, which may make its record
// longer.
func (q *Queue) setState(f *fifo, seq uint64, s *slot, state int64) {
	before := weight(s)
	q.store.setState(s, state)
	if grown := weight(s) - before; grown != 0 && q.kept(s) {
		q.work.notes.account(f.extent(seq), grown)
	}
}

// noteDeleted takes the queue's messages out of the account. What deletes the
// queue is recorded with its declaration.
func (q *Queue) noteDeleted() {
	if q.cfg.Record == nil {
		return
	}
	n := &q.work.notes
	for l := range q.levels {
		f := &q.levels[l]
		for c := range f.chunks {
			k := &f.chunks[c]
			for i := range k.slots {
				if s := &k.slots[i]; s.state != gone && q.kept(s) {
					n.account(k.extents[i], -weight(s))
				}
			}
		}
	}
}

// commit hands the journal what the turn noted so far. c is told at once when
// that is nothing.
func (q *Queue) commit(c Completer) {
	n := &q.work.notes
	if q.cfg.Record == nil || len(n.ops)+len(n.settled)+len(n.deltas) == 0 {
		if c != nil {
			c.Durable()
		}
		return
	}
	if len(n.settled) > 0 {
		n.ops = appendSettled(n.ops, q.cfg.Record.ID, n.settled)
	}
	q.cfg.Record.Journal.Account(n.deltas)
	if len(n.ops) > 0 {
		q.noteHanded()
		q.cfg.Record.Journal.Commit(n.ops, c)
	}
	n.reset()
}

// Note tells the journal what is not worth a commit of its own: before the
// broker stops, say.
func (q *Queue) Note() {
	if q.cfg.Record == nil {
		return
	}
	q.noteHanded()
	q.commit(nil)
}

// noteHanded notes how far the messages were handed out, so that those who get
// them again after a restart are told. It is not worth a commit of its own.
func (q *Queue) noteHanded() {
	if q.contents == nil {
		return
	}
	for l := range q.levels {
		f := &q.levels[l]
		if f.handed > f.noted {
			q.work.notes.ops = appendHanded(q.work.notes.ops, q.cfg.Record.ID, l, f.handed)
			f.noted = f.handed
		}
	}
}

func (n *notes) reset() {
	const large = 1 << 20 // not worth keeping
	if cap(n.ops) > large {
		n.ops = nil
	}
	n.ops, n.settled, n.deltas, n.enqueued = n.ops[:0], n.settled[:0], n.deltas[:0], 0
}

// finish tells the publisher of a batch what became of it: at once, or when
// what was noted of it is durable.
func (q *Queue) finish(b *Batch) {
	if q.cfg.Record == nil || q.work.notes.enqueued == 0 {
		q.commit(nil)
		b.land(nil)
		return
	}
	if r := b.Receipt; r != nil && r.joins(q.cfg.Record.Journal) {
		q.work.notes.ops = append(q.work.notes.ops, r.ops...)
		b.Receipt = nil
		q.commit(&landing{b, r})
		return
	}
	if b.Source == nil && b.Receipt == nil {
		q.commit(nil) // nobody waits for it
		b.land(nil)
		return
	}
	q.commit(b)
}

var _ Completer = (*Batch)(nil)

// Durable is part of [Completer]: the batch is where it was to go.
func (b *Batch) Durable() { b.land(nil) }

// Failed is part of [Completer].
func (b *Batch) Failed(err error) { b.land(err) }

// land tells who waits for the batch, and releases it.
func (b *Batch) land(err error) {
	if b.Source != nil && err == nil {
		b.Source.Settled(b)
	}
	if b.Source != nil && err != nil {
		b.Source.Failed(b, err)
	}
	if b.Receipt != nil && err == nil {
		b.Receipt.landed()
	}
	b.Release()
}

// Receipt is what the journal is still to be told of messages that went from one
// queue to others: that they left. It goes with the batches they went in. Where
// the last of these lies in the same journal, it is recorded in one piece with
// their arrival, so that a message that moves is in one place always; otherwise
// after it, so that a crash may show it in both, but never in none.
type Receipt struct {
	journal Journal
	ops     []byte
	deltas  []Delta
	left    atomic.Int32 // batches under way
	source  Source       // of the batches, instead of all this: see forwarding
}

// Source is who follows the batches, nil for nobody.
func (r *Receipt) Source() Source { return r.source }

// Split says how many batches the receipt goes with, before any of them is sent.
func (r *Receipt) Split(n int) {
	if r.source != nil {
		return
	}
	if n == 0 {
		r.commit()
		return
	}
	r.left.Store(int32(n))
}

// joins reports whether the batch at hand is the last one and goes to journal.
func (r *Receipt) joins(j Journal) bool {
	return r.journal == j && r.left.CompareAndSwap(1, 0)
}

// landed is called when a batch has arrived that the receipt did not join.
func (r *Receipt) landed() {
	if r.left.Add(-1) == 0 {
		r.commit()
	}
}

func (r *Receipt) commit() { r.journal.Commit(r.ops, &landing{r: r}) }

// landing is a receipt on its way, with the batch it joined if there is one. The
// messages are of use where they were until it is durable that they left.
type landing struct {
	b *Batch
	r *Receipt
}

// Durable is part of [Completer].
func (l *landing) Durable() {
	l.r.journal.Account(l.r.deltas)
	if l.b != nil {
		l.b.land(nil)
	}
}

// Failed is part of [Completer].
func (l *landing) Failed(err error) {
	if l.b != nil {
		l.b.land(err)
	}
}

// receipt returns what is to be recorded of the picks that are routed, nil when
// that is nothing.
func (q *Queue) receipt(picks []pick, vs []hook.Verdict) *Receipt {
	if q.cfg.Record == nil {
		return nil
	}
	var refs []Ref
	var n notes
	for i, p := range picks {
		f := &q.levels[p.level]
		s := f.at(p.seq)
		if vs[i].Action != hook.Route || !q.kept(s) {
			continue
		}
		refs = append(refs, ref(int(p.level), p.seq))
		n.account(f.extent(p.seq), -weight(s))
	}
	if len(refs) == 0 {
		return nil
	}
	return &Receipt{journal: q.cfg.Record.Journal, ops: appendSettled(nil, q.cfg.Record.ID, refs), deltas: n.deltas}
}

func appendSettled(b []byte, queue uint64, refs []Ref) []byte {
	b = binary.LittleEndian.AppendUint32(appendOp(b, opSettled, queue), uint32(len(refs)))
	for _, r := range refs {
		b = binary.LittleEndian.AppendUint64(b, uint64(r))
	}
	return b
}
