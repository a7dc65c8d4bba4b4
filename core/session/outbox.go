package session

import (
	"slices"

	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/queue"
)

// outbox collects published messages by queue, so that each queue gets its messages at once. Messages of one channel to one queue stay in
// order.
type outbox struct {
	index   keyIndex[batchKey]
	batches []*queue.Batch // by position in index
	flushes uint64         // batches of an earlier flush are gone
}

type batchKey struct {
	queue     *queue.Mailbox
	publisher *confirms // the channel that awaits confirms; nil means none
}

// batchSlots are the positions, in an outbox, of the batches for a route's queues.
type batchSlots struct {
	publisher *confirms
	flush     uint64 // number of the flush for which the positions are valid; 0 means none
	index     []int
}

// blockRefs are the blocks that a message may lie in; nil means none.
type blockRefs [3]*block.Block

// add adds a message for queues. Slots, unless nil, remember the positions of their batches until the next flush.
func (o *outbox) add(queues []*queue.Mailbox, slots *batchSlots, publisher *confirms, m *queue.Message, refs *blockRefs) {
	if slots == nil {
		for _, q := range queues {
			addTo(o.batches[o.slot(batchKey{q, publisher})], m, refs)
		}
		return
	}
	if slots.flush != o.flushes+1 || slots.publisher != publisher {
		o.locate(slots, queues, publisher)
	}
	for _, i := range slots.index {
		addTo(o.batches[i], m, refs)
	}
}

func (o *outbox) locate(s *batchSlots, queues []*queue.Mailbox, publisher *confirms) {
	s.index = s.index[:0]
	for _, q := range queues {
		s.index = append(s.index, o.slot(batchKey{q, publisher}))
	}
	s.flush, s.publisher = o.flushes+1, publisher
}

func addTo(b *queue.Batch, m *queue.Message, refs *blockRefs) {
	b.Messages = append(b.Messages, *m)
	for _, k := range refs {
		if k != nil {
			b.Hold(k)
		}
	}
}

// slot returns the position of a batch, and adds the batch if it is new.
func (o *outbox) slot(k batchKey) int {
	i, added := o.index.find(k)
	if added {
		b := queue.NewBatch()
		if k.publisher != nil {
			b.Publisher = k.publisher
		}
		o.batches = append(o.batches, b)
	}
	return i
}

// flush passes every queue its batch. If a queue has more messages than its consumers can take, consumers is closed when they have caught
// up. If a log has more to write than the disk can take, log is closed when it has caught up. Otherwise they are nil.
func (o *outbox) flush() (consumers, log <-chan struct{}) {
	if len(o.batches) == 0 {
		return nil, nil
	}
	for i, b := range o.batches {
		q := o.index.keys[i].queue
		if c := q.Publish(b); c != nil {
			consumers = c
		}
		if c := logCaughtUp(q); c != nil {
			log = c
		}
		o.batches[i] = nil
	}
	o.batches = o.batches[:0]
	o.index.reset()
	o.flushes++
	return consumers, log
}

// pacer is a journal that reports when its log has fallen behind: CaughtUp then returns a channel that is closed when it has caught up.
// A test makes sure that *journal.Writer is one.
type pacer interface{ CaughtUp() <-chan struct{} }

// logCaughtUp returns a channel that is closed when a queue's log has caught up; nil = it keeps up.
func logCaughtUp(q *queue.Mailbox) <-chan struct{} {
	s := q.Config().Storage
	if s == nil {
		return nil
	}
	if j, ok := s.Journal.(pacer); ok {
		return j.CaughtUp()
	}
	return nil
}

// keyIndex numbers keys in the order in which they are added. A few keys are searched linearly; more get a map.
type keyIndex[K comparable] struct {
	keys  []K
	byKey map[K]int // nil while there are few
	last  int       // position of the last key found
}

// linearKeys is the number of keys up to which the search is linear.
const linearKeys = 16

// find returns the position of a key, and adds the key if it is new.
func (x *keyIndex[K]) find(k K) (position int, added bool) {
	if x.last < len(x.keys) && x.keys[x.last] == k {
		return x.last, false
	}
	if i, ok := x.search(k); ok {
		x.last = i
		return i, false
	}
	x.last = len(x.keys)
	x.keys = append(x.keys, k)
	if x.byKey != nil {
		x.byKey[k] = x.last
	}
	return x.last, true
}

func (x *keyIndex[K]) search(k K) (int, bool) {
	if x.byKey == nil && len(x.keys) >= linearKeys {
		x.byKey = make(map[K]int, 2*linearKeys)
		for i, key := range x.keys {
			x.byKey[key] = i
		}
	}
	if x.byKey != nil {
		i, ok := x.byKey[k]
		return i, ok
	}
	i := slices.Index(x.keys, k)
	return i, i >= 0
}

func (x *keyIndex[K]) reset() {
	clear(x.keys)
	x.keys, x.byKey = x.keys[:0], nil
}
