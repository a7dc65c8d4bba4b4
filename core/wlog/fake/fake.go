// Package fake is a log engine in memory, for tests. It behaves as a distributed engine may: any number of engines share a
// storage, indices count from one, and entries that a former owner sends too late are in the log, but void.
//
// An [Engine] takes shards over when it opens them. A [Node] is a server of a cluster, whose owners the test chooses.
package fake

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Storage is shared by engines, like the servers of a cluster. Make one with [New].
type Storage struct {
	mu     sync.Mutex // guards all of it, logs included
	shards map[uint32]*stream
	full   bool
	broken error

	nodes   []*Node
	changed chan struct{} // closed, and replaced, when there is an entry, or another owner
}

// New returns an empty storage.
func New() *Storage { return &Storage{shards: map[uint32]*stream{}, changed: make(chan struct{})} }

// Engine returns an engine on the storage.
func (s *Storage) Engine() *Engine { return &Engine{storage: s} }

// SetFull sets whether appends fail with ErrFull, except those that settle.
func (s *Storage) SetFull(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

// Break makes the next append of any shard fail with that error, after the entry was stored.
func (s *Storage) Break(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// ErrOverruled is why a Log is lost when another owner takes over its shard.
var ErrOverruled = errors.New("another owner took over")

// stream is the log of a shard.
type stream struct {
	entries []stored
	first   wlog.Index // of entries[0]
	owner   *log       // nil = none

	ownerNode  wlog.NodeID    // that may open the shard; 0 = none
	ownerEpoch uint64         // number of owners so far
	ahead      *time.Duration // of the shard's time; nil = it had no owner
	timedEpoch uint64         // of the owner whose ahead it is
}

// stored is an entry, encoded.
type stored struct{ header, body []byte }

func (s *Storage) stream(shard uint32) *stream {
	st := s.shards[shard]
	if st == nil {
		st = &stream{first: 1}
		s.shards[shard] = st
	}
	return st
}

// next returns the index of the next entry.
func (st *stream) next() wlog.Index { return st.first + wlog.Index(len(st.entries)) }

func (st *stream) add(h *wlog.Header, body []byte) wlog.Index {
	at := st.next()
	body = append([]byte(nil), body...)
	st.entries = append(st.entries, stored{h.Append(nil, at, noSalt, body), body})
	return at
}

// offset returns what is to be added to a node's clock to get the shard's.
func (st *stream) offset(n *Node) time.Duration {
	switch {
	case st.ahead == nil:
		ahead := n.skew
		st.ahead = &ahead
	case st.timedEpoch != st.ownerEpoch:
		*st.ahead -= takeoverDelay
	}
	st.timedEpoch = st.ownerEpoch
	return *st.ahead - n.skew
}

// noSalt: entries need no salt, because streams are not reused.
const noSalt = 0

// at returns the entry at an index, if it was not trimmed.
func (st *stream) at(at wlog.Index) (wlog.Header, []byte, error) {
	if at < st.first || at >= st.next() {
		return wlog.Header{}, nil, wlog.ErrNoEntry
	}
	e := st.entries[at-st.first]
	h, err := wlog.ParseHeader(e.header, at, noSalt)
	if err != nil {
		return h, nil, err
	}
	if !h.Holds(e.body) {
		return h, nil, fmt.Errorf("entry %d: %w", at, wlog.ErrDamaged)
	}
	return h, e.body, nil
}

// Late stores an entry that a former owner of the shard sent before it knew of the takeover. It is void.
func (s *Storage) Late(shard uint32, epoch uint64, entry []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := wlog.Header{Kind: wlog.Data, Shard: shard, Epoch: epoch, Time: hook.Instant(1), Prev: 1, Synced: true}
	s.stream(shard).add(&h, entry)
	s.announce()
}
