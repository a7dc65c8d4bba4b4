package queue

import (
	"cmp"
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
)

// AddConsumer adds a consumer and delivers ready messages to it.
func (q *Queue) AddConsumer(now hook.Instant, c *Consumer) error {
	if q.stopped != nil {
		return q.stopped
	}
	if q.consumers.exclusive() || c.Exclusive && q.consumers.count() > 0 {
		return ErrExclusiveUse
	}
	if q.consumers == nil {
		q.consumers = &consumers{single: q.cfg.SingleActive}
	}
	q.consumers.add(c)
	q.lease = 0
	q.afterChange(now)
	return nil
}

// RemoveConsumers removes consumers and requeues pending acks of theirs, as failed
// deliveries; other pending acks stay with their channel. Nothing is delivered in
// between, so that the remaining consumers get the messages in order. After the last
// consumer the queue's lease begins, or an auto-delete queue ends.
func (q *Queue) RemoveConsumers(now hook.Instant, unacked []PendingAck, cs ...*Consumer) {
	removed := false
	for _, c := range cs {
		if q.consumers.remove(c) {
			c.removed, removed = true, true
		}
	}
	if removed && q.consumers.count() == 0 {
		if q.cfg.AutoDelete {
			q.end(now, Deletion{Reason: DeletedAutoDelete})
			return
		}
		q.Touch(now)
	}
	if q.stopped == nil && (removed || len(unacked) > 0) {
		q.settleAll(now, Return, unacked)
	}
}

// wake serves a stalled consumer again.
func (cs *consumers) wake(q *Queue, now hook.Instant, c *Consumer) {
	c.stalled = false
	if c.removed {
		return
	}
	cs.refresh(c)
	q.afterChange(now)
}

// consumers are a queue's consumers, nil before the first. They are served by priority,
// the highest first, and in turn within a priority. A delivery looks only at consumers
// with credit.
type consumers struct {
	all    []*Consumer     // in the order in which they were added
	groups []priorityGroup // highest priority first
	single bool            // only one consumer is served: the single active one
	served *Consumer       // the single active consumer; nil without single, and without consumers
}

// priorityGroup is the consumers of one priority that have credit.
type priorityGroup struct {
	priority int64
	active   []*Consumer
	turn     int // index in active of the consumer to serve next
}

func (cs *consumers) count() int {
	if cs == nil {
		return 0
	}
	return len(cs.all)
}

func (cs *consumers) add(c *Consumer) {
	cs.all = append(cs.all, c)
	if cs.single && cs.served == nil {
		cs.served = c
	}
	cs.refresh(c)
}

// remove removes a consumer and reports whether it was there.
func (cs *consumers) remove(c *Consumer) bool {
	if cs == nil {
		return false
	}
	i := slices.Index(cs.all, c)
	if i < 0 {
		return false
	}
	cs.all = slices.Delete(cs.all, i, i+1)
	cs.deactivate(c)
	cs.disband(c.Priority)
	if cs.served == c {
		cs.serveNext()
	}
	return true
}

// serveNext makes the consumer with the highest priority the single active one, the
// oldest if there are several. A consumer with a higher priority that comes later waits,
// as in RabbitMQ's classic queues.
func (cs *consumers) serveNext() {
	cs.served = nil
	for _, c := range cs.all {
		if cs.served == nil || c.Priority > cs.served.Priority {
			cs.served = c
		}
	}
	if cs.served != nil {
		cs.refresh(cs.served)
	}
}

// disband removes the group of a priority that no consumer has any more.
func (cs *consumers) disband(priority int64) {
	if slices.ContainsFunc(cs.all, func(c *Consumer) bool { return c.Priority == priority }) {
		return
	}
	cs.groups = slices.DeleteFunc(cs.groups, func(g priorityGroup) bool { return g.priority == priority })
}

// pop removes the consumer that was added first and returns it; nil if there is none.
func (cs *consumers) pop() *Consumer {
	if cs.count() == 0 {
		return nil
	}
	c := cs.all[0]
	cs.all, cs.groups, cs.served = cs.all[1:], nil, nil
	return c
}

func (cs *consumers) sortByTag() {
	if cs != nil {
		slices.SortFunc(cs.all, func(a, b *Consumer) int { return cmp.Compare(a.Tag, b.Tag) })
	}
}

// exclusive reports whether the queue has an exclusive consumer.
func (cs *consumers) exclusive() bool { return cs.count() == 1 && cs.all[0].Exclusive }

// refresh updates whether a consumer is in its group, after its credit may have changed.
func (cs *consumers) refresh(c *Consumer) {
	want := c.credit() > 0 && !c.removed && (!cs.single || cs.served == c)
	if want == c.active {
		return
	}
	if !want {
		cs.deactivate(c)
		return
	}
	cs.group(c.Priority).add(c)
	c.active = true
}

func (cs *consumers) deactivate(c *Consumer) {
	if !c.active {
		return
	}
	c.active = false
	g := cs.group(c.Priority)
	i := slices.Index(g.active, c)
	g.active = slices.Delete(g.active, i, i+1)
	if i < g.turn {
		g.turn--
	}
	if len(g.active) == 0 {
		g.turn = 0
	}
}

// group returns the group of a priority, which it creates if need be.
func (cs *consumers) group(priority int64) *priorityGroup {
	i, ok := slices.BinarySearchFunc(cs.groups, priority, func(g priorityGroup, p int64) int { return cmp.Compare(p, g.priority) })
	if !ok {
		cs.groups = slices.Insert(cs.groups, i, priorityGroup{priority: priority})
	}
	return &cs.groups[i]
}

// serve returns the group to deliver to now, nil if no consumer has credit.
func (cs *consumers) serve() *priorityGroup {
	if cs == nil {
		return nil
	}
	for i := range cs.groups {
		if len(cs.groups[i].active) > 0 {
			return &cs.groups[i]
		}
	}
	return nil
}

// add adds a consumer, whose turn comes after all others.
func (g *priorityGroup) add(c *Consumer) {
	if g.turn == 0 || g.turn >= len(g.active) {
		g.active, g.turn = append(g.active, c), 0
		return
	}
	g.active = slices.Insert(g.active, g.turn, c)
	g.turn++
}

// servesNoAck reports whether one of the consumers to deliver to now does not
// acknowledge.
func (cs *consumers) servesNoAck() bool {
	g := cs.serve()
	return g != nil && slices.ContainsFunc(g.active, func(c *Consumer) bool { return c.NoAck })
}

// next returns the consumer whose turn it is.
func (g *priorityGroup) next() *Consumer {
	if g.turn >= len(g.active) {
		g.turn = 0
	}
	return g.active[g.turn]
}

// share returns how many messages a consumer gets before the next one's turn.
func (g *priorityGroup) share(c *Consumer) int {
	if len(g.active) > 1 {
		return 1
	}
	return min(c.credit(), maxBatch)
}

// credit returns how many messages all consumers would take now.
func (cs *consumers) credit() int {
	if cs == nil {
		return 0
	}
	n := 0
	for i := range cs.groups {
		for _, c := range cs.groups[i].active {
			n += c.credit()
		}
	}
	return n
}
