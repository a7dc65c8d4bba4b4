package session

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/curfewmq/curfew/core/queue"
)

// unacked holds a channel's unacknowledged deliveries by tag. Tags count up from 1. A ring holds the recent ones; deliveries that stay
// for long move to a sorted slice, so that they do not make the ring grow.
type unacked struct {
	ring        []queue.PendingAck // a power of two long; entries without a consumer are settled or need no ack
	base        uint64             // lowest tag in the ring
	next        uint64             // the next tag, less 1
	ringUnacked int                // unacknowledged deliveries in the ring
	old         []taggedAck        // deliveries with tags below base, in order, with gaps
	gaps        int                // number of gaps in old
}

// taggedAck is a pending ack with its tag. In a gap, the consumer is nil.
type taggedAck struct {
	tag uint64
	queue.PendingAck
}

const (
	minRing         = 16
	maxRetainedRing = 4096 // size up to which an empty ring is kept
)

// skip uses a tag for a delivery that needs no ack.
func (u *unacked) skip() (tag uint64) {
	if u.ringUnacked > 0 {
		return u.push(queue.PendingAck{})
	}
	u.next++
	return u.next
}

// push adds a delivery and returns its tag.
func (u *unacked) push(ack queue.PendingAck) (tag uint64) {
	u.next++
	if u.ringUnacked == 0 {
		u.base = u.next
	}
	if u.next-u.base >= uint64(len(u.ring)) {
		u.extend()
	}
	*u.at(u.next) = ack
	if ack.Consumer != nil {
		u.ringUnacked++
	}
	return u.next
}

func (u *unacked) at(tag uint64) *queue.PendingAck { return &u.ring[tag&uint64(len(u.ring)-1)] }

// extend makes space in a full ring. It doubles the ring, unless few of its deliveries are unacknowledged: then these move to old.
func (u *unacked) extend() {
	if u.ringUnacked >= len(u.ring)/4 {
		grown := unacked{ring: make([]queue.PendingAck, max(2*len(u.ring), minRing))}
		for tag := u.base; tag < u.next; tag++ {
			*grown.at(tag) = *u.at(tag)
		}
		u.ring = grown.ring
		return
	}
	u.compact()
	for ; u.base < u.next; u.base++ {
		if ack := u.at(u.base); ack.Consumer != nil {
			u.old = append(u.old, taggedAck{u.base, *ack})
			*ack = queue.PendingAck{}
			u.ringUnacked--
		}
	}
}

// compact removes the gaps in old when they are many.
func (u *unacked) compact() {
	if u.gaps > len(u.old)/2 {
		u.old = slices.DeleteFunc(u.old, func(t taggedAck) bool { return t.Consumer == nil })
		u.gaps = 0
	}
}

// inRing reports whether a tag lies in the ring, or above it.
func (u *unacked) inRing(tag uint64) bool { return u.ringUnacked > 0 && tag >= u.base }

// find returns the pending ack for a tag; nil = there is none.
func (u *unacked) find(tag uint64) (ack *queue.PendingAck) {
	if u.inRing(tag) {
		if tag > u.next {
			return nil
		}
		ack = u.at(tag)
	} else if i, ok := u.search(tag); ok {
		ack = &u.old[i].PendingAck
	}
	if ack == nil || ack.Consumer == nil {
		return nil
	}
	return ack
}

// search returns the position of a tag in old, or where it would be inserted.
func (u *unacked) search(tag uint64) (int, bool) {
	return slices.BinarySearchFunc(u.old, tag, func(t taggedAck, tag uint64) int { return cmp.Compare(t.tag, tag) })
}

func (u *unacked) take(tag uint64) (ack queue.PendingAck, ok bool) {
	p := u.find(tag)
	if p == nil {
		return queue.PendingAck{}, false
	}
	ack = *p
	*p = queue.PendingAck{}
	if u.inRing(tag) {
		u.takenFromRing()
	} else {
		u.gaps++
		u.compact()
	}
	return ack, true
}

// takenFromRing records that a delivery left the ring, and moves base to the next unacknowledged one.
func (u *unacked) takenFromRing() {
	u.ringUnacked--
	if u.ringUnacked == 0 {
		u.base = u.next + 1
		if len(u.ring) > maxRetainedRing {
			u.ring = nil
		}
		return
	}
	for u.at(u.base).Consumer == nil {
		u.base++
	}
}

// takeUpTo removes every pending ack up to a tag and appends them to dst in order. ok is false if the tag itself has none.
func (u *unacked) takeUpTo(tag uint64, dst []taggedAck) (_ []taggedAck, ok bool) {
	if u.find(tag) == nil {
		return dst, false
	}
	return u.takeThrough(tag, dst), true
}

// takeAll removes every pending ack and appends them to dst in order.
func (u *unacked) takeAll(dst []taggedAck) []taggedAck { return u.takeThrough(u.next, dst) }

// takeThrough removes every pending ack up to a tag and appends them to dst in order. The tag itself need not have one.
func (u *unacked) takeThrough(tag uint64, dst []taggedAck) []taggedAck {
	n, found := u.search(tag)
	if found {
		n++
	}
	for _, t := range u.old[:n] {
		if t.Consumer != nil {
			dst = append(dst, t)
		} else {
			u.gaps--
		}
	}
	u.old = slices.Delete(u.old, 0, n)
	for u.ringUnacked > 0 && u.base <= tag { // base is always unacknowledged
		ack := u.at(u.base)
		dst = append(dst, taggedAck{u.base, *ack})
		*ack = queue.PendingAck{}
		u.takenFromRing()
	}
	return dst
}

func (u *unacked) count() int { return u.ringUnacked + len(u.old) - u.gaps }

