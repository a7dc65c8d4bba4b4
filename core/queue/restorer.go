package queue

import (
	"errors"
	"slices"

	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Restorer restores queues from a journal. Apply gets all operations in order, then Fill
// puts the remaining messages in the queues, and Start lets the queues work. A queue may
// be declared after its operations, because the journal may have them in this order. A
// Restorer belongs to one goroutine.
type Restorer struct {
	broker *Broker
	queues map[uint64]*replayedQueue
	last   *replayedQueue // the queue of the last operation
	lastID uint64
	filled []*Mailbox
}

func (r *Restorer) newQueue() *replayedQueue {
	return &replayedQueue{store: store{file: r.broker.spill}}
}

// Kind says whether a number in a journal stands for a queue or for an exchange.
type Kind uint8

// The kinds.
const (
	Ordinary Kind = iota + 1 // a queue
	Holding                  // the messages that an exchange holds
)

// Declare makes a queue known. It may be called before or after the operations of the
// queue, and more than once.
func (r *Restorer) Declare(id uint64, k Kind) {
	if r.queues[id] == nil {
		r.queues[id], r.last = r.newQueue(), nil
	}
	r.queues[id].declare(k)
}

// Delete frees the restored messages of a queue that was deleted.
func (r *Restorer) Delete(id uint64) {
	if q := r.queues[id]; q != nil {
		q.release()
		delete(r.queues, id)
		r.last = nil
	}
}

// Discard frees all messages that were not put in a queue. A Restorer that will not call
// Fill must be discarded, because its memory lies outside the Go heap.
func (r *Restorer) Discard() {
	for id := range r.queues {
		r.Delete(id)
	}
}

// Apply applies the operations of whole commits, which lie in an extent. It stops at a
// definition, and returns it with the bytes behind it: definitions begin with 0, which is
// no operation. It does not keep ops. An operation that panics breaks its own queue only.
func (r *Restorer) Apply(extent uint32, ops []byte) (rest []byte, err error) {
	in := reader{b: ops}
	for {
		var at position
		panicked := contain(func() { err = r.applyAll(extent, &in, &at) })
		if panicked == nil {
			break
		}
		if err := r.breakOff(extent, &in, &at, panicked); err != nil {
			return nil, err
		}
	}
	if err == nil && in.bad {
		err = errOps
	}
	if err != nil {
		return nil, err
	}
	return in.b, nil
}

// position is the operation that is being applied: its kind, the number of its queue, and
// the bytes behind these.
type position struct {
	kind byte
	id   uint64
	rest []byte
}

// applyAll applies operations up to the next definition.
func (r *Restorer) applyAll(extent uint32, in *reader, at *position) error {
	for len(in.b) > 0 && in.b[0] != 0 && !in.bad {
		at.kind, at.id = in.u8(), in.u64()
		at.rest = in.b
		q := r.find(at.id)
		if q != nil && q.broken != nil {
			q.pinned[extent] = true
			q = nil
		}
		if err := r.apply(at.kind, q, extent, in); err != nil {
			return err
		}
	}
	return nil
}

// breakOff marks the queue whose operation panicked as broken, so that it is stopped once
// it is filled, and skips the operation.
func (r *Restorer) breakOff(extent uint32, in *reader, at *position, panicked error) error {
	q := r.queues[at.id]
	if _, ok := errors.AsType[*panicError](panicked); !ok || q == nil {
		return panicked
	}
	q.breakDown(panicked)
	q.pinned[extent] = true
	in.b = at.rest
	return contain(func() { _ = r.apply(at.kind, nil, extent, in) })
}

// Pack moves messages together that lie in sparse memory. The owner of a Restorer that
// follows a log calls it now and then.
func (r *Restorer) Pack() error {
	for _, q := range r.queues {
		err := contain(func() {
			if q.store.sparse() {
				q.pack()
			}
		})
		if _, panicked := errors.AsType[*panicError](err); panicked {
			q.breakDown(err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// find returns the queue with a number.
func (r *Restorer) find(id uint64) *replayedQueue {
	if r.last != nil && r.lastID == id {
		return r.last
	}
	q := r.queues[id]
	if q == nil {
		q = r.newQueue()
		r.queues[id] = q
	}
	r.last, r.lastID = q, id
	return q
}

// Fill puts the remaining messages, in order, in paused queues that nothing else uses
// yet. It returns how many messages there are, and frees those of other queues.
func (r *Restorer) Fill(queues []*Mailbox) (messages int) {
	for _, m := range queues {
		s := m.Config().Storage
		if s == nil {
			continue
		}
		r.filled = append(r.filled, m)
		if q := r.queues[s.ID]; q != nil {
			delete(r.queues, s.ID)
			messages += q.fill(m)
		}
	}
	r.Discard()
	return messages
}

// Start lets the filled queues deliver and expire messages. Dead letters go to other
// queues, so all queues of the vhost must have been filled before, by any Restorer: a
// message that enters earlier would take the sequence number of an older one.
func (r *Restorer) Start() {
	for _, m := range r.filled {
		m.start()
	}
	r.filled = nil
}

// fill puts the messages in a queue, and returns how many there are. After a panic the
// queue is stopped, and its messages stay in the journal.
func (q *replayedQueue) fill(m *Mailbox) (messages int) {
	if q.broken == nil {
		if err := contain(func() { q.prepare(m.Config()) }); err != nil {
			q.breakDown(err)
		}
	}
	var n opBuffer
	for l := range q.levels {
		for k := range q.levels[l].chunks {
			messages += q.levels[l].chunks[k].account(&n)
		}
	}
	for extent := range q.pinned {
		n.account(extent, 1)
	}
	m.restore(q, messages)
	m.Config().Storage.Journal.Commit(nil, n.deltas, nil)
	if m.queue.stopped != nil {
		live := liveIn{}
		for _, d := range n.deltas {
			live.add(d.Extent, d.Records, d.Bytes)
		}
		m.pins.set(live)
	}
	return messages
}

// prepare makes the messages fit the queue's kind and levels.
func (q *replayedQueue) prepare(c *Config) {
	kind := Ordinary
	if c.Schedule != nil {
		kind = Holding
	}
	if q.kind != kind {
		q.declare(kind)
	}
	q.limitLevels(c.Levels + 1)
}

// breakDown marks the queue as broken: its data is not as its code expects it. The memory
// of its messages outside the Go heap is lost until the broker ends.
func (q *replayedQueue) breakDown(err error) {
	q.broken, q.store = err, store{}
	if q.pinned == nil {
		q.pinned = map[uint32]bool{}
	}
}

// limitLevels drops the messages on levels that the queue does not have.
func (q *replayedQueue) limitLevels(levels int) {
	q.level(levels - 1)
	for h := range q.all {
		if h.ref.level() >= levels {
			q.store.free(*h.slot())
		}
	}
	for l := levels; l < len(q.levels); l++ {
		for k := range q.levels[l].chunks {
			q.levels[l].chunks[k].free()
		}
	}
	q.levels = q.levels[:levels]
}

// restore gives the queue its restored messages; messages is their number. A queue that
// panics, or whose bodies cannot be read, is stopped.
func (m *Mailbox) restore(from *replayedQueue, messages int) {
	q := &m.queue
	err := from.broken
	if err == nil && !slices.ContainsFunc(from.levels, func(l replayedLevel) bool { return l.next > 0 }) {
		from.release()
		return
	}
	buf := q.buf
	q.buf = turnBufferPool.Get().(*turnBuffers)
	if err == nil {
		q.open()
		q.store = from.store
		err = contain(func() { takeOver(q, from) })
	}
	if err != nil {
		q.stop(err)
	}
	if q.stopped != nil { // it may have stopped before all messages were counted
		q.open()
		q.count = Counters{Published: uint64(messages), Restored: uint64(messages)}
		if q.stopped.panicked() { // else stop has counted them by state
			q.stopped.ready, q.stopped.persistent, q.stopped.unacked, q.stopped.held, q.stopped.discarded = messages, messages, 0, 0, 0
		}
	}
	turnBufferPool.Put(q.buf)
	q.buf = buf
}

// takeOver gives the queue the data of a replay.
func takeOver(q *Queue, from *replayedQueue) {
	for l := range from.levels {
		q.levels[l] = from.levels[l].complete()
	}
	if len(from.nacks) > 0 {
		q.startHolding().nacks = from.nacks
	}
	for r := range from.undecided {
		q.askLater(atOnce, r)
	}
	listReplayed(q, from.deadLettering)
}

// account accounts for the messages of a chunk, and returns how many there are.
func (c *chunk) account(n *opBuffer) (messages int) {
	for i := range c.slots {
		if !c.slots[i].is(stateFree) {
			n.account(c.extentOf(i, 1))
			messages++
		}
	}
	return messages
}

// listReplayed counts and indexes the messages of chunks that a replay has filled.
func listReplayed(q *Queue, deadLettering map[Ref]hook.Reason) {
	for l := range q.levels {
		f := &q.levels[l]
		for k := range f.chunks {
			c := &f.chunks[k]
			for i := range c.slots {
				if c.slots[i].is(stateFree) {
					continue
				}
				r := ref(l, c.seq(i))
				restore(q, handle{r, f, c, i}, int(c.bodies[i]), deadLettering[r])
			}
			slab.FreeSlice(c.bodies)
			c.bodies = nil
		}
	}
}
