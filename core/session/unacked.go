package session

import (
	"iter"
	"slices"

	"github.com/curfewmq/curfew/core/queue"
)

// unacked is what a channel was handed and has not settled, by delivery tag. Tags count up from 1, so that a ring holds
// the recent ones; what stays behind for long is kept apart, and does not make the ring grow.
type unacked struct {
	ring        []queue.PendingAck // a power of two of them; without a consumer: settled, or none was due
	base        uint64             // the lowest tag in the ring
	next        uint64             // the next tag, less 1
	ringUnacked int                // unsettled ones in the ring
	old         []tagged           // unsettled ones below base, in order, and gaps
	gaps        int                // in old
}

// tagged is a delivery with its tag. A gap has no consumer.
type tagged struct {
	tag uint64
	queue.PendingAck
}

// minRing is the size of the first ring.
const minRing = 16

// skip uses up a tag for a delivery that needs no acknowledgement.
func (u *unacked) skip() (tag uint64) {
	if u.ringUnacked > 0 {
		return u.push(queue.PendingAck{})
	}
	u.next++
	return u.next
}

// push gives a delivery its tag.
func (u *unacked) push(s queue.PendingAck) (tag uint64) {
	u.next++
	if u.ringUnacked == 0 {
		u.base = u.next
	}
	if u.next-u.base >= uint64(len(u.ring)) {
		u.makeRoom()
	}
	*u.at(u.next) = s
	if s.Consumer != nil {
		u.ringUnacked++
	}
	return u.next
}

func (u *unacked) at(tag uint64) *queue.PendingAck { return &u.ring[tag&uint64(len(u.ring)-1)] }

// makeRoom is called when the ring is full of tags: it grows, unless few of them are unsettled.
func (u *unacked) makeRoom() {
	if u.ringUnacked < len(u.ring)/4 {
		u.retire(u.next - u.base)
		return
	}
	grown := unacked{ring: make([]queue.PendingAck, max(2*len(u.ring), minRing)), base: u.base}
	for tag := u.base; tag < u.next; tag++ {
		*grown.at(tag) = *u.at(tag)
	}
	u.ring = grown.ring
}

// retire moves the first n tags' unsettled deliveries out of the ring.
func (u *unacked) retire(n uint64) {
	u.compact()
	for ; n > 0; n-- {
		if s := u.at(u.base); s.Consumer != nil {
			u.old = append(u.old, tagged{u.base, *s})
			*s = queue.PendingAck{}
			u.ringUnacked--
		}
		u.base++
	}
}

// compact closes the gaps in old when they are many.
func (u *unacked) compact() {
	if u.gaps <= len(u.old)/2 {
		return
	}
	u.old = slices.DeleteFunc(u.old, func(t tagged) bool { return t.Consumer == nil })
	u.gaps = 0
}

// find returns the place of an unsettled delivery, nil if the tag is of none.
func (u *unacked) find(tag uint64) *queue.PendingAck {
	var s *queue.PendingAck
	switch {
	case u.ringUnacked > 0 && tag >= u.base:
		if tag > u.next {
			return nil
		}
		s = u.at(tag)
	default:
		i, ok := u.search(tag)
		if !ok {
			return nil
		}
		s = &u.old[i].PendingAck
	}
	if s.Consumer == nil {
		return nil
	}
	return s
}

// search returns where in old a tag is or would be.
func (u *unacked) search(tag uint64) (int, bool) {
	return slices.BinarySearchFunc(u.old, tag, func(t tagged, tag uint64) int {
		switch {
		case t.tag < tag:
			return -1
		case t.tag > tag:
			return 1
		}
		return 0
	})
}

// take settles a delivery.
func (u *unacked) take(tag uint64) (s queue.PendingAck, ok bool) {
	p := u.find(tag)
	if p == nil {
		return queue.PendingAck{}, false
	}
	s = *p
	*p = queue.PendingAck{}
	if u.ringUnacked > 0 && tag >= u.base {
		u.taken()
		return s, true
	}
	u.gaps++
	u.compact()
	return s, true
}

// taken counts a delivery out of the ring and lets the ring begin at one that is not settled.
func (u *unacked) taken() {
	u.ringUnacked--
	if u.ringUnacked == 0 {
		u.shrink()
		return
	}
	for u.at(u.base).Consumer == nil {
		u.base++
	}
}

// maxRetainedRing is the largest ring that is kept when nothing is in it.
const maxRetainedRing = 4096

func (u *unacked) shrink() {
	u.base = u.next + 1
	if len(u.ring) > maxRetainedRing {
		u.ring = nil
	}
}

// takeUpTo settles every delivery up to one that is unsettled, and appends them to dst in order.
func (u *unacked) takeUpTo(tag uint64, dst []tagged) (_ []tagged, ok bool) {
	if u.find(tag) == nil {
		return dst, false
	}
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
	for u.ringUnacked > 0 && u.base <= tag {
		if s := u.at(u.base); s.Consumer != nil {
			dst = append(dst, tagged{u.base, *s})
			*s = queue.PendingAck{}
			u.taken()
			continue
		}
		u.base++
	}
	return dst, true
}

// takeAll settles everything and appends it to dst in order.
func (u *unacked) takeAll(dst []tagged) []tagged {
	dst, _ = u.takeUpTo(u.highest(), dst)
	return dst
}

// highest is the highest tag of an unsettled delivery, 0 if there is none.
func (u *unacked) highest() uint64 {
	for tag := u.next; u.ringUnacked > 0; tag-- {
		if u.at(tag).Consumer != nil {
			return tag
		}
	}
	for _, t := range slices.Backward(u.old) {
		if t.Consumer != nil {
			return t.tag
		}
	}
	return 0
}

// count is how many deliveries are unsettled.
func (u *unacked) count() int { return u.ringUnacked + len(u.old) - u.gaps }

// lowest is the lowest tag of an unsettled delivery, 0 if there is none.
func (u *unacked) lowest() uint64 {
	for i := range u.old {
		if u.old[i].Consumer != nil {
			return u.old[i].tag
		}
	}
	if u.ringUnacked > 0 {
		return u.base
	}
	return 0
}

// restore makes deliveries unsettled again.
func (u *unacked) restore(ts []tagged) {
	for _, t := range ts {
		if u.ringUnacked > 0 && t.tag >= u.base {
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

// between lists the unsettled deliveries with tags from from on and before end, in order.
func (u *unacked) between(from, end uint64) iter.Seq[tagged] {
	return func(yield func(tagged) bool) {
		i, _ := u.search(from)
		for ; i < len(u.old) && u.old[i].tag < end; i++ {
			if u.old[i].Consumer != nil && !yield(u.old[i]) {
				return
			}
		}
		for tag := max(u.base, from); u.ringUnacked > 0 && tag < end; tag++ {
			if s := u.at(tag); s.Consumer != nil && !yield(tagged{tag, *s}) {
				return
			}
		}
	}
}
