package queue

import "github.com/curfewmq/curfew/sdk/hook"

// An unacknowledged message does not expire. If a consumer returns it after its deadline,
// the message expires late because of the consumer, which must not count as lateness of
// the broker. The queue remembers such messages until they leave.

// noteReturn records whether a message that a consumer returns is past its deadline.
func (c *contents) noteReturn(now hook.Instant, r Ref, deadline hook.Instant) {
	if deadline == 0 || now <= deadline {
		c.forgetOverstay(r)
		return
	}
	if c.overstays == nil {
		c.overstays = map[Ref]struct{}{}
	}
	c.overstays[r] = struct{}{}
}

// forgetOverstay forgets a message that leaves, or that has a future deadline again.
func (c *contents) forgetOverstay(r Ref) {
	if c.overstays == nil {
		return
	}
	if delete(c.overstays, r); len(c.overstays) == 0 {
		c.overstays = nil
	}
}

// overstayed reports whether a consumer had a message past its deadline.
func (c *contents) overstayed(r Ref) bool {
	_, was := c.overstays[r]
	return was
}
