// Package wlog is the interface to durable storage: for each shard a log of opaque entries, owned by one broker at a time.
//
// State is a fold over the log. The new owner of a shard gets every entry once and in order, and is then the only one to append.
// [github.com/curfewmq/curfew/core/wlog/seg] is the embedded engine. The interface also fits a distributed engine, whose shards
// change owners while the broker runs.
package wlog

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Index is the position of an entry. Indices of a shard increase strictly from entry to entry, but not by one; their meaning is
// the engine's. An entry never changes its index: Append returned it, replay reports it, ReadAt takes it. No entry has index 0.
type Index uint64

// MaxEntry is the maximum size of an entry in bytes, of any engine.
const MaxEntry = 1 << 30

// Purpose says whether an entry needs more of the log or less. The last of the space is reserved for entries that allow some of
// it to be trimmed: otherwise a full disk would stay full.
type Purpose uint8

const (
	// Bringing entries add what must be kept. They are the first to be refused.
	Bringing Purpose = iota
	// Moving entries free about as much as they bring. They may use part of the reserve.
	Moving
	// Settling entries free space. They may use all of it, but for a little.
	Settling
	// Trimming entries are small, and whoever has one appended trims the log because of it, which frees space at once. The little is theirs.
	Trimming
)

// Log is an owned shard. It has one writer: calls of Append follow one another, and so do calls of Trim, which may run
// concurrently with them. ReadAt may be called at any time, from any goroutine, until Close.
type Log interface {
	// Append makes entry durable and returns its index. It does not copy the slice, which the caller may reuse when it returns:
	// collect operations in a second buffer meanwhile, and append them as one entry. After a crash all of an entry is there, or
	// nothing.
	//
	// With ErrFull nothing was written and the log goes on: a smaller entry may still fit, or one of another purpose, or the same
	// one when there is space again. Any other error ends this Log: Lost is closed, and only the next Open shows whether the
	// entry is there. If ctx ends during Append, that may be such an error or may be ignored.
	Append(ctx context.Context, entry []byte, purpose Purpose) (Index, error)

	// Begin begins to append an entry behind all that were begun before, and does not wait until it is durable. What Append would have
	// returned comes through the channel, once for each entry and in their order; the slice may be reused then. With ErrFull nothing was
	// begun. Once an entry has failed, so do all behind it.
	//
	// Begin follows Append and other calls of Begin as Append does. Append may be called only when nothing is on its way.
	Begin(entry []byte, purpose Purpose) (<-chan Appended, error)

	// Depth returns how many entries may be on their way at a time, at least 1. With 1 it is of no use to call Begin, which may wait as
	// Append does.
	Depth() int

	// HasSpace reports whether Reserve would find space for an entry of that size in bytes, beside an append on its way if size includes
	// that one. It does not wait for the disk. False may mean that Reserve has something to do first.
	HasSpace(size int, purpose Purpose) bool

	// Reserve makes space for an entry of that size in bytes, which is appended next with any purpose. It fails as Append would.
	Reserve(size int, purpose Purpose) error

	// Frees reports whether Trim would remove anything, once an entry was appended with Trimming and if that may be trimmed, too.
	Frees(before Index) bool

	// Offset returns what is to be added to the node's clock to get the shard's, as long as this node owns the shard. Deadlines in the
	// shard are instants of that time, which is never ahead of what it would be if the owner had not changed. It is 0 in an engine whose
	// shards do not change owners.
	Offset() time.Duration

	// ReadAt fills p from the entry at an index, beginning off bytes into it. With ErrNoEntry or ErrRange it refuses to read
	// outside of the entry. Errors of ReadAt do not end the Log.
	ReadAt(ctx context.Context, at Index, off int, p []byte) error

	// Trim says that no entry before the index is needed any more. The engine decides which of them it removes, and when. The
	// others are replayed, without gaps. Errors of Trim end this Log.
	Trim(before Index) error

	// Lost is closed when the Log has ended other than by Close: an append or a trim failed, or another owner took over.
	Lost() <-chan struct{}

	// Close gives up the shard, after an append in flight. Only Lost and Close may be called afterwards; Append returns ErrClosed.
	Close() error
}

// Appended is what has become of an entry.
type Appended struct {
	At  Index
	Err error
}

// Engine opens shards.
type Engine interface {
	// Open takes over a shard from its owner, whose Log is lost. It calls fn with every entry in order, then returns. entry is
	// valid during the call. If fn fails or ctx ends, Open returns that error, and the shard has no owner.
	//
	// Damage is never skipped: Open returns ErrDamaged and says where it is.
	Open(ctx context.Context, shard uint32, fn func(at Index, entry []byte) error) (Log, error)

	// Shards returns the shards that have a log, in increasing order.
	Shards(ctx context.Context) ([]uint32, error)

	// MaxEntry returns how many bytes an entry may have, at most the constant MaxEntry.
	MaxEntry() int

	// Close gives up all shards, and then the storage itself.
	Close() error
}

// Errors of engines, for errors.Is.
var (
	// ErrFull: there is no space for the entry. The Log stays usable.
	ErrFull = errors.New("no space for the entry")
	// ErrLost: the Log ended earlier, or another owner took over.
	ErrLost = errors.New("log lost")
	// ErrNotOwner: the shard is owned elsewhere.
	ErrNotOwner = errors.New("the shard is owned elsewhere")
	// ErrUnwritten: ErrNotOwner before anything was written: what was to be written is certainly not there.
	ErrUnwritten = fmt.Errorf("%w, and nothing was written", ErrNotOwner)
	// ErrClosed: the Log or the Engine was closed.
	ErrClosed = errors.New("log closed")
	// ErrTooLarge: an entry has more than MaxEntry bytes.
	ErrTooLarge = errors.New("entry too large")
	// ErrDamaged: the stored bytes are not those that were written.
	ErrDamaged = errors.New("log damaged")
	// ErrNewer: the log has a later format than this program knows.
	ErrNewer = errors.New("written by a newer version")
	// ErrNoEntry: there is no entry at the index, or it was trimmed.
	ErrNoEntry = errors.New("no entry begins there")
	// ErrTrimmed: the log begins behind the entry that was asked for.
	ErrTrimmed = errors.New("trimmed from the log")
	// ErrRange: the entry is shorter than the requested range.
	ErrRange = errors.New("beyond the end of the entry")
)
