package session

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/core/parts"
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

func (l *leases) add(end hook.Instant, first uint64, n int) {
	for n > 0 {
		k := min(n, maxRun)
		l.runs.Push(deadline.Item{At: int64(end), Slot: first<<runBits | uint64(k)})
		first += uint64(k)
		n -= k
	}
}

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

// beginLeases begins the leases of the last n deliveries, which went to one consumer. The caller holds out's lock.
func (u *unsettled) beginLeases(cs *consumer, now hook.Instant, n int) {
	lease := cs.leaseOf()
	first := u.tags.next - uint64(n) + 1
	cs.markLeased(first, lease > 0)
	if lease == 0 {
		return
	}
	l := u.leases
	switch {
	case l == nil:
		l = &leases{most: minRuns}
		u.leases = l
	case !u.tx.isOn() && u.tags.count() == n:
		l.clear()
	}
	end := now.Add(lease)
	l.add(end, first, n)
	u.arm(l, end)
}

// arm makes the reader check leases at an instant, or at once if there are too many. The caller holds out's lock.
func (u *unsettled) arm(l *leases, at hook.Instant) {
	if l.runs.Len() > l.most {
		at = 1 // makes the reader remove the stale ones
	}
	u.alarm.arm(at)
}

// clear removes all leases. No delivery may be unsettled.
func (l *leases) clear() {
	l.runs.Keep(func(deadline.Item) bool { return false })
	clear(l.extended)
}

// leaseAlarm makes the connection's reader check the leases of deliveries in time. All channels of a connection share it.
type leaseAlarm struct {
	at   atomic.Int64 // set to a time under the lock of the connection's out, or to 0 by the reader
	wake func()       // makes the reader look at the time
}

// arm makes the reader check leases at an instant. The caller holds the lock of the connection's out.
func (a *leaseAlarm) arm(at hook.Instant) {
	if armed := a.at.Load(); armed != 0 && armed <= int64(at) {
		return
	}
	a.at.Store(int64(at))
	a.wake()
}

// next returns when leases must be checked; 0 means never.
func (a *leaseAlarm) next() hook.Instant { return hook.Instant(a.at.Load()) }

// due reports whether leases must be checked now. If so, it disarms the alarm: if it is armed again from now on, the reader comes back.
func (a *leaseAlarm) due(now hook.Instant) bool {
	if at := a.next(); at == 0 || now < at {
		return false
	}
	a.at.Store(0)
	return true
}

// LeaseAt returns when Tick must be called because of leases of deliveries, in the time that Tick takes; 0 means never. When the result
// becomes earlier, the connection calls wake: see [Server.Accept]. Leases are in the vhost's time.
func (c *Conn) LeaseAt() hook.Instant {
	at := c.alarm.next()
	if at == 0 || c.offset == 0 {
		return at
	}
	return max(at.Add(-c.offset), 1)
}

// maxEnded is roughly how many leases end in one step before queues and other connections get their turn.
const maxEnded = 4096

// endLeases ends the leases that have run out.
func (u *unsettled) endLeases(now hook.Instant) {
	for {
		acks := u.takeEnded(now, u.round.tags())
		if len(acks) == 0 {
			return
		}
		for i := range acks {
			u.ended.add(acks[i].tag)
		}
		u.round.settleAll(queue.LeaseEnd, acks)
		u.round.retain(acks)
		u.round.flush()
	}
}

// takeEnded takes about maxEnded deliveries whose lease has run out. If there are none, it arms the reader for the next end of a lease.
func (u *unsettled) takeEnded(now hook.Instant, dst []taggedAck) []taggedAck {
	o := u.out.lock()
	defer o.mu.Unlock()
	l := u.leases
	if l == nil {
		return dst
	}
	for len(dst) < maxEnded && l.runs.Len() > 0 && hook.Instant(l.runs.Top().At) <= now {
		dst = u.takeRun(runOf(l.runs.Pop()), dst)
	}
	if len(dst) == 0 {
		u.pruneLeases()
		if l.runs.Len() > 0 {
			u.alarm.arm(hook.Instant(l.runs.Top().At))
		}
	}
	return dst
}

