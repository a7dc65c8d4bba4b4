package queue

import "github.com/curfewmq/curfew/sdk/hook"

// A message that a consumer has does not expire. If it comes back after its deadline it expires late because of the consumer, so it must
// not count as lateness of the broker. The queue remembers such messages until they leave.

// noteReturn notes whether a message that comes back from a consumer is past its deadline.
func (q *Queue) noteReturn(now hook.Instant, r Ref, deadline hook.Instant) {
	if deadline == 0 || now <= deadline {
		q.forgetOverstay(r)
		return
	}
	if q.overstays == nil {
		q.overstays = map[Ref]struct{}{}
	}
	q.overstays[r] = struct{}{}
}

// forgetOverstay forgets a message that leaves, or has a deadline again that is to come.
func (q *Queue) forgetOverstay(r Ref) {
	if q.overstays == nil {
		return
	}
	if delete(q.overstays, r); len(q.overstays) == 0 {
		q.overstays = nil
	}
}

// overstayed reports whether a consumer had a message past its deadline.
func (q *Queue) overstayed(r Ref) bool {
	_, was := q.overstays[r]
	return was
}
