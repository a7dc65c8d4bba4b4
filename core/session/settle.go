package session

import "github.com/curfewmq/curfew/core/queue"

// ackBatches collects what clients say about deliveries by the queue they came from, so that each queue hears it at once.
type ackBatches struct {
	places keyIndex[ackKey]
	groups [][]queue.PendingAck // by place; those behind the last place are empty, and kept for their memory
}

// ackKey is what is said to one queue.
type ackKey struct {
	shell *queue.Mailbox
	kind  queue.SettleKind
}

// add settles deliveries in a way.
func (s *ackBatches) add(kind queue.SettleKind, ts []tagged) {
	for i := range ts {
		s.addOne(kind, ts[i].PendingAck)
	}
}

func (s *ackBatches) addOne(kind queue.SettleKind, it queue.PendingAck) {
	i, _ := s.places.find(ackKey{it.Consumer.Queue, kind})
	if i == len(s.groups) {
		s.groups = append(s.groups, nil)
	}
	s.groups[i] = append(s.groups[i], it)
}

const (
	keepSettled = 4096 // the largest group the memory of which is kept
	keepGroups  = 64   // how many groups' memory is kept
)

// flush tells every queue its part.
func (s *ackBatches) flush() {
	for i, to := range s.places.keys {
		g := s.groups[i]
		to.shell.Settle(to.kind, g)
		clear(g)
		if cap(g) > keepSettled {
			g = nil
		}
		s.groups[i] = g[:0]
	}
	s.places.reset()
	if len(s.groups) > keepGroups {
		s.groups = nil
	}
}