// takeRun takes the unsettled deliveries of a run, including those settled in the open transaction.
func (u *unsettled) takeRun(r run, dst []taggedAck) []taggedAck {
	l := u.leases
	from := len(dst)
	for t := range u.tags.between(r.first, r.to) {
		if l.ends(t.tag, r.end) {
			dst = append(dst, t)
		}
	}
	for _, t := range dst[from:] {
		u.tags.take(t.tag)
	}
	if u.tx.holds() {
		for tag := r.first; tag < r.to; tag++ {
			if l.ends(tag, r.end) {
				dst = u.tx.takeSettle(tag, dst)
			}
		}
	}
	u.counters.LeasesEnded += uint64(len(dst) - from)
	for _, t := range dst[from:] {
		delete(l.extended, t.tag)
		u.credit.giveBack(t.PendingAck)
	}
	return dst
}

// pruneLeases removes runs without unsettled deliveries: all of them if there are many, otherwise only at the top of the heap.
func (u *unsettled) pruneLeases() {
	l := u.leases
	if l.runs.Len() > l.most {
		l.runs.Keep(func(it deadline.Item) bool { return u.holds(runOf(it)) })
		l.most = max(2*l.runs.Len(), minRuns)
	}
	for l.runs.Len() > 0 && !u.holds(runOf(l.runs.Top())) {
		l.runs.Pop()
	}
}

// pruneExtended forgets the extended leases of settled deliveries.
func (u *unsettled) pruneExtended() {
	maps.DeleteFunc(u.leases.extended, func(tag uint64, _ hook.Instant) bool {
		return u.tags.find(tag) == nil && u.tx.find(tag) == nil
	})
}

// holds reports whether a delivery of a run is unsettled, or settled in the open transaction.
func (u *unsettled) holds(r run) bool {
	for t := range u.tags.between(r.first, r.to) {
		if u.leases.ends(t.tag, r.end) {
			return true
		}
	}
	for tag := r.first; u.tx.holds() && tag < r.to; tag++ {
		if u.leases.ends(tag, r.end) && u.tx.find(tag) != nil {
			return true
		}
	}
	return false
}

// extendLease makes the lease of a delivery end the given time from now, and reports whether the delivery is held. It does not give a lease
// to a delivery that has none.
func (u *unsettled) extendLease(tag uint64, by time.Duration) (held bool) {
	o := u.out.lock()
	defer o.mu.Unlock()
	t := taggedAck{tag: tag}
	if ack := u.tags.find(tag); ack != nil {
		t.PendingAck = *ack
	} else if s := u.tx.find(tag); s != nil {
		t = s.taggedAck
	} else {
		return false
	}
	l := u.leases
	if l == nil || !u.leased(t) {
		return true
	}
	end := u.round.instant().Add(by)
	if l.extended == nil {
		l.extended = map[uint64]hook.Instant{}
	}
	l.extended[tag] = end
	l.add(end, tag, 1)
	if len(l.extended) > 2*(u.tags.count()+u.tx.settlements())+minRuns {
		u.pruneExtended()
	}
	u.arm(l, end)
	return true
}

// maxLeaseTags bounds the memory for a policy that is switched on and off repeatedly.
// Beyond it, the oldest deliveries count as having no lease.
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
func (u *unsettled) leased(t taggedAck) bool {
	cs := u.consumers.of(t.Consumer)
	if cs == nil {
		return t.Consumer.Queue.Config().DeliveryLease > 0
	}
	n := len(cs.leaseTags)
	for n > 0 && cs.leaseTags[n-1] > t.tag {
		n--
	}
	return n%2 == 1
}

// A consumer extends the lease of a delivery with a message to the default exchange. No queue can have the name leaseKey. No permission
// is needed, because the delivery tag belongs to the channel itself.
const (
	leaseKey     = "amq.lease"
	headerTag    = "delivery-tag"
	headerExtend = "extend" // milliseconds from now on
)

// leaseInfo is the routing info of every message that extends a lease, and of no other message. It is never modified.
var leaseInfo = &queue.RoutingInfo{Key: leaseKey}

func isLeaseKey(exchange, key []byte) bool { return len(exchange) == 0 && string(key) == leaseKey }

// extend handles a message that extends the lease of a delivery. It takes effect at once, even in a transaction. If the delivery is no
// longer held, the message is unroutable.
func (p *publisher) extend() error {
	tag, by, err := p.readExtension()
	if err != nil {
		return err
	}
	p.counts.published++
	if !p.held.extendLease(tag, by) {
		m := queue.Message{Routing: leaseInfo, Props: p.content.props, Body: p.content.body}
		p.unroutable(&m, p.content.mandatory)
	}
	if p.confirms.isOn() {
		p.confirms.next(0)
	}
	return nil
}

