// Package fake is a log engine in memory, for tests of what is built on wlog. It
// behaves as a distributed engine may: any number of engines share a storage,
// indices count from one, and what a former owner sends too late is in the log,
// but void.
package fake

import (
	"errors"
	"fmt"
	"sync"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Storage is what engines have in common, as the servers of a cluster would be.
// Make one with [New].
type Storage struct {
	mu     sync.Mutex // guards all of it, logs included
	shards map[uint32]*stream
	full   bool
	broken error
}

// New returns an empty storage.
func New() *Storage { return &Storage{shards: map[uint32]*stream{}} }

// Engine returns an engine on the storage.
func (s *Storage) Engine() *Engine { return &Engine{storage: s} }

// SetFull makes appends fail with ErrFull, but those that settle, or stops that.
func (s *Storage) SetFull(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

// Break makes the next append of any shard fail with that error, after the entry
// was stored.
func (s *Storage) Break(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// ErrOverruled is why a Log is lost whose shard another owner took over.
var ErrOverruled = errors.New("another owner took over")

// stream is the log of a shard.
type stream struct {
	entries []stored
	first   wlog.Index // of entries[0]
	owner   *log       // nil: nobody
}

// stored is an entry. Its header and body are encoded as they would be sent.
type stored struct{ header, body []byte }

func (s *Storage) stream(shard uint32) *stream {
	st := s.shards[shard]
	if st == nil {
		st = &stream{first: 1}
		s.shards[shard] = st
	}
	return st
}

// next is the index the next entry gets.
func (st *stream) next() wlog.Index { return st.first + wlog.Index(len(st.entries)) }

func (st *stream) add(h *wlog.Header, body []byte) wlog.Index {
	at := st.next()
	body = append([]byte(nil), body...)
	st.entries = append(st.entries, stored{h.Append(nil, at, noSalt, body), body})
	return at
}

// noSalt: streams are never used for anything else, so entries need none.
const noSalt = 0

// at returns the entry at an index that the stream still has.
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

// Late stores an entry that a former owner of the shard sent before it knew that
// it was one. Readers pass over it.
func (s *Storage) Late(shard uint32, epoch uint64, entry []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := wlog.Header{Kind: wlog.Data, Shard: shard, Epoch: epoch, Time: hook.Instant(1), Prev: 1, Synced: true}
	s.stream(shard).add(&h, entry)
}
