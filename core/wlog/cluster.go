package wlog

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
)

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

	// Follow calls fn with every entry of a shard that is known to be on a majority of the nodes, once and in order, also with future entries,
	// until ctx ends or fn returns an error, which Follow returns. entry is valid during the call. anew means that the state must begin from
	// nothing: it is set in the first call, and in the first one behind entries that were trimmed before the node received them.
	Follow(ctx context.Context, shard uint32, fn func(at Index, entry []byte, anew bool) error) error

	// Barrier returns an index at or behind every entry that was durable on any node when Barrier was called. A state that has followed the
	// shard through that index contains all of them. There is an entry at the index, so that Follow reaches it without later entries; 0 = the
	// shard has no entries. Barrier fails with ErrNoOwner while the shard has no owner.
	Barrier(ctx context.Context, shard uint32) (Index, error)
}

// Standby lets a node restore the state of a shard while another node owns it, at the node's own pace.
type Standby interface {
	// Replay calls fn with the entries of a shard after an index that are known to be on a majority of the nodes now, in order. 0 is the
	// beginning of the log. entry is valid during the call. Replay returns the error of fn, or that of ctx if it ends. ErrTrimmed means that
	// some of the entries are gone: they may have changed the caller's state, which must begin from nothing.
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
