package journal

import (
	"fmt"
	"slices"

	"github.com/curfewmq/curfew/core/wlog"
)

// Delta is a change of the live bytes of an extent, or of a voucher. Records that are committed add to them; records that are
// settled, relocated or deleted subtract. A record counts with the length of its operation in the log.
type Delta struct {
	Extent uint32
	Bytes  int64
}

// extents tracks which parts of the log are live. Consecutive entries of about size bytes together are an extent. The log is
// trimmed up to the first extent with a live record.
//
//	   trimmed   │ base        │ base+1      │ …     │ current
//	─────────────┼─────────────┼─────────────┼───────┼─────────────
//	             │ dead or live, closed              │ still grows
//
// A record may be accounted to an earlier extent than its entry lies in, never to a later one. As the log is trimmed only from
// the front, such a record is retained too long at worst. An extents belongs to the holder of the writer's mu.
type extents struct {
	list  []extent   // never empty; the last is the current one
	base  uint32     // number of list[0]; the first extent is 1, so that 0 can mean none
	size  int64      // an extent that holds as much is closed
	bytes int64      // sum of list[].bytes
	live  int64      // sum of list[].live
	end   wlog.Index // every entry in the log lies before it

	vouchers map[uint32]voucher // by number, those with live records or commits that wait
	commit   uint64             // the number of the commit that is being added
}

// A voucher stands for the extent of a commit that may have to wait for space: which extent that is shows when the commit is
// written. Until then its records are not live in the log, and keep nothing from being trimmed. Later commits may only change the
// length of these records.
type voucher struct {
	of      uint64 // the commit that brings its records
	extent  uint32 // 0 = that is not written
	copied  uint32 // the last extent that its records were in, without a voucher, before they were relocated; 0 = none
	live    int64  // of its records, written or not
	waiting int    // positive deltas of that commit, if it is not written
}

// firstVoucher is the lowest number of a voucher. Extents have lower ones.
const firstVoucher = 1 << 31

// IsVoucher reports whether a number that Extent returned is that of a voucher: space is low then.
func IsVoucher(number uint32) bool { return number >= firstVoucher }

type extent struct {
	first wlog.Index // no entry of this extent or a later one lies before it
	bytes int64      // of its entries
	live  int64      // accounted to it
}

func newExtents(size int64) extents {
	return extents{list: make([]extent, 1, 16), base: 1, size: size}
}

func (x *extents) current() uint32 { return x.base + uint32(len(x.list)) - 1 }

// append accounts for an entry of n bytes at index at, the last one in the log. It returns the entry's extent.
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

// add adds a record that is about to be appended, or what it is longer from now on.
func (x *extents) add(d Delta) {
	if IsVoucher(d.Extent) {
		t, ok := x.vouchers[d.Extent]
		if !ok {
			t.of = x.commit
		}
		t.live += d.Bytes
		if t.of == x.commit {
			t.waiting++
		}
		x.setVoucher(d.Extent, t)
		if t.extent == 0 {
			return
		}
		d.Extent = t.extent
	}
	if d.Extent == 0 || d.Extent > x.current() {
		panic(fmt.Sprintf("journal: %d bytes accounted to extent %d of %d", d.Bytes, d.Extent, x.current()))
	}
	if d.Extent < x.base {
		x.restore(d.Extent)
	}
	x.list[d.Extent-x.base].live += d.Bytes
	x.live += d.Bytes
}

// brings reports whether the commit that is being added brings the records of a voucher: others may make them longer.
func (x *extents) brings(number uint32) bool { return x.vouchers[number].of == x.commit }

// restore brings back extents that were trimmed after a caller had got the number and before it used it. They hold no entries:
// the caller's records will be appended at the end.
func (x *extents) restore(number uint32) {
	missing := make([]extent, x.base-number)
	for i := range missing {
		missing[i].first = x.list[0].first
	}
	x.list = slices.Insert(x.list, 0, missing...)
	x.base = number
}

// copied accounts for a relocation with these deltas: what it copies may be in a commit that waits, if that has no voucher.
func (x *extents) copied(ds []Delta) {
	from := x.settles(ds)
	for _, d := range ds {
		if t, ok := x.vouchers[d.Extent]; ok && d.Bytes > 0 {
			t.copied = from
			x.vouchers[d.Extent] = t
		}
	}
}

// settles returns the last extent that has records which deltas free, or had them before they were relocated; 0 = all had vouchers.
func (x *extents) settles(ds []Delta) (last uint32) {
	for _, d := range ds {
		switch {
		case d.Bytes >= 0:
		case IsVoucher(d.Extent):
			last = max(last, x.vouchers[d.Extent].copied)
		default:
			last = max(last, d.Extent)
		}
	}
	return last
}

// setVoucher changes a voucher, or ends it.
func (x *extents) setVoucher(number uint32, t voucher) {
	if t.live == 0 && t.waiting == 0 {
		delete(x.vouchers, number)
		return
	}
	if x.vouchers == nil {
		x.vouchers = map[uint32]voucher{}
	}
	x.vouchers[number] = t
}