// lowest returns the lowest unacknowledged tag, 0 if there is none.
func (u *unacked) lowest() uint64 {
	for t := range u.between(0, u.next+1) {
		return t.tag
	}
	return 0
}

// restore adds deliveries again with their old tags.
func (u *unacked) restore(acks []taggedAck) {
	for _, t := range acks {
		if u.inRing(t.tag) {
			*u.at(t.tag) = t.PendingAck
			u.ringUnacked++
			continue
		}
		i, found := u.search(t.tag)
		if found {
			u.old[i] = t
			u.gaps--
			continue
		}
		u.old = slices.Insert(u.old, i, t)
	}
}

// between yields the unacknowledged deliveries with from <= tag < end, in order.
func (u *unacked) between(from, end uint64) iter.Seq[taggedAck] {
	return func(yield func(taggedAck) bool) {
		i, _ := u.search(from)
		for ; i < len(u.old) && u.old[i].tag < end; i++ {
			if u.old[i].Consumer != nil && !yield(u.old[i]) {
				return
			}
		}
		for tag := max(u.base, from); u.ringUnacked > 0 && tag < end; tag++ {
			if ack := u.at(tag); ack.Consumer != nil && !yield(taggedAck{tag, *ack}) {
				return
			}
		}
	}
}

// credit limits the unacknowledged deliveries of a whole channel, and holds the consumers that wait for the limit.
type credit struct {
	out   *outlet
	round *round

	// Guarded by out's lock; only the reader writes the first two, and listed.
	each     uint32      // prefetch of consumers added later
	limit    uint32      // unacknowledged deliveries that the channel may have: its global prefetch; 0 means any number
	inFlight uint32      // deliveries that count against limit
	listed   bool        // in the round
	stalled  []*consumer // consumers that wait for the limit, the least recently served first
}

// set sets the limit of the channel if global, otherwise of each consumer added later; 0 means none. As in RabbitMQ, a limit for consumers
// removes the channel's limit.
func (k *credit) set(global bool, n uint32) {
	o := k.out.lock()
	defer o.mu.Unlock()
	if !global {
		k.each = n
		n = 0
	}
	k.limit = n
	k.raise()
}

// limits returns the prefetch of new consumers and the channel's limit. The caller holds out's lock.
func (k *credit) limits() (each, channel uint32) { return k.each, k.limit }

// forConsumers returns the prefetch of a new consumer. The reader calls it.
func (k *credit) forConsumers() uint32 { return k.each }

// limited reports whether the channel has a limit.
func (k *credit) limited() bool {
	o := k.out.lock()
	defer o.mu.Unlock()
	return k.limit > 0
}

// left reports whether the channel is below its limit. The caller holds out's lock.
func (k *credit) left() bool { return k.limit == 0 || k.inFlight < k.limit }

// allows reports whether the limit allows another delivery to a consumer. A consumer without acknowledgements uses no credit, but as in
// RabbitMQ gets nothing while the channel has none. The caller holds out's lock.
func (k *credit) allows(cs *consumer) bool { return k.left() || cs.exempt }

// of returns how many deliveries the limit allows to a consumer. The caller holds out's lock, and allows has returned true.
func (k *credit) of(cs *consumer) int {
	if k.limit == 0 || cs.NoAck || cs.exempt {
		return math.MaxInt32
	}
	return int(k.limit - k.inFlight)
}

// usesCredit reports whether a consumer's deliveries count against the limit. Those of
// basic.get and of quorum queues, which do not support it, do not.
func usesCredit(c *queue.Consumer) bool { return c.Sink != nil && c.Type != queue.QuorumType }

// take counts a delivery to a consumer as in flight. The caller holds out's lock.
func (k *credit) take(c *queue.Consumer) {
	if usesCredit(c) {
		k.inFlight++
	}
}

// giveBack counts a delivery as no longer in flight. The caller holds out's lock.
func (k *credit) giveBack(ack queue.PendingAck) {
	if !usesCredit(ack.Consumer) {
		return
	}
	k.inFlight--
	if len(k.stalled) > 0 {
		k.raise()
	}
}

// raise makes the round look for stalled consumers that may continue. The caller, on the reader, holds out's lock.
func (k *credit) raise() {
	if !k.listed {
		k.listed = true
		k.round.raised(k)
	}
}

// stall registers a consumer that did not take everything, so that it is woken later. The caller holds out's lock.
func (k *credit) stall(cs *consumer) {
	line := &k.stalled
	if k.allows(cs) {
		line = &k.out.buf.stalled
	}
	// The least recently served consumer goes first, so that none starves.
	i := len(*line)
	for i > 0 && (*line)[i-1].served > cs.served {
		i--
	}
	*line = slices.Insert(*line, i, cs)
}

// forget removes a consumer from the stalled ones. The caller holds out's lock.
func (k *credit) forget(cs *consumer) {
	is := func(o *consumer) bool { return o == cs }
	k.stalled = slices.DeleteFunc(k.stalled, is)
	k.out.buf.stalled = slices.DeleteFunc(k.out.buf.stalled, is)
}

// wakeStalled wakes stalled consumers one by one while there is credit, so that each gets its share, also if they consume from different
// queues.
func (k *credit) wakeStalled() {
	for cs := k.next(); cs != nil; cs = k.next() {
		cs.Wake()
	}
	k.listed = false
}

// next removes and returns the stalled consumer that was served least recently; nil if there is none or no credit.
func (k *credit) next() *consumer {
	o := k.out.lock()
	defer o.mu.Unlock()
	if len(k.stalled) == 0 || !k.left() {
		return nil
	}
	cs := k.stalled[0]
	k.stalled = slices.Delete(k.stalled, 0, 1)
	return cs
}

// stop ends all waiting. The caller holds out's lock.
func (k *credit) stop() { k.stalled = nil }
