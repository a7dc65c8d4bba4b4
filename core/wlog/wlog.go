// Package wlog is the interface to durable storage: a log of opaque entries for each shard, owned by one broker at a time.
//
// State is a fold over the log. The new owner of a shard gets every entry once and in order, and then is the only one to append.
// [github.com/curfewmq/curfew/core/wlog/seg] is the embedded engine. The interface also fits a distributed engine, whose shards change
// owners while the broker runs.
package wlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Index is the position of an entry. Indices of a shard increase strictly from entry to entry, but not by one; only the engine knows their
// meaning. An entry keeps its index: Append returns it, replay reports it, ReadAt takes it. No entry has index 0.
type Index uint64

// MaxEntry is the maximum size of an entry in bytes, of any engine.
const MaxEntry = 1 << 30

// Purpose says whether an entry will fill the log or empty it. The last of the space is reserved for entries that allow a trim, because
// otherwise a full disk would stay full.
type Purpose uint8

const (
	// Bringing entries add data that must be kept. They are the first to be refused.
	Bringing Purpose = iota
	// Moving entries free about as much space as they take. They may use part of the reserve.
	Moving
	// Settling entries free space. They may use all of the reserve except a small rest.
	Settling
	// Trimming entries are small, and let their writer trim the log at once. They may use the rest, too.
	Trimming
)

// Log is an owned shard. It has one writer: calls of Append follow one another, and so do calls of Trim, which may run
// concurrently with them. ReadAt may be called at any time, from any goroutine, until Close.
type Log interface {
	// Append makes entry durable and returns its index. It does not copy the slice, which
	// the caller may reuse when Append returns. The caller can meanwhile collect operations
	// in a second buffer, for the next entry. After a crash the whole entry is there, or
	// none of it.
	//
	// With ErrFull nothing was written, and the log stays usable: a smaller entry may still fit, or one with another purpose, or the same
	// entry once there is space. Any other error ends this Log: Lost is closed, and only the next Open shows whether the entry is there. If
	// ctx ends during Append, Append may ignore that or fail with such an error.
	Append(ctx context.Context, entry []byte, purpose Purpose) (Index, error)

	// Begin begins to append an entry behind all entries begun before, and does not wait until it is durable. The result that Append would
	// have returned comes through the channel, once for each entry and in their order; the caller may reuse the slice then. With ErrFull
	// nothing was begun. Once an entry has failed, all entries behind it fail.
	//
	// Calls of Begin and Append follow one another. Append may be called only while no entry is on its way.
	Begin(entry []byte, purpose Purpose) (<-chan Appended, error)

	// Depth returns how many entries may be on their way at a time, at least 1. With 1,
	// Begin has no advantage: it may wait as long as Append.
	Depth() int

	// HasSpace reports whether Reserve would find space for an entry of size bytes; to ask during an append, add the size of that entry.
	// HasSpace does not wait for the disk. If it returns false, Reserve may still succeed, after some work.
	HasSpace(size int, purpose Purpose) bool

	// Room returns about how many bytes of Settling entries the log can still take, on this node and on enough others. It does not wait for
	// the disk.
	Room() int64

	// Least returns the first purpose for which enough other nodes have space, if the log is on several. It does not wait.
	Least() Purpose

	// Reserve makes space for the next entry, of size bytes and any purpose. It fails as Append would.
	Reserve(size int, purpose Purpose) error

	// Frees reports whether Trim(before) would free space after an entry was appended with
	// Trimming, even if that entry may be trimmed, too.
	Frees(before Index) bool

	// Offset returns the difference between the shard's clock and the node's, while this
	// node owns the shard. Deadlines in the shard are instants of the shard's clock, which
	// is never ahead of the time that it would show under the first owner. Offset is 0 in
	// an engine whose shards do not change owners.
	Offset() time.Duration

	// ReadAt fills p from the entry at an index, beginning off bytes into it. It refuses to read outside of the entry, with ErrNoEntry or
	// ErrRange. Errors of ReadAt do not end the Log.
	ReadAt(ctx context.Context, at Index, off int, p []byte) error

	// Trim declares that no entry before the index is needed any more. The engine decides when to remove which of them. Entries that it has
	// not removed are replayed, without gaps. Errors of Trim end this Log.
	Trim(before Index) error

	// Lost is closed when the Log ends without Close: an append or a trim has failed, or another owner has taken over.
	Lost() <-chan struct{}

	// Close gives up the shard, after an append in flight. Afterwards only Lost and Close
	// may be called, and Append, which returns ErrClosed.
	Close() error
}

