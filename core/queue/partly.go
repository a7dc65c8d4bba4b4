package queue

import "github.com/curfewmq/curfew/sdk/hook"

// A message that was sent to several queues stays if one of them refuses it. When it is
// sent to the same target again, the queues that took it must not get it a second time.
// The source remembers them until the message leaves, or the broker is restarted.

// partial is the queues that took a message which stays.
type partial struct {
	target hook.Target // the target that the message was sent to
	have   []uint64    // by Mailbox.order: a queue that is declared again has another one
}

// noteHave records that queues took a message, which stays.
func (c *contents) noteHave(r Ref, t *hook.Target, have []uint64) {
	if len(have) == 0 {
		return
	}
	if c.partly == nil {
		c.partly = map[Ref]partial{}
	}
	c.partly[r] = partial{*t, append(have, c.have(r, t)...)}
}

// have returns the queues that took a message when it was sent to a target before.
func (c *contents) have(r Ref, t *hook.Target) []uint64 {
	if p, ok := c.partly[r]; ok && p.target == *t {
		return p.have
	}
	return nil
}
