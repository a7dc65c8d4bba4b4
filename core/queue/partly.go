package queue

import "github.com/curfewmq/curfew/sdk/hook"

// A message that was sent to several queues stays if one of them refuses it. Those that
// took it must not get it once more when it is sent to the same target again. The queue
// remembers them until the message leaves, or the broker is restarted.

// partial is which queues have a message that stays.
type partial struct {
	target hook.Target // that the message was sent to
	have   []uint64    // by Mailbox.order: a queue that is declared anew has another
}

// noteHave notes that queues took a message, which stays.
func (q *Queue) noteHave(r Ref, t *hook.Target, have []uint64) {
	if len(have) == 0 {
		return
	}
	if q.partly == nil {
		q.partly = map[Ref]partial{}
	}
	q.partly[r] = partial{*t, append(have, q.have(r, t)...)}
}

// have returns the queues that took a message when it was sent to a target before.
func (q *Queue) have(r Ref, t *hook.Target) []uint64 {
	if p, ok := q.partly[r]; ok && p.target == *t {
		return p.have
	}
	return nil
}
