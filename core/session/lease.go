package session

import (
	"maps"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A delivery lease bounds how long a delivery may stay unsettled. When it ends, the message returns to its queue and counts as a failed
// delivery. The channel and its other deliveries are not affected, and a late settlement is ignored.
//
// Leases begin on queues' turns. They end in Tick, on the connection's reader, which also handles settlements, so a settlement and the end
// of a lease cannot race. There is no timer per lease: the owner of the socket calls Tick at [Conn.LeaseAt].

// leases holds the leases of a channel's deliveries. The deliveries of one call of Deliver have consecutive tags and the same end. Such
// a run is one item of the heap, so that a million deliveries in flight need little memory. Settled deliveries stay in the heap until the
// end of their lease, or until there are too many.
type leases struct {
	runs     deadline.Heap           // an item's slot is a run; stale once none of its deliveries is unsettled
	most     int                     // number of runs above which stale ones are removed
	extended map[uint64]hook.Instant // ends of extended leases, by tag: only a run with this end applies to the tag
}

// A run is encoded as its lowest tag, followed by the number of tags in runBits bits: tags 5 to 104 are 5<<12 | 100.
const (
	runBits = 12
	maxRun  = 1<<runBits - 1
	minRuns = 1024 // the least value of most
)

// run is a range of deliveries whose leases end together.
type run struct {
	end       hook.Instant
	first, to uint64 // the tags first <= tag < to
}

func runOf(it deadline.Item) run {
	first := it.Slot >> runBits
	return run{hook.Instant(it.At), first, first + it.Slot&maxRun}
}

// add adds leases for the n tags from first on.
func (l *leases) add(end hook.Instant, first uint64, n int) {
	for n > 0 {
		k := min(n, maxRun)
		l.runs.Push(deadline.Item{At: int64(end), Slot: first<<runBits | uint64(k)})
		first += uint64(k)
		n -= k
	}
}

// ends reports whether the lease of a tag ends at the instant at.
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

// beginLeases begins the leases of the last n deliveries. The caller holds out's lock.
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
		end = 1 // makes the reader remove the stale ones
	}
	ch.conn.armLease(end)
}

// clear removes all leases. No delivery may be unsettled.
func (l *leases) clear() {
	l.runs.Keep(func(deadline.Item) bool { return false })
	clear(l.extended)
}

// armLease makes the reader check leases at an instant. The caller holds out's lock.
func (c *Conn) armLease(at hook.Instant) {
	if armed := c.leaseAt.Load(); armed != 0 && armed <= int64(at) {
		return
	}
	c.leaseAt.Store(int64(at))
	c.wake()
}

// LeaseAt returns when Tick must be called because of leases of deliveries, in the time that Tick takes; 0 means never. When the result
// becomes earlier, the connection calls wake: see [Server.Accept]. Leases are in the vhost's time.
func (c *Conn) LeaseAt() hook.Instant {
	at := hook.Instant(c.leaseAt.Load())
	if at == 0 || c.offset == 0 {
		return at
	}
	return max(at.Add(-c.offset), 1)
}

// endLeases ends the leases that have run out.
func (c *Conn) endLeases(now hook.Instant) {
	if at := c.leaseAt.Load(); at == 0 || int64(now) < at {
		return
	}
	c.leaseAt.Store(0) // if it is armed again from now on, the reader comes back
	for _, ch := range c.channels {
		if ch != nil && !ch.closing {
			ch.endLeases(now)
		}
	}
}

// maxEnded is roughly how many leases end in one step before queues and other connections get their turn.
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

// takeEnded takes about maxEnded deliveries whose lease has run out. If there are none, it arms the reader for the next end of a lease.
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

// takeRun takes the unsettled deliveries of a run, including those settled in the open transaction.
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

// pruneLeases removes runs without unsettled deliveries: all of them if there are many, otherwise only at the top of the heap.
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

// pruneExtended forgets the extended leases of settled deliveries.
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

// maxLeaseTags bounds the memory for a policy that is switched on and off repeatedly. Beyond it, the oldest deliveries count as having no lease.
const maxLeaseTags = 16

// markLeased records whether deliveries have leases from a tag on.
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