// Appended is the result of an append.
type Appended struct {
	At  Index
	Err error
}

// Engine opens shards.
type Engine interface {
	// Open takes over a shard; the Log of its former owner is lost. Open calls fn with every entry in order, then returns. entry is valid
	// during the call. If fn fails or ctx ends, Open returns that error, and the shard has no owner.
	//
	// Open never skips damage: it returns ErrDamaged and says where the damage is.
	Open(ctx context.Context, shard uint32, fn func(at Index, entry []byte) error) (Log, error)

	// Shards returns the shards that have a log, in increasing order.
	Shards(ctx context.Context) ([]uint32, error)

	// MaxEntry returns the maximum size of an entry in bytes, at most the constant MaxEntry.
	MaxEntry() int

	// Close gives up all shards, and closes the storage.
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
	// ErrUnwritten: the shard is owned elsewhere (it is an ErrNotOwner), and the entry was certainly not written.
	ErrUnwritten = fmt.Errorf("%w, and nothing was written", ErrNotOwner)
	// ErrClosed: the Log or the Engine was closed.
	ErrClosed = errors.New("log closed")
	// ErrTooLarge: an entry has more than MaxEntry bytes.
	ErrTooLarge = errors.New("entry too large")
	// ErrDamaged: the stored bytes differ from the written ones.
	ErrDamaged = errors.New("log damaged")
	// ErrNewer: the log has a newer format than this program knows.
	ErrNewer = errors.New("written by a newer version")
	// ErrNoEntry: there is no entry at the index, or it was trimmed.
	ErrNoEntry = errors.New("no entry begins there")
	// ErrTrimmed: the log begins behind the requested entry.
	ErrTrimmed = errors.New("trimmed from the log")
	// ErrRange: the entry is shorter than the requested range.
	ErrRange = errors.New("beyond the end of the entry")
)

// Chain checks the headers of a shard's log, from its first entry on. After a replay the new owner continues its chain. The zero value is
// at the beginning of the log. A Chain belongs to one goroutine.
type Chain struct {
	Last  Index        // the last valid entry; 0 = none
	Epoch uint64       // of its writer
	Time  hook.Instant // when it was written

	begun bool
}

// Follow checks the next header of the log. An entry is void, and must be skipped, if its writer no longer owned the shard when the entry
// arrived: its epoch is older than that of the newest Takeover before it. A Takeover is also void if it comes after another Takeover of the
// same or a later epoch, or after an entry that its writer had not seen. An error means that entries are missing or misplaced.
//
// An example: owner A (epoch 4) has written entries 7 and 8. B replays them and writes Takeover 9 with epoch 5 and previous entry 8. An
// entry of A that arrives as 10 still has epoch 4, and is void. Had it arrived before B's Takeover, as 9, the Takeover would name 8 as the
// previous entry instead of 9, and be void: B must try again.
//
// The first header is not checked, because the entries before it were trimmed.
func (c *Chain) Follow(at Index, h *Header) (void bool, err error) {
	if c.begun && at <= c.Last {
		return false, fmt.Errorf("entry %#x follows entry %#x", at, c.Last)
	}
	if c.begun && c.isVoid(h) {
		return true, nil
	}
	if c.begun && h.Epoch > c.Epoch && h.Kind != Takeover {
		return false, fmt.Errorf("entry of epoch %d in epoch %d, whose end is missing", h.Epoch, c.Epoch)
	}
	if c.begun && h.Prev != c.Last {
		return false, fmt.Errorf("the entry before it should be %#x and is %#x", h.Prev, c.Last)
	}
	c.Appended(at, h)
	return false, nil
}

