package session

import (
	"maps"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A delivery lease is how long a delivery may stay unsettled. When it ends, the message comes back by itself and counts as a failed
// delivery. The channel and its other deliveries stay, and a settlement that comes too late is ignored.
//
// Leases begin on queues' turns, and end in Tick, on the connection's reader, which also handles settlements: of a settlement and
// the end of a lease exactly one comes first. There is no timer for each: the owner of the socket calls Tick at [Conn.LeaseAt].

// leases are those of a channel's deliveries. Deliveries that one call of Deliver brought have tags in a row and the same end: such
// a run is one item of the heap, so a million deliveries in flight take little. Those that were settled stay in the heap until the
// end of their lease, or until there are too many.
type leases struct {
	runs     deadline.Heap           // an item's slot is a run; stale once none of its deliveries is unsettled
	most     int                     // number of runs from which on stale ones are removed
	extended map[uint64]hook.Instant // ends of leases that were extended, by tag: only a run with this end counts
}

// A run is the lowest of its tags, and below it in runBits the number of tags.
const (
	runBits = 12
	maxRun  = 1<<runBits - 1
	minRuns = 1024 // most is not below this
)

// run is deliveries in a row whose leases end together.
type run struct {
	end       hook.Instant
	first, to uint64 // the tags first <= tag < to
}

func runOf(it deadline.Item) run {
	first := it.Slot >> runBits
	return run{hook.Instant(it.At), first, first + it.Slot&maxRun}
}

// add adds leases for n tags from first on.
func (l *leases) add(end hook.Instant, first uint64, n int) {
	for n > 0 {
		k := min(n, maxRun)
		l.runs.Push(deadline.Item{At: int64(end), Slot: first<<runBits | uint64(k)})
		first += uint64(k)
		n -= k
	}
}

// ends reports whether the end of a run is that of a tag's lease.
func (l *leases) ends(tag uint64, at hook.Instant) bool {
	end, ok := l.extended[tag]
	return !ok || end == at
}

// leaseOf returns the lease of a consumer's next deliveries; 0 means none.
func (cs *consumer) leaseOf() time.Duration {
	switch {
	case cs.NoAck:
		return 0
	case cs.lease >= 0:
		return cs.lease
	}
	return cs.Queue.Config().DeliveryLease
}

// beginLeases gives the last n deliveries their leases. The caller holds out's lock.
func (cs *consumer) beginLeases(now hook.Instant, n int) {
	ch, lease := cs.channel, cs.leaseOf()
	first := ch.unacked.next - uint64(n) + 1
	cs.markLeased(first, lease > 0)
	if lease == 0 {
		return
	}
	l := ch.leases
	switch {
	case l == nil:
		l = &leases{most: minRuns}
		ch.leases = l
	case ch.mode != transactional && ch.unacked.count() == n:
		l.clear()
	}
	end := now.Add(lease)
	l.add(end, first, n)
	if l.runs.Len() > l.most {
		end = 1 // the reader removes the stale ones
	}
	ch.conn.armLease(end)
}

// clear removes all leases, when no delivery is unsettled.
func (l *leases) clear() {
	l.runs.Keep(func(deadline.Item) bool { return false })
	clear(l.extended)
}

// armLease has the reader look at leases at an instant. The caller holds out's lock.
func (c *Conn) armLease(at hook.Instant) {
	if armed := c.leaseAt.Load(); armed != 0 && armed <= int64(at) {
		return
	}
	c.leaseAt.Store(int64(at))
	c.wake()
}

// LeaseAt returns when Tick is to be called because of leases of deliveries, in the time that Tick gets; 0 means never. When it gets
// earlier, the connection calls wake: see [Server.Accept]. Leases are in the vhost's time.
func (c *Conn) LeaseAt() hook.Instant {
	at := hook.Instant(c.leaseAt.Load())
	if at == 0 || c.offset == 0 {
		return at
	}
	return max(at.Add(-c.offset), 1)
}

// endLeases ends the leases that are over.
func (c *Conn) endLeases(now hook.Instant) {
	if at := c.leaseAt.Load(); at == 0 || int64(now) < at {
		return
	}
	c.leaseAt.Store(0) // what arms it from now on has the reader come back
	for _, ch := range c.channels {
		if ch != nil && !ch.closing {
			ch.endLeases(now)
		}
	}
}

// maxEnded is about how many leases end at a time, before queues and connections go on.
const maxEnded = 4096

func (ch *channel) endLeases(now hook.Instant) {
	c := ch.conn
	for {
		acks := ch.takeEnded(now, c.tagBuf[:0])
		if len(acks) == 0 {
			return
		}
		for i := range acks {
			ch.ended.add(acks[i].tag)
		}
		c.acks.add(queue.LeaseEnd, acks)
		c.retain(acks)
		c.flush()
	}
}

// takeEnded takes deliveries whose lease is over: about maxEnded of them. Without any, it has the reader come back when the next
// one ends.
func (ch *channel) takeEnded(now hook.Instant, dst []taggedAck) []taggedAck {
	o := ch.lock()
	defer o.mu.Unlock()
	l := ch.leases
	if l == nil {
		return dst
	}
	for len(dst) < maxEnded && l.runs.Len() > 0 && hook.Instant(l.runs.Top().At) <= now {
		dst = ch.takeRun(runOf(l.runs.Pop()), dst)
	}
	if len(dst) == 0 {
		ch.pruneLeases()
		if l.runs.Len() > 0 {
			ch.conn.armLease(hook.Instant(l.runs.Top().At))
		}
	}
	return dst
}

// takeRun takes the unsettled deliveries of a run, and those that are settled in the open transaction.
func (ch *channel) takeRun(r run, dst []taggedAck) []taggedAck {
	l := ch.leases
	from := len(dst)
	for t := range ch.unacked.between(r.first, r.to) {
		if l.ends(t.tag, r.end) {
			dst = append(dst, t)
		}
	}
	for _, t := range dst[from:] {
		ch.unacked.take(t.tag)
	}
	if len(ch.tx.settles) > 0 {
		for tag := r.first; tag < r.to; tag++ {
			if l.ends(tag, r.end) {
				dst = ch.tx.takeSettle(tag, dst)
			}
		}
	}
	ch.counters.LeasesEnded += uint64(len(dst) - from)
	for _, t := range dst[from:] {
		delete(l.extended, t.tag)
		ch.returnCredit(t.PendingAck)
	}
	return dst
}

// pruneLeases removes runs without unsettled deliveries: all if there are many, otherwise those that would end next.
func (ch *channel) pruneLeases() {
	l := ch.leases
	if l.runs.Len() > l.most {
		l.runs.Keep(func(it deadline.Item) bool { return ch.holds(runOf(it)) })
		l.most = max(2*l.runs.Len(), minRuns)
	}
	for l.runs.Len() > 0 && !ch.holds(runOf(l.runs.Top())) {
		l.runs.Pop()
	}
}

// pruneExtended forgets the extended leases of deliveries that were settled.
func (ch *channel) pruneExtended() {
	maps.DeleteFunc(ch.leases.extended, func(tag uint64, _ hook.Instant) bool {
		return ch.unacked.find(tag) == nil && ch.tx.find(tag) == nil
	})
}

// holds reports whether a delivery of a run is unsettled, or settled in the open transaction.
func (ch *channel) holds(r run) bool {
	for t := range ch.unacked.between(r.first, r.to) {
		if ch.leases.ends(t.tag, r.end) {
			return true
		}
	}
	for tag := r.first; len(ch.tx.settles) > 0 && tag < r.to; tag++ {
		if ch.leases.ends(tag, r.end) && ch.tx.find(tag) != nil {
			return true
		}
	}
	return false
}

// maxLeaseTags bounds the memory for a policy that goes on and off. Beyond it, the oldest deliveries count as those without a lease.
const maxLeaseTags = 16

// markLeased notes whether deliveries from a tag on have leases.
func (cs *consumer) markLeased(first uint64, leased bool) {
	if last := len(cs.leaseTags)%2 == 1; last == leased {
		return
	}
	if len(cs.leaseTags) == maxLeaseTags {
		cs.leaseTags = slices.Delete(cs.leaseTags, 0, 2)
	}
	cs.leaseTags = append(cs.leaseTags, first)
}

// leased reports whether an unsettled delivery has a lease. The caller holds out's lock.
func (ch *channel) leased(t taggedAck) bool {
	cs, ok := t.Consumer.Sink.(*consumer)
	if !ok { // basic.get
		if cs = ch.getter; cs == nil || &cs.Consumer != t.Consumer {
			return t.Consumer.Queue.Config().DeliveryLease > 0
		}
	}
	n := len(cs.leaseTags)
	for n > 0 && cs.leaseTags[n-1] > t.tag {
		n--
	}
	return n%2 == 1
}
