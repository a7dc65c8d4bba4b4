package session

import "github.com/curfewmq/curfew/core/queue"

// ackBatches collects what clients say about deliveries by the queue they came from, so that each queue hears it at once.
type ackBatches struct {
	index   keyIndex[ackKey]
	batches [][]queue.PendingAck // by place; those behind the last place are empty, and kept for their memory
}

// ackKey is what is said to one queue.
type ackKey struct {
	queue *queue.Mailbox
	kind  queue.SettleKind
}

// add settles deliveries in a way.
func (s *ackBatches) add(kind queue.SettleKind, ts []tagged) {
	for i := range ts {
		s.addOne(kind, ts[i].PendingAck)
	}
}

func (s *ackBatches) addOne(kind queue.SettleKind, it queue.PendingAck) {
	i, _ := s.index.find(ackKey{it.Consumer.Queue, kind})
	if i == len(s.batches) {
		s.batches = append(s.batches, nil)
	}
	s.batches[i] = append(s.batches[i], it)
}

const (
	maxRetainedAcks    = 4096 // the largest group the memory of which is kept
	maxRetainedBatches = 64   // how many groups' memory is kept
)

// flush tells every queue its part.
func (s *ackBatches) flush() {
	for i, to := range s.index.keys {
		g := s.batches[i]
		to.queue.Settle(to.kind, g)
		clear(g)
		if cap(g) > maxRetainedAcks {
			g = nil
		}
		s.batches[i] = g[:0]
	}
	s.index.reset()
	if len(s.batches) > maxRetainedBatches {
		s.batches = nil
	}
}
