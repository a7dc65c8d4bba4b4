package metrics

import (
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/vhost"
)

// count is one of the things that are counted in each vhost.
type count uint8

const (
	published count = iota
	routed
	returned
	dropped
	confirmable
	confirmed
	queuesDeclared
	queuesCreated
	queuesDeleted
	counts
)

// vhostTotals is what was counted in a vhost, or in several.
type vhostTotals struct {
	n       [counts]uint64
	handed  [queue.Types]session.DeliveryCounters
	left    vhost.DeadLetterCounts
	arrived uint64 // of what left
}

func tally(v *vhost.VHost, t *session.Counters) vhostTotals {
	churn := v.Churn()
	var all vhostTotals
	all.left, all.arrived = v.DeadLetters()
	all.handed = t.Deliveries
	all.n = [counts]uint64{
		published: t.Published, routed: t.Routed, returned: t.Returned, dropped: t.Dropped,
		confirmable: t.Confirmable, confirmed: t.Confirmed,
		queuesDeclared: churn.QueuesDeclared, queuesCreated: churn.QueuesCreated, queuesDeleted: churn.QueuesDeleted,
	}
	return all
}

// of sums up one of the things that are counted by the type of queues.
func (t *vhostTotals) of(what session.DeliveryKind) (n uint64) {
	for i := range t.handed {
		n += t.handed[i][what]
	}
	return n
}

// raise makes the counts of what clients did at least those of another.
func (t *vhostTotals) raise(to *vhostTotals) {
	for i := range t.n {
		t.n[i] = max(t.n[i], to.n[i])
	}
	for kind := range t.handed {
		for i := range t.handed[kind] {
			t.handed[kind][i] = max(t.handed[kind][i], to.handed[kind][i])
		}
	}
}

func (t *vhostTotals) add(o *vhostTotals) {
	for i := range t.n {
		t.n[i] += o.n[i]
	}
	for kind := range t.handed {
		t.handed[kind].Add(&o.handed[kind])
	}
	for kind := range t.left {
		for care := range t.left[kind] {
			for reason := range t.left[kind][care] {
				t.left[kind][care][reason] += o.left[kind][care][reason]
			}
		}
	}
	t.arrived += o.arrived
}

// monotonicTotals sums up what vhosts count so that no sum goes down: neither when a vhost goes, nor because a channel that is about to
// be closed is seen neither among those that are open nor among those that were.
type monotonicTotals struct {
	of   map[*vhost.VHost]vhostTotals
	past vhostTotals // of vhosts that are gone
}

// sum takes the present counts in and returns the sums. It keeps now.
func (s *monotonicTotals) sum(now map[*vhost.VHost]vhostTotals) vhostTotals {
	for v, was := range s.of {
		is, there := now[v]
		if !there {
			s.past.add(&was)
			continue
		}
		is.raise(&was)
		now[v] = is
	}
	s.of = now
	all := s.past
	for _, t := range now {
		all.add(&t)
	}
	return all
}