// written accounts for a positive delta of a voucher whose commit was written in an extent.
func (x *extents) written(number, in uint32) {
	t := x.vouchers[number]
	t.waiting--
	if t.extent == 0 {
		t.extent = in
		if t.live > 0 {
			x.add(Delta{in, t.live})
		}
	}
	x.setVoucher(number, t)
}

// skipped accounts for a positive delta of a voucher whose commit was written without its records, which are settled.
func (x *extents) skipped(number uint32) {
	t := x.vouchers[number]
	t.waiting--
	x.setVoucher(number, t)
}

// settled reports whether all records of a commit with these deltas are settled once so many bytes more of the vouchers are freed.
// It has some.
func (x *extents) settled(ds []Delta, going map[uint32]int64) (settled bool) {
	for _, d := range ds {
		if d.Bytes > 0 {
			if x.vouchers[d.Extent].live > going[d.Extent] {
				return false
			}
			settled = true
		}
	}
	return settled
}

// freed returns how many bytes of the log deltas free: those of records that are in it.
func (x *extents) freed(ds []Delta) (bytes int64) {
	for _, d := range ds {
		if d.Bytes < 0 && x.home(d.Extent) != 0 {
			bytes -= d.Bytes
		}
	}
	return bytes
}

// freesAny reports whether deltas free bytes of the first extent, without which nothing is trimmed, or of some vouchers.
func (x *extents) freesAny(ds []Delta, vouchers map[uint32]bool) bool {
	return slices.ContainsFunc(ds, func(d Delta) bool { return d.Bytes < 0 && (x.home(d.Extent) == x.base || vouchers[d.Extent]) })
}

// home returns the extent that a number stands for; 0 = its records are not written.
func (x *extents) home(number uint32) uint32 {
	if IsVoucher(number) {
		return x.vouchers[number].extent
	}
	return number
}

// free subtracts a record that is no longer needed.
func (x *extents) free(d Delta) {
	if IsVoucher(d.Extent) {
		t, ok := x.vouchers[d.Extent]
		if !ok || t.live < -d.Bytes {
			panic(fmt.Sprintf("journal: %d bytes of voucher %d are not live", -d.Bytes, d.Extent))
		}
		t.live += d.Bytes
		x.setVoucher(d.Extent, t)
		if t.extent == 0 {
			return
		}
		d.Extent = t.extent
	}
	if d.Extent < x.base || d.Extent > x.current() || x.list[d.Extent-x.base].live < -d.Bytes {
		panic(fmt.Sprintf("journal: %d bytes of extent %d are not live", -d.Bytes, d.Extent))
	}
	x.list[d.Extent-x.base].live += d.Bytes
	x.live += d.Bytes
}

// apply accounts for the deltas that a group keeps of commits that were written in an extent. Those of no bytes were applied earlier.
func (x *extents) apply(ds []Delta, in uint32) {
	for _, d := range ds {
		switch {
		case d.Bytes > 0:
			x.written(d.Extent, in)
		case d.Bytes < 0:
			x.free(d)
		}
	}
}

// applyEarly is apply for one commit that was written before its turn, without its records if it is void. The deltas have no bytes
// then; those of what was freed still have their numbers.
func (x *extents) applyEarly(ds []Delta, in uint32, void bool) {
	for i, d := range ds {
		switch {
		case d.Bytes < 0:
			x.free(d)
			ds[i].Bytes = 0
			continue
		case d.Bytes > 0 && void:
			x.skipped(d.Extent)
		case d.Bytes > 0:
			x.written(d.Extent, in)
		}
		ds[i] = Delta{}
	}
}

// trim drops extents at the front without live records, and returns the index before which the log is not needed. The current
// extent stays; if nothing is live at all, it begins anew.
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

// excess returns by how much the log is larger than the live bytes and slack justify. Live records at the front must be
// relocated, which appends to the log, before dead ones behind them can be trimmed. To start at seven quarters of the live
// bytes instead of twice them leaves space for that.
func (x *extents) excess(slack int64) int64 {
	return x.bytes - x.live - x.live/4*3 - slack
}

// excessTight is excess where others lack space: dead bytes are worth a quarter of the live ones, which bounds what relocating them costs to
// five times what is freed.
func (x *extents) excessTight() int64 { return x.bytes - x.live - x.live/4 - x.size }

// oversize reports whether the log is more than twice the live bytes and slack.
func (x *extents) oversize(slack int64) bool { return x.bytes > 2*x.live+slack }

// plan returns the last of the extents at the front whose live records are to be relocated, 0 if the log is small enough: it has so many
// bytes too many. It takes as many extents as make the log small enough, but no more than most live bytes, in steps of an extent.
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

// planLowSpace is plan for when space is short: all dead records are worth trimming, even if live ones before them must be
// relocated. Few records are relocated at a time, because that takes space that is reserved for settlements, too.
func (x *extents) planLowSpace() (upTo uint32) {
	const worthwhile, most = 4, 2 // extents
	if x.bytes-x.live < worthwhile*x.size {
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

// holds reports whether an extent has live records.
func (x *extents) holds(number uint32) bool {
	if IsVoucher(number) {
		return x.vouchers[number].live > 0
	}
	return number >= x.base && x.list[number-x.base].live > 0
}
