package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Node is a server of a cluster, on a [Storage]. It keeps every shard; [Storage.SetOwner] sets which of them it owns.
type Node struct {
	*Engine
	id   wlog.NodeID
	skew time.Duration // how far the node's clock is ahead

	// The storage's mutex guards the fields below.
	lag      time.Duration
	latency  time.Duration
	replay   time.Duration
	stalled  bool
	watchers map[*watcher]struct{}
}

var _ wlog.Cluster = (*Node)(nil)

// takeoverDelay is by how much a shard's clock falls behind with each change of its owner.
const takeoverDelay = time.Millisecond

// Node returns a server whose clock is ahead by skew. The clock of a shard is that of its first owner, less 1 ms for each later owner.
func (s *Storage) Node(id wlog.NodeID, skew time.Duration) *Node {
	n := &Node{id: id, skew: skew, watchers: map[*watcher]struct{}{}}
	n.Engine = &Engine{storage: s, node: n}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = append(s.nodes, n)
	return n
}

// Now is the node's clock.
func (n *Node) Now() hook.Instant { return now().Add(n.skew) }

// ID returns the node's number.
func (n *Node) ID() wlog.NodeID { return n.id }

// SetLag sets how long after a change of owners the node learns of it. Its appends fail at once.
func (n *Node) SetLag(lag time.Duration) { n.set(func() { n.lag = lag }) }

// SetLatency sets how long an append takes. In the first half the entry is not durable yet; in the second half it is, but not confirmed.
func (n *Node) SetLatency(latency time.Duration) { n.set(func() { n.latency = latency }) }

// SetReplay sets how long Open takes for each entry.
func (n *Node) SetReplay(perEntry time.Duration) { n.set(func() { n.replay = perEntry }) }

// SetStalled sets whether the node receives no entries from others.
func (n *Node) SetStalled(stalled bool) { n.set(func() { n.stalled = stalled }) }

func (n *Node) set(change func()) {
	s := n.storage
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.announce()
}

// SetOwner makes a node the owner of a shard; 0 = the shard gets no owner. The former owner's log is lost.
func (s *Storage) SetOwner(shard uint32, owner wlog.NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stream(shard)
	if owner != 0 {
		st.ownerEpoch++
	}
	st.ownerNode = owner
	if st.owner != nil {
		st.owner.lose(ErrOverruled)
		st.owner = nil
	}
	for _, n := range s.nodes {
		for w := range n.watchers {
			w.changed(shard)
		}
	}
	s.announce()
}

// Owner returns the owner of a shard; 0 = it has none.
func (s *Storage) Owner(shard uint32) wlog.NodeID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream(shard).ownerNode
}

// announce wakes all goroutines that wait for a change. The caller holds mu.
func (s *Storage) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// watcher is a subscription to changes of owners.
type watcher struct {
	// The storage's mutex guards the fields below.
	pending map[uint32]struct{} // shards that have changed
	wake    chan struct{}       // capacity 1
}

func (w *watcher) changed(shard uint32) {
	w.pending[shard] = struct{}{}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Owners implements [wlog.Cluster].
func (n *Node) Owners(fn func(wlog.Ownership)) (stop func()) {
	s := n.storage
	w := &watcher{pending: map[uint32]struct{}{}, wake: make(chan struct{}, 1)}
	s.mu.Lock()
	n.watchers[w] = struct{}{}
	for shard := range s.shards {
		w.changed(shard)
	}
	s.mu.Unlock()
	var running sync.WaitGroup
	stopped := make(chan struct{})
	running.Go(func() { n.watch(w, fn, stopped) })
	return sync.OnceFunc(func() {
		close(stopped)
		s.mu.Lock()
		delete(n.watchers, w)
		s.mu.Unlock()
		running.Wait()
	})
}

func (n *Node) watch(w *watcher, fn func(wlog.Ownership), stopped <-chan struct{}) {
	for {
		select {
		case <-w.wake:
		case <-stopped:
			return
		}
		if n.waitFor(n.delay(), stopped) != nil {
			return
		}
		for _, o := range n.news(w) {
			fn(o)
		}
	}
}

func (n *Node) delay() time.Duration {
	n.storage.mu.Lock()
	defer n.storage.mu.Unlock()
	return n.lag
}

// waitFor waits, and fails if ended is closed before.
func (n *Node) waitFor(d time.Duration, ended <-chan struct{}) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ended:
		return wlog.ErrClosed
	}
}

