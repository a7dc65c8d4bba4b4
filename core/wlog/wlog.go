// Package wlog is all that queue code knows of durable storage: a log of
// opaque entries for each shard, owned by one broker at a time.
//
// State is a fold over the log. Whoever opens a shard takes it over, hears of
// every entry once and in order, and is from then on the only one to append.
// [github.com/curfewmq/curfew/core/wlog/seg] is the embedded engine; the
// interface is kept fit for a distributed one, whose owners change while the
// broker runs.
package wlog

import (
	"context"
	"errors"
)

// Index is where an entry lies. Indices of a shard increase strictly from entry
// to entry, but not by one; what they are made of is the engine's business. An
// entry keeps its index for good: Append returned it, replay reports it, ReadAt
// takes it. Zero is no entry's index.
type Index uint64

// MaxEntry is how many bytes an entry may have.
const MaxEntry = 1 << 30

// Purpose is what an entry does to what its writer needs of the log. The last of
// the space is kept for entries that lead to some being given back: without it a
// full disk would stay full.
type Purpose uint8

const (
	// Bringing is more to keep. Such an entry is the first to be refused.
	Bringing Purpose = iota
	// Moving lets go of about as much as it brings. It may take part of what is
	// kept.
	Moving
	// Settling lets go. Such an entry may take all that there is.
	Settling
)

// Log is an owned shard. It has one writer: calls of Append follow one another,
// and so do calls of Trim, which may run beside them. ReadAt may be called at
// any time from anywhere until Close.
type Log interface {
	// Append makes entry durable and returns where it lies. The slice is the
	// caller's again when it returns, and is not copied meanwhile: collect
	// operations in a second buffer while an append is in flight and hand them
	// over as one entry. What one entry holds is there after a crash, or none of
	// it is.
	//
	// With ErrFull nothing was written and the log goes on: a smaller entry may
	// still fit, or one of another purpose, and the same one when there is space
	// again. Every other error is the end of this Log: Lost is closed, and whether
	// the entry is there shows when the shard is opened again. A context that ends
	// while the entry is on its way may be such an error or may be ignored.
	Append(ctx context.Context, entry []byte, purpose Purpose) (Index, error)

	// ReadAt fills p from the entry at an index, beginning off bytes into it. It
	// refuses, with ErrNoEntry or ErrRange, to read anything that the entry does
	// not hold. Errors of ReadAt leave the Log as it was.
	ReadAt(ctx context.Context, at Index, off int, p []byte) error

	// Trim says that no entry before the index is needed any more. How many of
	// them go, and when, is up to the engine; those that stay are replayed, all
	// that follow the first of them included. Its errors are the end of this Log.
	Trim(before Index) error

	// Lost is closed when the Log has come to its end other than by Close: an
	// append or a trim went wrong, or another owner took over.
	Lost() <-chan struct{}

	// Close gives the shard up, after an append in flight has ended. No other
	// method may be called afterwards but Lost and Close; Append returns ErrClosed.
	Close() error
}

// Engine opens shards.
type Engine interface {
	// Open takes the shard over, whoever owned it before: a Log that was open on
	// it is lost. It calls fn with every entry in order, then returns. entry is
	// valid during the call only. An error of fn, or the end of ctx, ends Open
	// with that error; the shard then has no owner.
	//
	// Damage is never passed over: Open refuses with ErrDamaged and says where.
	Open(ctx context.Context, shard uint32, fn func(at Index, entry []byte) error) (Log, error)

	// Shards returns the shards that have a log, in increasing order.
	Shards(ctx context.Context) ([]uint32, error)

	// Close gives up every shard and then the storage itself.
	Close() error
}

// What engines return; test with errors.Is.
var (
	// ErrFull: there is no room for the entry. The only error that leaves a Log
	// usable for further appends.
	ErrFull = errors.New("no space for the entry")
	// ErrLost: the Log came to its end earlier, or another owner took over.
	ErrLost = errors.New("log lost")
	// ErrClosed: the Log or the Engine was closed.
	ErrClosed = errors.New("log closed")
	// ErrTooLarge: an entry has more than MaxEntry bytes.
	ErrTooLarge = errors.New("entry too large")
	// ErrDamaged: what is stored is not what was written.
	ErrDamaged = errors.New("log damaged")
	// ErrNewer: what is stored has a later format than this program knows.
	ErrNewer = errors.New("written by a newer version")
	// ErrNoEntry: no entry lies at the index, or it was trimmed.
	ErrNoEntry = errors.New("no entry begins there")
	// ErrRange: the entry is shorter than the range that was asked for.
	ErrRange = errors.New("beyond the end of the entry")
)
