package journal

import (
	"fmt"
	"slices"

	"github.com/curfewmq/curfew/core/wlog"
)

// Delta is a change of the live bytes of an extent. Records that are committed add to them;
// records that are settled, relocated or deleted subtract. A record counts with the length
// of its operation in the log.
type Delta struct {
	Extent  uint32
	Records int32 // change of the number of live records, each of which is settled later; 0 for a relocation
	Bytes   int64
}

// extents tracks which parts of the log are live. Consecutive entries of about size bytes
// together are an extent. The log is trimmed up to the first extent with a live record.
//
//	   trimmed   │ base        │ base+1      │ …     │ current
//	─────────────┼─────────────┼─────────────┼───────┼─────────────
//	             │ dead or live, closed              │ still grows
//
// The extent of an entry is known when its first commit is queued: otherwise everything in
// a long queue would be accounted to the extent that was current when the queue began, and
// to relocate that one extent would take as much space as the whole queue. A record may be
// accounted to an earlier extent than its entry lies in, never to a later one. The log is
// trimmed only from the front, so at worst such a record retains the earlier extent too
// long. An extents belongs to the holder of the writer's mu.
type extents struct {
	list  []extent   // never empty; the last is the current one
	base  uint32     // number of list[0]; the first extent is 1, so that 0 can mean none
	size  int64      // an extent is closed once it has taken as many bytes
	bytes int64      // sum of list[].bytes
	live  int64      // sum of list[].live
	end   wlog.Index // every entry in the log lies before it
}

type extent struct {
	first  wlog.Index // of its entries; 0 = none was appended yet
	taken  int64      // bytes of the operations that were queued for it
	queued int        // entries that were begun and are not appended yet
	bytes  int64      // of its entries that were appended
	live   int64      // of the records accounted to it
	most   int64      // bytes of the largest grant whose records it may have
}

func newExtents(size int64) extents {
	return extents{list: make([]extent, 1, 16), base: 1, size: size}
}

func (x *extents) current() uint32 { return x.base + uint32(len(x.list)) - 1 }

// begin begins an entry, which is appended later, and returns its extent.
func (x *extents) begin() uint32 {
	x.list[len(x.list)-1].queued++
	return x.current()
}

// beginMore begins another entry of an extent, which takes over a part of an earlier entry.
func (x *extents) beginMore(in uint32) {
	if in >= x.base {
		x.list[in-x.base].queued++
	}
}

// note notes that the current extent gets records of a grant of so many bytes, all of them
// or some.
func (x *extents) note(bytes int64) {
	e := &x.list[len(x.list)-1]
	e.most = max(e.most, bytes)
}

// largest returns the bytes of the largest grant whose records the log may still have.
func (x *extents) largest() (bytes int64) {
	for i := range x.list {
		bytes = max(bytes, x.list[i].most)
	}
	return bytes
}

// take counts bytes of operations that were added to the last entry begun.
func (x *extents) take(n int64) {
	e := &x.list[len(x.list)-1]
	if e.taken += n; e.taken >= x.size {
		x.list = append(x.list, extent{})
	}
}

// append accounts for an entry of n bytes that was begun in an extent, and is now the last
// one in the log, at index at. 0 bytes mean that the entry was not appended.
func (x *extents) append(in uint32, at wlog.Index, n int64) {
	i := max(in, x.base) - x.base // the extent may have been trimmed, if nothing in it was live
	e := &x.list[i]
	if in >= x.base {
		e.queued--
	}
	if n == 0 {
		return
	}
	if e.first == 0 {
		e.first = at
	}
	e.bytes += n
	x.bytes += n
	x.end = at + 1
}

// replay accounts for the next entry of a log that is replayed. It returns its extent.
func (x *extents) replay(at wlog.Index, n int64) uint32 {
	in := x.begin()
	x.append(in, at, n)
	x.take(n)
	return in
}

