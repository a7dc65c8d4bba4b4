package journal

import (
	"fmt"
	"slices"

	"github.com/curfewmq/curfew/core/wlog"
)

// Delta is a change of an extent's live bytes: records that were committed
// count for, records that are settled, moved or deleted against it. A record
// weighs what it adds to the log, the length of its operation.
type Delta struct {
	Extent uint32
	Bytes  int64
}

// extents says which part of the log nobody needs any more. Consecutive entries
// of together about size bytes make an extent; the log is trimmed up to the
// first one with anything live in it.
//
//	   trimmed   │ base        │ base+1      │ …     │ current
//	─────────────┼─────────────┼─────────────┼───────┼─────────────
//	             │ dead or live, closed              │ still grows
//
// A record may be accounted to an earlier extent than its entry lies in, never
// to a later one: as the log loses prefixes only, what is accounted too early is
// kept too long at worst. An extents belongs to whoever holds the shard's mu.
type extents struct {
	list  []extent   // never empty; the last is the current one
	base  uint32     // number of list[0]; the first extent is 1, so that 0 can mean none
	size  int64      // an extent that holds as much is closed
	bytes int64      // sum of list[].bytes
	live  int64      // sum of list[].live
	end   wlog.Index // every entry in the log lies before it
}

type extent struct {
	first wlog.Index // no entry of this extent or a later one lies before it
	bytes int64      // of its entries
	live  int64      // accounted to it
}

func newExtents(size int64) extents {
	return extents{list: make([]extent, 1, 16), base: 1, size: size}
}

func (x *extents) current() uint32 { return x.base + uint32(len(x.list)) - 1 }

// append accounts for an entry of n bytes at index at, the last one in the log.
// It returns the extent it lies in.
func (x *extents) append(at wlog.Index, n int64) uint32 {
	in := x.current()
	e := &x.list[len(x.list)-1]
	e.bytes += n
	x.bytes += n
	x.end = at + 1
	if e.bytes >= x.size {
		x.list = append(x.list, extent{first: at + 1})
	}
	return in
}

// add counts a record that is about to be appended.
func (x *extents) add(d Delta) {
	if d.Extent == 0 || d.Extent > x.current() {
		panic(fmt.Sprintf("journal: %d bytes accounted to extent %d of %d", d.Bytes, d.Extent, x.current()))
	}
	if d.Extent < x.base {
		x.restore(d.Extent)
	}
	x.list[d.Extent-x.base].live += d.Bytes
	x.live += d.Bytes
}

// restore brings back extents that were found dead and dropped between the
// moment a caller learnt the number and the moment it used it. They hold no
// entries: the caller's records will be appended behind what is there.
func (x *extents) restore(number uint32) {
	missing := make([]extent, x.base-number)
	for i := range missing {
		missing[i].first = x.list[0].first
	}
	x.list = slices.Insert(x.list, 0, missing...)
	x.base = number
}

// free takes off a record that nothing depends on any more.
func (x *extents) free(d Delta) {
	if d.Extent < x.base || d.Extent > x.current() || x.list[d.Extent-x.base].live < -d.Bytes {
		panic(fmt.Sprintf("journal: %d bytes of extent %d are not live", -d.Bytes, d.Extent))
	}
	x.list[d.Extent-x.base].live += d.Bytes
	x.live += d.Bytes
}

// freeAll is free for several, of which those of no bytes were done with earlier.
func (x *extents) freeAll(ds []Delta) {
	for _, d := range ds {
		if d.Bytes != 0 {
			x.free(d)
		}
	}
}

// trim drops the extents at the front that have nothing live in them and
// returns the index before which the log is not needed. The current extent
// stays; if nothing is live at all, it begins anew.
func (x *extents) trim() (before wlog.Index, ok bool) {
	if x.live == 0 && x.bytes > 0 {
		x.base = x.current()
		x.list = append(x.list[:0], extent{first: x.end})
		x.bytes = 0
		return x.end, true
	}
	dead := 0
	for dead < len(x.list)-1 && x.list[dead].live == 0 {
		x.bytes -= x.list[dead].bytes
		dead++
	}
	if dead == 0 {
		return 0, false
	}
	x.list = slices.Delete(x.list, 0, dead)
	x.base += uint32(dead)
	return x.list[0].first, true
}

// excess is by how much the log is larger than the live bytes justify, slack
// included. Records at the front must be moved, and so be written again, before
// what died behind them can be trimmed; starting at seven quarters instead of
// twice the live bytes leaves room for that.
func (x *extents) excess(slack int64) int64 {
	return x.bytes - x.live - x.live/4*3 - slack
}

// oversize reports whether the log is more than twice the live bytes and slack.
func (x *extents) oversize(slack int64) bool { return x.bytes > 2*x.live+slack }

// plan returns the last of the extents at the front whose live records are to
// be moved to the end of the log, 0 if it is small enough. It takes as many as
// bring it down to size, but not more than most bytes to move, in steps of an
// extent.
func (x *extents) plan(slack, most int64) (upTo uint32) {
	excess := x.excess(slack)
	if excess <= 0 {
		return 0
	}
	var dead, moved int64
	for i, e := range x.list[:len(x.list)-1] {
		moved += e.live
		if i > 0 && moved > most {
			break
		}
		upTo = x.base + uint32(i)
		dead += max(0, e.bytes-e.live)
		if dead >= excess+x.size {
			break
		}
	}
	return upTo
}

// planLowSpace is plan for when space is short: whatever died is worth having back, by
// way of what lives before it if need be. Not much is on its way at a time, as it
// takes space that is kept for this and for settling.
func (x *extents) planLowSpace() (upTo uint32) {
	const worthwhile, most = 4, 2 // extents
	if x.bytes-x.live < worthwhile*x.size {
		return 0
	}
	var moved int64
	for i, e := range x.list[:len(x.list)-1] {
		if moved += e.live; i > 0 && moved > most*x.size {
			break
		}
		upTo = x.base + uint32(i)
	}
	return upTo
}

// holds reports whether there is anything live in an extent.
func (x *extents) holds(number uint32) bool {
	return number >= x.base && x.list[number-x.base].live > 0
}