// readExtension reads the headers of a message that extends a lease.
func (p *publisher) readExtension() (tag uint64, by time.Duration, err error) {
	var headers amqp.RawTable
	if p.props.index.Has(amqp.PropHeaders) {
		headers = p.props.index.Headers(p.content.props)
	}
	n, ok := parts.HeaderNumber(headers, headerTag)
	if !ok || n < 1 {
		return 0, 0, invalidHeader(headers, headerTag, "the tag of a delivery, 1 or more")
	}
	millis, ok := parts.HeaderNumber(headers, headerExtend)
	if !ok || millis < 1 || millis > hook.MaxMillis {
		return 0, 0, invalidHeader(headers, headerExtend, "1 to "+strconv.Itoa(hook.MaxMillis)+" milliseconds")
	}
	return uint64(n), time.Duration(millis) * time.Millisecond, nil
}

func invalidHeader(headers amqp.RawTable, name, expected string) error {
	got := "none"
	if v, ok := parts.Header(headers, name); ok {
		got = amqp.TypeName(v)
		if n, ok := parts.HeaderNumber(headers, name); ok {
			got = strconv.FormatInt(n, 10)
		}
	}
	return precondition("invalid header '%s' of a message to '%s': expected %s, got %s", name, leaseKey, expected, got)
}

// endedTags holds the tags of deliveries whose lease has ended and that the client has not settled since. The client may not know that the
// lease has ended, so its settlement is ignored. Tags are kept as ranges; a client that settles nothing produces a single range.
type endedTags struct {
	ranges []tagRange // in order; they neither overlap nor touch
}

// tagRange is the tags first <= tag <= last.
type tagRange struct{ first, last uint64 }

// maxEndedRanges bounds the memory for ended tags. Beyond it the two lowest ranges are merged, including the tags between them: a
// settlement of a tag in between is then ignored, too, even where it is the client's mistake.
const maxEndedRanges = 1024

// search returns the position of the range that contains the tag, or of the first range above it.
func (e *endedTags) search(tag uint64) (i int, found bool) {
	i, _ = slices.BinarySearchFunc(e.ranges, tag, func(r tagRange, tag uint64) int { return cmp.Compare(r.last, tag) })
	return i, i < len(e.ranges) && e.ranges[i].first <= tag
}

func (e *endedTags) has(tag uint64) bool {
	_, found := e.search(tag)
	return found
}

func (e *endedTags) add(tag uint64) {
	i, found := e.search(tag)
	if found {
		return
	}
	below := i > 0 && e.ranges[i-1].last+1 == tag
	above := i < len(e.ranges) && e.ranges[i].first == tag+1
	switch {
	case below && above:
		e.ranges[i-1].last = e.ranges[i].last
		e.ranges = slices.Delete(e.ranges, i, i+1)
	case below:
		e.ranges[i-1].last = tag
	case above:
		e.ranges[i].first = tag
	default:
		e.ranges = slices.Insert(e.ranges, i, tagRange{tag, tag})
		e.bound()
	}
}

// take removes a tag and reports whether it was present.
func (e *endedTags) take(tag uint64) bool {
	i, found := e.search(tag)
	if !found {
		return false
	}
	switch r := &e.ranges[i]; {
	case r.first == r.last:
		e.ranges = slices.Delete(e.ranges, i, i+1)
	case r.first == tag:
		r.first++
	case r.last == tag:
		r.last--
	default:
		upper := tagRange{tag + 1, r.last}
		r.last = tag - 1
		e.ranges = slices.Insert(e.ranges, i+1, upper)
		e.bound()
	}
	return true
}

// takeThrough removes all tags up to tag.
func (e *endedTags) takeThrough(tag uint64) {
	i, found := e.search(tag)
	if found && e.ranges[i].last == tag {
		i++
	} else if found {
		e.ranges[i].first = tag + 1
	}
	e.ranges = slices.Delete(e.ranges, 0, i)
}

func (e *endedTags) bound() {
	if len(e.ranges) > maxEndedRanges {
		e.ranges[1].first = e.ranges[0].first
		e.ranges = slices.Delete(e.ranges, 0, 1)
	}
}