// add adds a record that is about to be appended, or the bytes by which it becomes longer.
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

// restore brings back extents that were trimmed after a caller had got the number and
// before it used it. They hold no entries: the caller's records will be appended at the
// end.
func (x *extents) restore(number uint32) {
	x.list = slices.Insert(x.list, 0, make([]extent, x.base-number)...)
	x.base = number
}

// free subtracts a record that is no longer needed.
func (x *extents) free(d Delta) {
	if d.Extent < x.base || d.Extent > x.current() || x.list[d.Extent-x.base].live < -d.Bytes {
		panic(fmt.Sprintf("journal: %d bytes of extent %d are not live", -d.Bytes, d.Extent))
	}
	x.list[d.Extent-x.base].live += d.Bytes
	x.live += d.Bytes
}

// trim drops extents at the front without live records, and returns the index before which
// the log is not needed. The current extent stays; if nothing is live at all, it begins
// anew.
func (x *extents) trim() (before wlog.Index, ok bool) {
	last := len(x.list) - 1
	if x.live == 0 && x.bytes > 0 {
		x.base = x.current()
		current := extent{taken: x.list[last].taken, queued: x.list[last].queued, most: x.list[last].most}
		if current.queued == 0 {
			current = extent{}
		}
		x.list = append(x.list[:0], current)
		x.bytes = 0
		return x.end, true
	}
	dead := 0
	for dead < last && x.list[dead].live == 0 && x.list[dead].queued == 0 {
		x.bytes -= x.list[dead].bytes
		dead++
	}
	if dead == 0 {
		return 0, false
	}
	x.list = slices.Delete(x.list, 0, dead)
	x.base += uint32(dead)
	for _, e := range x.list {
		if e.first != 0 {
			return e.first, true
		}
	}
	return x.end, true
}

// excess returns by how much the log is larger than the live bytes and slack justify. Live
// records at the front must be relocated, which appends to the log, before dead ones behind
// them can be trimmed. Relocation starts at seven quarters of the live bytes instead of
// twice them, which leaves space for the copies.
func (x *extents) excess(slack int64) int64 {
	return x.bytes - x.live - x.live/4*3 - slack
}

// excessTight is excess while another node lacks space: the log may exceed the live bytes
// by a quarter of them and an extent, so that relocation writes at most five times the
// bytes that it frees.
func (x *extents) excessTight() int64 { return x.bytes - x.live - x.live/4 - x.size }

// oversize reports whether the log is more than twice the live bytes and slack.
func (x *extents) oversize(slack int64) bool { return x.bytes > 2*x.live+slack }

// plan returns the last of the extents at the front whose live records are to be relocated;
// 0 = none. The log is longer by excess bytes than it should be. plan takes as many extents
// as make the log small enough, but apart from the first only as long as their live bytes
// are at most most.
func (x *extents) plan(excess, most int64) (upTo uint32) {
	if excess <= 0 {
		return 0
	}
	var dead, relocated int64
	for i, e := range x.list[:len(x.list)-1] {
		relocated += e.live
		if i > 0 && relocated > most {
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

// planLowSpace is plan while space is short: it returns 0 if less than worthwhile bytes are
// dead. It takes few extents at a time, because relocation uses space that is reserved for
// settlements, too.
func (x *extents) planLowSpace(worthwhile int64) (upTo uint32) {
	const most = 2 // extents
	if x.bytes-x.live < worthwhile {
		return 0
	}
	var relocated int64
	for i, e := range x.list[:len(x.list)-1] {
		if relocated += e.live; i > 0 && relocated > most*x.size {
			break
		}
		upTo = x.base + uint32(i)
	}
	return upTo
}

// liveUpTo returns the live bytes of the extents at the front.
func (x *extents) liveUpTo(upTo uint32) (live int64) {
	for _, e := range x.list[:upTo+1-x.base] {
		live += e.live
	}
	return live
}
