// Package seg is the embedded log engine: every shard is a sequence of segment files in one
// data directory. segment.go draws these files, and header.go of package wlog draws the
// entries in them.
//
// An [Engine] holds the directory's lock and opens shards. A shardLog is an open shard, to
// which one caller appends. Its pool prepares the next segment in the background, out of
// files that Trim has freed; its table lends segments to readers. A walk reads a shard's
// entries, for the Engine when it opens a shard, and for [Verify] and [Dump].
package seg

import (
	"errors"
	"fmt"
	"time"

	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Durability is the state that an entry must reach before Append returns.
type Durability uint8

const (
	// Fsync means that the entry is on the disk, and survives a loss of power.
	Fsync Durability = iota
	// Flush means that the operating system has the entry, which survives the end of the
	// process. A loss of power may destroy entries at the end of the last segment.
	Flush
)

// Options of an [Engine]. The zero value is the one for production.
type Options struct {
	Durability Durability
	// Firm are shards that use Fsync whatever Durability says. Their entries may depend on
	// entries of other shards: with Flush, these become durable first.
	Firm []uint32
	// Short are shards whose segments have at most 4 MiB, because at times many entries are
	// written to them of which few stay live.
	Short []uint32
	// SegmentSize is the usual size of segments, in bytes: a multiple of 4 KiB between 16
	// KiB and 1 GiB; 0 = 64 MiB. A shard's first segments are shorter, and on a small disk
	// all segments are.
	SegmentSize int64
	// Version is the version of new segments, 1 or 2; 0 = 1. It says which format the
	// caller's entries have.
	Version byte
	// Clock returns the log's time; nil = the wall clock.
	Clock  func() hook.Instant
	Events Events

	first  int64 // tests: the size of a shard's first segment; 0 = a sixteenth of the usual one, 1 MiB at least
	inline bool  // tests: segments are made in the caller's goroutine, so that runs repeat exactly
}

// Events are callbacks. Any may be nil. They are called from many goroutines, must not
// block, and must not use the Engine or its Logs.
type Events struct {
	// Space reports with a Shortage that a shard cannot get its next segment, because the
	// disk has no space or the process has too many open files; later, with nil, that it
	// can again. In between, Bringing entries are taken until half of the last segment is
	// used, and then refused with ErrFull. Callers should stop filling the log at the first
	// report.
	Space func(shard uint32, low *Shortage)
	// Cut reports that the last entry of a shard was incomplete when the process or the
	// machine stopped, and is dropped. Its Append never returned. With Flush, entries
	// behind it are dropped, too.
	Cut func(shard uint32, file string, offset int64)
	// Progress reports how many of total bytes were replayed.
	Progress func(shard uint32, done, total int64)
}

// Shortage describes missing space on a log's disk.
type Shortage struct {
	Path   string // of the data directory; "" = unknown
	Free   int64  // bytes; negative = unknown
	Needed int64  // free bytes that the log needs to continue
	Files  bool   // the process cannot open more files; there is enough space
}

const (
	defaultSegment = 64 << 20
	shortSegment   = 4 << 20
	minSegment     = 16 << 10
	maxSegment     = 1 << 30

	// page is the unit to which writes are padded, so that the operating system need not read the rest of a page first.
	page = 4096
	// retryAfter is the pause between two checks of a full disk.
	retryAfter = time.Second
)

// A disk has space for fitted segments, unless these would be shorter than fittedLeast.
const (
	fitted      = 32
	fittedLeast = 64 << 10
)

// fit shortens segments for a disk on which logs can take capacity bytes.
func (o *Options) fit(capacity int64) {
	o.SegmentSize = min(o.SegmentSize, max(fittedLeast, capacity/fitted/page*page))
}

// capacity returns how many bytes logs can take on the disk. The result is exact only if it
// is too small for segments of size bytes.
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

// withDefaults checks the options and sets defaults, for a disk on which logs can take capacity bytes.
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

// storage holds the common parts of a shard. It is immutable.
type storage struct {
	fs      vfs.FS
	shard   uint32
	syncAll func() // makes all shards' writes durable that Flush has left in the system's cache
	firm    bool   // other shards use Flush
	Options
}

// sizeAfter returns the size of the segment that follows one of size bytes; 0 = the first
// segment is meant. Small logs get short segments.
func (s *storage) sizeAfter(size int64) int64 {
	const growth = 4
	return min(max(growth*size, s.first), s.SegmentSize)
}

// mode adds Direct to a mode, except with Flush, whose appends only reach the system's cache.
func (s *storage) mode(m vfs.Mode) vfs.Mode {
	if s.Durability == Fsync {
		m |= vfs.Direct
	}
	return m
}

// remove removes as many of the files as it can.
func (s *storage) remove(files []named) (err error) {
	for _, f := range files {
		err = errors.Join(err, s.fs.Remove(f.Name))
	}
	return err
}

var zeros [page]byte

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
