// Package seg is the embedded log engine: every shard is a run of segment files
// in one data directory. segment.go draws them, and header.go of the package above
// the entries in them.
//
// Who does what: an [Engine] holds the directory's lock and hands out shards; a
// journal is an owned shard, to which one caller appends; a pool makes the
// segment that comes next, in the background, out of files that Trim reclaimed;
// a table lends segments to readers; a walk goes through a shard's entries, for
// the Engine when it opens one and for [Verify] and [Dump].
package seg

import (
	"fmt"
	"time"

	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Durability says what Append waits for.
type Durability uint8

const (
	// Fsync means that the entry is on the disk and survives a loss of power.
	Fsync Durability = iota
	// Flush means that the operating system has it: it survives the end of the
	// process, and a loss of power may take the last segment's entries, from any
	// of them on.
	Flush
)

// Options of an [Engine]. The zero value is what production uses.
type Options struct {
	Durability Durability
	// Firm are shards that are kept with Fsync, whatever Durability says. What
	// they say may rest on what others hold: with Flush that becomes durable first.
	Firm []uint32
	// Short are shards whose segments have 4 MiB at most: much passes through them
	// now and then, and little stays.
	Short []uint32
	// SegmentSize is how long segments are made at most, in bytes: a multiple of
	// 4 KiB between 16 KiB and 1 GiB; 0 = 64 MiB. The first ones of a shard are
	// shorter, and all of them on a small disk.
	SegmentSize int64
	// Clock is the log's time; nil = the wall clock.
	Clock  func() hook.Instant
	Events Events

	first  int64 // tests: the size of a shard's first segment; 0 = a sixteenth of the usual one, 1 MiB at least
	inline bool  // tests: segments are made in the caller's goroutine, so that a run can be repeated
}

// Events tell what happens besides. Any may be nil. They are called from many
// goroutines, must not wait, and must not use the Engine or its Logs.
type Events struct {
	// Space says that the disk has no room for a shard's next segment, and how much
	// it lacks, and later, with nil, that it has again. While it is low, entries
	// that bring more are taken until half of the last segment is used up, and then
	// refused with ErrFull. Whoever fills the log should stop at the first sign.
	Space func(shard uint32, low *Shortage)
	// Cut says that an entry at the end of a shard had not been written whole when
	// the process or the machine stopped, and is dropped. Nobody was told that it
	// was durable; with Flush, entries after it go with it.
	Cut func(shard uint32, file string, offset int64)
	// Progress says how many bytes of how many were replayed.
	Progress func(shard uint32, done, total int64)
}

// Shortage is what a log needs, and its disk does not have.
type Shortage struct {
	Path   string // of the data directory; "" = the file system does not tell
	Free   int64  // bytes; less than 0 = the file system does not tell
	Needed int64  // bytes that have to be free for the log to go on
}

const (
	defaultSegment = 64 << 20
	shortSegment   = 4 << 20
	minSegment     = 16 << 10
	maxSegment     = 1 << 30

	// page is what entries are padded to when they are written, so that the
	// operating system need not read the rest of a page from the disk first.
	page = 4096
	// retryAfter is how long a full disk is left alone.
	retryAfter = time.Second
)

// A disk has room for so many segments, if they need not be shorter for that than
// fittedLeast.
const (
	fitted      = 32
	fittedLeast = 64 << 10
)

// fit shortens segments for a disk on which logs can have so many bytes.
func (o *Options) fit(capacity int64) {
	o.SegmentSize = min(o.SegmentSize, max(fittedLeast, capacity/fitted/page*page))
}

// capacity is how many bytes logs can have on the disk, or that it is enough for
// segments of that size.
func capacity(fsys vfs.FS, size int64) (int64, error) {
	room, ok := vfs.SpaceOf(fsys)
	if !ok || room.Free/fitted >= size {
		return fitted * size, nil
	}
	all, err := files(fsys)
	for _, f := range all {
		room.Free += f.Size
	}
	return room.Free, err
}

// withDefaults checks the options and fills in what is absent, for a disk on which
// logs can have so many bytes.
func (o Options) withDefaults(capacity int64) (Options, error) {
	if o.SegmentSize == 0 {
		o.SegmentSize = defaultSegment
	}
	if o.SegmentSize < minSegment || o.SegmentSize > maxSegment || o.SegmentSize%page != 0 {
		return o, fmt.Errorf("segment size %d: not a multiple of %d between %d and %d", o.SegmentSize, page, minSegment, maxSegment)
	}
	o.fit(capacity)
	if o.first == 0 {
		o.first = min(roundUp(max(o.SegmentSize/16, 1<<20), page), o.SegmentSize)
	}
	if o.Durability > Flush {
		return o, fmt.Errorf("durability %d: neither fsync nor flush", o.Durability)
	}
	if o.Clock == nil {
		o.Clock = wallClock
	}
	if o.Events.Space == nil {
		o.Events.Space = func(uint32, *Shortage) {}
	}
	if o.Events.Cut == nil {
		o.Events.Cut = func(uint32, string, int64) {}
	}
	if o.Events.Progress == nil {
		o.Events.Progress = func(uint32, int64, int64) {}
	}
	return o, nil
}

func wallClock() hook.Instant { return hook.Instant(time.Now().UnixNano()) }

// storage is what the parts of a shard share. It does not change.
type storage struct {
	fs     vfs.FS
	shard  uint32
	settle func() // makes durable what Flush has not, in all shards
	firm   bool   // others are not as durable
	Options
}

// sizeAfter is how long the segment is made that follows one of that size, which
// is 0 for the first. A log that never held much does not take much.
func (s *storage) sizeAfter(size int64) int64 {
	const growth = 4
	return min(max(growth*size, s.first), s.SegmentSize)
}

// mode adds to a mode what is best for segments. With Flush the system's cache
// is what an append waits for.
func (s *storage) mode(m vfs.Mode) vfs.Mode {
	if s.Durability == Fsync {
		m |= vfs.Direct
	}
	return m
}

var zeros [page]byte

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
