// Package seg is the embedded log engine: every shard is a sequence of segment files in one data directory. segment.go draws
// them, and header.go of the package above the entries in them.
//
// An [Engine] holds the directory's lock and opens shards. A shardLog is an open shard, to which one caller appends. Its pool
// prepares the next segment, in the background, out of files that Trim freed; its table lends segments to readers. A walk reads
// a shard's entries, for the Engine when it opens one, and for [Verify] and [Dump].
package seg

import (
	"errors"
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
	// Flush means that the operating system has the entry, which survives the end of the process. A loss of power may take the last
	// segment's entries, from any of them on.
	Flush
)

// Options of an [Engine]. The zero value is what production uses.
type Options struct {
	Durability Durability
	// Firm are shards that use Fsync whatever Durability says. Their entries may depend on those of other shards: with Flush
	// these become durable first.
	Firm []uint32
	// Short are shards whose segments have 4 MiB at most: much is written to them at times, and little of it stays live.
	Short []uint32
	// SegmentSize is the usual size of segments, in bytes: a multiple of 4 KiB between 16 KiB and 1 GiB; 0 = 64 MiB. A shard's
	// first ones are shorter, and all of them on a small disk.
	SegmentSize int64
	// Clock returns the log's time; nil = the wall clock.
	Clock  func() hook.Instant
	Events Events

	first  int64 // tests: the size of a shard's first segment; 0 = a sixteenth of the usual one, 1 MiB at least
	inline bool  // tests: segments are made in the caller's goroutine, so that runs repeat exactly
}

// Events are callbacks. Any may be nil. They are called from many goroutines, must not block, and must not use the Engine or its
// Logs.
type Events struct {
	// Space reports that the disk has no space for a shard's next segment, or that its file cannot be opened because the process has
	// too many open, and what is lacking; later, with nil, that it has
	// space again. In between, entries that bring more are taken until half of the last segment is used, and then refused with
	// ErrFull. Callers should stop filling the log at the first sign.
	Space func(shard uint32, low *Shortage)
	// Cut reports that an entry at the end of a shard was not written whole when the process or the machine stopped, and is
	// dropped. Its Append never returned; with Flush, entries after it are dropped, too.
	Cut func(shard uint32, file string, offset int64)
	// Progress reports how many bytes of how many were replayed.
	Progress func(shard uint32, done, total int64)
}

// Shortage says how much space a log needs that its disk does not have.
type Shortage struct {
	Path   string // of the data directory; "" = unknown
	Free   int64  // bytes; less than 0 = unknown
	Needed int64  // bytes that have to be free for the log to go on
	Files  bool   // it is not space that is missing: no more files can be opened
}

const (
	defaultSegment = 64 << 20
	shortSegment   = 4 << 20
	minSegment     = 16 << 10
	maxSegment     = 1 << 30

	// page is the unit to which writes are padded, so that the operating system need not read the rest of a page first.
	page = 4096
	// retryAfter is how long to wait until a full disk is checked again.
	retryAfter = time.Second
)

// A disk has space for so many segments, unless they would be shorter than fittedLeast.
const (
	fitted      = 32
	fittedLeast = 64 << 10
)

// fit shortens segments for a disk on which logs can have so many bytes.
func (o *Options) fit(capacity int64) {
	o.SegmentSize = min(o.SegmentSize, max(fittedLeast, capacity/fitted/page*page))
}

// capacity returns how many bytes logs can have on the disk, at least if that is too little for segments of that size.
func capacity(fsys vfs.FS, size int64) (int64, error) {
	space, ok := vfs.SpaceOf(fsys)
	if !ok || space.Free/fitted >= size {
		return fitted * size, nil
	}
	all, err := files(fsys)
	for _, f := range all {
		space.Free += f.Size
	}
	return space.Free, err
}

// withDefaults checks the options and sets defaults, for a disk on which logs can have so many bytes.
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

// storage holds what the parts of a shard share. It is immutable.
type storage struct {
	fs      vfs.FS
	shard   uint32
	syncAll func() // makes durable what Flush has left in the system's cache, in all shards
	firm    bool   // other shards use Flush
	Options
}

// sizeAfter returns the size of the segment that follows one of that size, which is 0 for the first. Small logs get short ones.
func (s *storage) sizeAfter(size int64) int64 {
	const growth = 4
	return min(max(growth*size, s.first), s.SegmentSize)
}

// mode adds Direct to a mode, except with Flush, where an append only reaches the system's cache.
func (s *storage) mode(m vfs.Mode) vfs.Mode {
	if s.Durability == Fsync {
		m |= vfs.Direct
	}
	return m
}

// remove removes files, all that can be.
func (s *storage) remove(files []named) (err error) {
	for _, f := range files {
		err = errors.Join(err, s.fs.Remove(f.Name))
	}
	return err
}

var zeros [page]byte

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
