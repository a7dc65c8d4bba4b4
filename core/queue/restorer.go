package queue

import (
	"cmp"
	"slices"
)

// Restorer restores queues from a journal. Apply gets all operations in order, then Fill puts what is left of them in the queues, and
// Start lets these work. The queues need not be known before: the journal may have the operations of a queue before its declaration.
// A Restorer belongs to one goroutine.
type Restorer struct {
	queues       map[uint64]*replayedQueue
	last         *replayedQueue // the queue of the last operation
	lastID       uint64
	declaredOnly bool
	filled       []*Mailbox
}

// Kind says what a number in a journal stands for.
type Kind uint8

// The kinds.
const (
	Ordinary Kind = iota + 1 // a queue
	Holding                  // what an exchange holds
)

// NewRestorer returns a restorer without queues.
func NewRestorer() *Restorer { return &Restorer{queues: map[uint64]*replayedQueue{}} }

// Declare makes a queue known. It may be called before the operations of the queue, after them, and again.
func (r *Restorer) Declare(id uint64, k Kind) {
	if r.queues[id] == nil {
		r.queues[id], r.last = &replayedQueue{}, nil
	}
	r.queues[id].declare(k)
}

// DeclaredOnly says that all queues are declared: operations of others are skipped from now on, instead of kept until Fill.
func (r *Restorer) DeclaredOnly() { r.declaredOnly, r.last = true, nil }

// Delete frees what was restored of a queue that was deleted.
func (r *Restorer) Delete(id uint64) {
	if q := r.queues[id]; q != nil {
		q.store.release()
		delete(r.queues, id)
		r.last = nil
	}
}

// Discard frees all that is in no queue. A Restorer that fills none must be discarded: its memory is not the collector's.
func (r *Restorer) Discard() {
	for id := range r.queues {
		r.Delete(id)
	}
}

// Apply applies the operations of whole commits, which lie in an extent. It stops at a definition, and returns it with what follows:
// definitions begin with 0, which is no operation. It does not keep ops.
func (r *Restorer) Apply(extent uint32, ops []byte) (rest []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = readError(p)
		}
	}()
	in := reader{b: ops}
	for len(in.b) > 0 && in.b[0] != 0 && !in.bad {
		kind, id := in.u8(), in.u64()
		if err := r.apply(kind, r.find(id), extent, &in); err != nil {
			return nil, err
		}
	}
	if in.bad {
		return nil, errOps
	}
	return in.b, nil
}

// Pack moves what is left in sparse memory together. A Restorer that follows a log is packed now and then, as queues are.
func (r *Restorer) Pack() error {
	return readable(func() {
		for _, q := range r.queues {
			if q.store.sparse() {
				q.pack()
			}
		}
	})
}

// find returns the queue with a number; nil if its operations are skipped.
func (r *Restorer) find(id uint64) *replayedQueue {
	if r.last != nil && r.lastID == id {
		return r.last
	}
	q := r.queues[id]
	if q == nil && !r.declaredOnly {
		q = &replayedQueue{}
		r.queues[id] = q
	}
	r.last, r.lastID = q, id
	return q
}

// Fill puts the remaining messages in paused queues that nothing else uses yet, in order, and returns how many there are. What is
// left of other queues is freed.
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

// Start lets the filled queues deliver and expire messages. Dead letters go to other queues, so all queues of the vhost must have been
// filled before, by whichever Restorer: a message that enters earlier would take the sequence number of an older one.
func (r *Restorer) Start() {
	for _, m := range r.filled {
		m.start()
	}
	r.filled = nil
}

// fill puts the messages in a queue, and returns how many there are.
func (q *replayedQueue) fill(m *Mailbox) (messages int) {
	kind := Ordinary
	if m.Config().Schedule != nil {
		kind = Holding
	}
	if q.kind != kind {
		q.declare(kind)
	}
	q.limitLevels(m.Config().Levels + 1)
	q.list = slices.DeleteFunc(q.list, func(it replayedMessage) bool { return it.extent == 0 })
	slices.SortFunc(q.list, func(a, b replayedMessage) int { return cmp.Compare(a.ref, b.ref) })
	var n opBuffer
	for i := range q.list {
		n.account(q.list[i].extent, weight(&q.list[i].slot)-int64(q.list[i].saved))
	}
	m.restore(q)
	m.Config().Storage.Journal.Commit(nil, n.deltas, nil)
	return len(q.list)
}

// limitLevels drops what lies on levels that the queue does not have.
func (q *replayedQueue) limitLevels(levels int) {
	for i := range q.list {
		if it := &q.list[i]; it.extent != 0 && it.ref.level() >= levels {
			q.free(int32(i))
		}
	}
	q.reach(levels - 1)
	q.next, q.deliveredUpTo = q.next[:levels], q.deliveredUpTo[:levels]
}

// restore gives the queue what was restored. A queue whose bodies cannot be read is stopped.
func (m *Mailbox) restore(from *replayedQueue) {
	q := &m.queue
	if slices.Max(from.next) == 0 {
		from.store.release() // of what lay on levels that the queue does not have
		return
	}
	q.open()
	q.store = from.store
	buf := q.buf
	q.buf = turnBufferPool.Get().(*turnBuffers)
	if err := readable(func() { q.fill(from) }); err != nil {
		q.stop(err)
	}
	turnBufferPool.Put(q.buf)
	q.buf = buf
}

func (q *Queue) fill(from *replayedQueue) {
	for i := range from.list {
		q.put(&from.list[i], from.deliveredUpTo)
	}
	for l, next := range from.next {
		if next > 0 {
			q.levels[l].skipTo(next)
		}
	}
}
