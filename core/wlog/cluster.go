package wlog

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
)

// NodeID is the number of a node of a cluster, not 0. It belongs to what is on the node's disk: a node that lost that is another one.
type NodeID uint64

// LogValue implements [slog.LogValuer]. The number is a text in logs: readers of JSON know numbers up to 2^53 only.
func (n NodeID) LogValue() slog.Value { return slog.StringValue(strconv.FormatUint(uint64(n), 10)) }

// Cluster is an engine whose shards change owners while the broker runs. Each shard is kept on several nodes, and each node may own
// some.
//
// Open does not take a shard over from a living owner: it waits until this node owns the shard, or returns ErrNotOwner.
type Cluster interface {
	Engine
	Standby

	// Owners calls fn with the ownership of each shard that the node keeps, and again whenever one changes, until stop was called. The
	// calls follow one another; fn must not block. A change that is over before fn was called with it may be left out.
	Owners(fn func(Ownership)) (stop func())

	// Follow calls fn with every entry of a shard that is known to be on a majority of the nodes, once and in order, and goes on as more
	// come, until ctx ends or fn returns an error, which Follow returns. entry is valid during the call. The first call, and one
	// behind entries that the node has never got because they were trimmed, has anew set: state begins from nothing there.
	Follow(ctx context.Context, shard uint32, fn func(at Index, entry []byte, anew bool) error) error

	// Barrier returns an index such that all entries that were durable anywhere when it was called are at or before it. A state that has
	// followed the shard through that index has seen all of them. There is an entry at the index, so that Follow comes to it whether
	// another follows or not; without entries it is 0. Barrier fails with ErrNoOwner while the shard has no owner.
	Barrier(ctx context.Context, shard uint32) (Index, error)
}

// Standby is how a node restores the state of a shard while another node owns it, at its own pace.
type Standby interface {
	// Replay calls fn with the entries of a shard behind an index that are known to be on a majority of the nodes by now, in order. 0 is
	// the beginning of the log. entry is valid during the call. Replay returns the error of fn, or that of ctx if it ends. With ErrTrimmed
	// some of the entries are gone, and may have changed what fn knows: state begins from nothing.
	Replay(ctx context.Context, shard uint32, after Index, fn func(at Index, entry []byte) error) error

	// Backlog returns how many bytes the entries have that Replay would call fn with, about. It is cheap.
	Backlog(shard uint32, after Index) (bytes int64)

	// Resume is Open for a caller that has got the entries through an index from Replay, or from an Open that failed: fn gets those behind
	// that. With ErrTrimmed some of those are gone: only Open opens the shard then.
	Resume(ctx context.Context, shard uint32, after Index, fn func(at Index, entry []byte) error) (Log, error)
}

// Ownership says who owns a shard.
type Ownership struct {
	Shard uint32
	Owner NodeID // as far as this node knows; 0 = nobody
	Mine  bool   // this node is the owner, and may open the shard
	Epoch uint64 // rises with each owner of the shard
}

// ErrNoOwner means that no node is known to own the shard.
var ErrNoOwner = errors.New("the shard has no owner now")
