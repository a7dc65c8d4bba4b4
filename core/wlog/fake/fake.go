// Package fake is a log engine in memory, for tests. It behaves like a distributed engine: any number of engines share a storage, indices
// count from one, and entries that a former owner sends too late are in the log, but void.
//
// An [Engine] takes shards over when it opens them. A [Node] is a server of a cluster; the test chooses the owners of its shards.
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
	mu     sync.Mutex // guards everything here, and the logs
	shards map[uint32]*stream
	full   bool
	broken error

	nodes   []*Node
	changed chan struct{} // closed and replaced at each new entry or owner
}

// New returns an empty storage.
func New() *Storage { return &Storage{shards: map[uint32]*stream{}, changed: make(chan struct{})} }

// Engine returns an engine on the storage.
func (s *Storage) Engine() *Engine { return &Engine{storage: s} }

// SetFull sets whether appends fail with ErrFull, except those with the purposes Settling and Trimming.
func (s *Storage) SetFull(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

// Break makes the next append of any shard fail with err, after the entry was stored.
func (s *Storage) Break(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// ErrOverruled is the reason for which a Log is lost when another owner takes over its shard.
var ErrOverruled = errors.New("another owner took over")

// stream is the log of a shard.
type stream struct {
	entries []stored
	first   wlog.Index // of entries[0]
	owner   *log       // nil = none

	ownerNode  wlog.NodeID    // node that may open the shard; 0 = none
	ownerEpoch uint64         // number of owners so far
	ahead      *time.Duration // of the shard's clock; nil = the shard never had an owner
	timedEpoch uint64         // epoch of the owner with that clock
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

func (st *stream) next() wlog.Index { return st.first + wlog.Index(len(st.entries)) }

func (st *stream) add(h *wlog.Header, body []byte) wlog.Index {
	at := st.next()
	body = append([]byte(nil), body...)
	st.entries = append(st.entries, stored{h.Append(nil, at, noSalt, body), body})
	return at
}

// offset returns the difference between the shard's clock and a node's.
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

// noSalt is the salt of all entries: streams are not reused, so none is needed.
const noSalt = 0

// at returns the entry at an index, unless it was trimmed.
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

// Late stores a void entry: a former owner of the shard sent it before it knew of the takeover.
func (s *Storage) Late(shard uint32, epoch uint64, entry []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := wlog.Header{Kind: wlog.Data, Shard: shard, Epoch: epoch, Time: hook.Instant(1), Prev: 1, Synced: true}
	s.stream(shard).add(&h, entry)
	s.announce()
}