func (c *Chain) isVoid(h *Header) bool {
	if h.Kind == Takeover {
		return h.Epoch <= c.Epoch || h.Prev != c.Last
	}
	return h.Epoch < c.Epoch
}

// Next returns the header of the next entry. Its time is never less than that of the entry before, even if the clock was set back.
func (c *Chain) Next(kind Kind, shard uint32, now hook.Instant) Header {
	return Header{Kind: kind, Shard: shard, Epoch: c.Epoch, Time: max(now, c.Time), Prev: c.Last}
}

// Appended adds an entry at an index to the chain.
func (c *Chain) Appended(at Index, h *Header) {
	c.Last, c.Epoch, c.Time, c.begun = at, h.Epoch, h.Time, true
}

// NodeID is the number of a node of a cluster, not 0. It belongs to the data on the node's disk: a node that has lost its data is another
// node.
type NodeID uint64

// LogValue implements [slog.LogValuer]. The number is text in logs, because readers of JSON know numbers only up to 2^53.
func (n NodeID) LogValue() slog.Value { return slog.StringValue(strconv.FormatUint(uint64(n), 10)) }

// Cluster is an engine whose shards change owners while the broker runs. Several nodes keep each shard, and each node may own some shards.
//
// Open does not take a shard from a living owner: it waits until this node owns the shard, or returns ErrNotOwner.
type Cluster interface {
	Engine
	Standby

	// Owners calls fn with the ownership of each shard that the node keeps, and again after each change, until stop is called. The calls
	// follow one another; fn must not block. An ownership that ended before fn was called with it may be left out.
	Owners(fn func(Ownership)) (stop func())

	// Follow calls fn with every entry of a shard that is known to be on a majority of the
	// nodes, once and in order, also with future entries, until ctx ends or fn returns an
	// error, which Follow returns. entry is valid during the call. anew means that the
	// state must begin from nothing: it is set in the first call, and in the first one
	// behind entries that were trimmed before the node received them.
	Follow(ctx context.Context, shard uint32, fn func(at Index, entry []byte, anew bool) error) error

	// Barrier returns an index at or behind every entry that was durable on any node when
	// Barrier was called. A state that has followed the shard through that index contains
	// all of them. There is an entry at the index, so that Follow reaches it without later
	// entries; 0 = the shard has no entries. Barrier fails with ErrNoOwner while the shard
	// has no owner.
	Barrier(ctx context.Context, shard uint32) (Index, error)
}

// Standby lets a node restore the state of a shard while another node owns it, at the node's own pace.
type Standby interface {
	// Replay calls fn with the entries of a shard after an index that are known to be on a
	// majority of the nodes now, in order. 0 is the beginning of the log. entry is valid
	// during the call. Replay returns the error of fn, or that of ctx if it ends.
	// ErrTrimmed means that some of the entries are gone: they may have changed the
	// caller's state, which must begin from nothing.
	Replay(ctx context.Context, shard uint32, after Index, fn func(at Index, entry []byte) error) error

	// Backlog returns about how many bytes Replay would call fn with. It is cheap.
	Backlog(shard uint32, after Index) (bytes int64)

	// Resume is Open for a caller that has received the entries through an index from Replay, or from an Open that failed: it calls fn only
	// with later entries. ErrTrimmed means that some of them are gone, and the caller must use Open.
	Resume(ctx context.Context, shard uint32, after Index, fn func(at Index, entry []byte) error) (Log, error)
}

// Ownership names the owner of a shard.
type Ownership struct {
	Shard uint32
	Owner NodeID // as far as this node knows; 0 = none
	Mine  bool   // this node is the owner, and may open the shard
	Epoch uint64 // rises with each owner of the shard
}

// ErrNoOwner means that no node is known to own the shard.
var ErrNoOwner = errors.New("the shard has no owner now")