// news returns the owners of the shards that have changed.
func (n *Node) news(w *watcher) (all []wlog.Ownership) {
	s := n.storage
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, shard := range slices.Sorted(maps.Keys(w.pending)) {
		st := s.stream(shard)
		all = append(all, wlog.Ownership{Shard: shard, Owner: st.ownerNode, Mine: st.ownerNode == n.id, Epoch: st.ownerEpoch})
	}
	clear(w.pending)
	return all
}

// Follow implements [wlog.Cluster].
func (n *Node) Follow(ctx context.Context, shard uint32, fn func(at wlog.Index, entry []byte, anew bool) error) error {
	f := follower{node: n, shard: shard, next: 1, anew: true}
	for {
		at, body, changed, err := f.entry()
		switch {
		case err != nil:
			return err
		case changed != nil:
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		case body == nil:
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(at, body, f.anew); err != nil {
			return err
		}
		f.anew = false
	}
}

// follower reads the entries of a shard.
type follower struct {
	node  *Node
	shard uint32
	next  wlog.Index
	chain wlog.Chain
	anew  bool
}

// entry returns the next entry, with a nil body if it is void, or the channel to wait for at the end of the log.
func (f *follower) entry() (at wlog.Index, body []byte, changed <-chan struct{}, err error) {
	s := f.node.storage
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stream(f.shard)
	if f.node.closed {
		return 0, nil, nil, wlog.ErrClosed
	}
	if f.node.stalled || f.next == st.next() {
		return 0, nil, s.changed, nil
	}
	if f.next < st.first {
		f.next, f.chain, f.anew = st.first, wlog.Chain{}, true
	}
	at = f.next
	f.next++
	h, body, err := st.at(at)
	if err != nil {
		return 0, nil, nil, err
	}
	void, err := f.chain.Follow(at, &h)
	if void || err != nil || h.Kind != wlog.Data {
		return 0, nil, nil, err
	}
	return at, append([]byte{}, body...), nil, nil
}

// Barrier implements [wlog.Cluster].
func (n *Node) Barrier(ctx context.Context, shard uint32) (wlog.Index, error) {
	s := n.storage
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stream(shard)
	if st.ownerNode == 0 {
		return 0, wlog.ErrNoOwner
	}
	last, err := st.last()
	return last, errors.Join(err, ctx.Err())
}

// last returns the index of the last entry that a follower receives; 0 = there is none.
func (st *stream) last() (last wlog.Index, err error) {
	var chain wlog.Chain
	for at := st.first; at < st.next(); at++ {
		h, _, err := st.at(at)
		if err != nil {
			return 0, err
		}
		void, err := chain.Follow(at, &h)
		if err != nil {
			return 0, err
		}
		if !void && h.Kind == wlog.Data {
			last = at
		}
	}
	return last, nil
}

// trimmed reports whether any entry after an index was trimmed.
func (s *Storage) trimmed(shard uint32, after wlog.Index) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream(shard).first > after+1
}

// Resume implements [wlog.Standby].
func (e *Engine) Resume(ctx context.Context, shard uint32, after wlog.Index, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	return e.open(ctx, shard, after, fn)
}

// Replay implements [wlog.Standby].
func (n *Node) Replay(ctx context.Context, shard uint32, after wlog.Index, fn func(at wlog.Index, entry []byte) error) error {
	f := follower{node: n, shard: shard, next: 1}
	for {
		at, body, changed, err := f.entry()
		switch {
		case err != nil:
			return err
		case after > 0 && n.storage.trimmed(shard, after):
			return fmt.Errorf("replay shard %d: %w", shard, wlog.ErrTrimmed)
		case changed != nil:
			return nil
		case body == nil || at <= after:
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(at, body); err != nil {
			return err
		}
		after = at
	}
}

// Backlog implements [wlog.Standby].
func (n *Node) Backlog(shard uint32, after wlog.Index) (bytes int64) {
	s := n.storage
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stream(shard)
	if n.closed {
		return 0
	}
	for at := max(st.first, after+1); at < st.next(); at++ {
		bytes += int64(len(st.entries[at-st.first].body))
	}
	return bytes
}
