package metrics

import (
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/vhost"
)

// Indexes of the counts of a vhost.
const (
	published = iota
	routed
	returned
	dropped
	confirmable
	confirmed
	leasesEnded
	queuesDeclared
	queuesCreated
	queuesDeleted
	counts
)

// vhostTotals are the counts of one vhost, or of several.
type vhostTotals struct {
	n           [counts]uint64
	deliveries  [queue.Types]session.DeliveryCounters
	deadLetters vhost.DeadLetterCounts
	arrived     [queue.Types]uint64 // confirmed dead letters
}

// totalsOf returns the counts of a vhost; t has the counts of its channels.
func totalsOf(v *vhost.VHost, t *session.Counters) vhostTotals {
	churn := v.Churn()
	all := vhostTotals{deliveries: t.Deliveries, n: [counts]uint64{
		published: t.Published, routed: t.Routed, returned: t.Returned, dropped: t.Dropped,
		confirmable: t.Confirmable, confirmed: t.Confirmed, leasesEnded: t.LeasesEnded,
		queuesDeclared: churn.QueuesDeclared, queuesCreated: churn.QueuesCreated, queuesDeleted: churn.QueuesDeleted,
	}}
	all.deadLetters, all.arrived = v.DeadLetters()
	return all
}

// of adds up one kind of deliveries over all types of queues.
func (t *vhostTotals) of(kind session.DeliveryKind) (n uint64) {
	for i := range t.deliveries {
		n += t.deliveries[i][kind]
	}
	return n
}

// raise raises the counts of clients' activity to at least those of another vhostTotals.
func (t *vhostTotals) raise(to *vhostTotals) {
	for i := range t.n {
		t.n[i] = max(t.n[i], to.n[i])
	}
	for kind := range t.deliveries {
		for i := range t.deliveries[kind] {
			t.deliveries[kind][i] = max(t.deliveries[kind][i], to.deliveries[kind][i])
		}
	}
}

func (t *vhostTotals) add(o *vhostTotals) {
	for i := range t.n {
		t.n[i] += o.n[i]
	}
	for kind := range t.deliveries {
		t.deliveries[kind].Add(&o.deliveries[kind])
	}
	for kind := range t.deadLetters {
		for strategy := range t.deadLetters[kind] {
			for reason, n := range o.deadLetters[kind][strategy] {
				t.deadLetters[kind][strategy][reason] += n
			}
		}
	}
	for i := range t.arrived {
		t.arrived[i] += o.arrived[i]
	}
}

// monotonicTotals adds up the counts of vhosts so that no sum goes down: neither when a vhost is deleted, nor when a closing channel
// is for a moment among neither the open nor the closed ones.
type monotonicTotals struct {
	last    map[*vhost.VHost]vhostTotals
	deleted vhostTotals // of deleted vhosts
}

// sum adopts the present counts and returns the sums. It owns now afterwards.
func (s *monotonicTotals) sum(now map[*vhost.VHost]vhostTotals) vhostTotals {
	for v, before := range s.last {
		if t, exists := now[v]; exists {
			t.raise(&before)
			now[v] = t
		} else {
			s.deleted.add(&before)
		}
	}
	s.last = now
	all := s.deleted
	for _, t := range now {
		all.add(&t)
	}
	return all
}
