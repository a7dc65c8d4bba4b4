package fake

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// Engine is an engine on a [Storage].
type Engine struct {
	storage *Storage
	node    *Node // nil = the engine takes shards over from their owners
	// The storage's mutex guards the fields below.
	logs   []*log
	closed bool
}

var _ wlog.Engine = (*Engine)(nil)

// Open implements [wlog.Engine].
func (e *Engine) Open(ctx context.Context, shard uint32, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	return e.open(ctx, shard, 0, fn)
}

// open opens a shard, and replays the entries after an index; 0 is the beginning of the log.
func (e *Engine) open(ctx context.Context, shard uint32, after wlog.Index, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	l := &log{storage: e.storage, node: e.node, shard: shard, lost: make(chan struct{})}
	if err := e.begin(l); err != nil {
		return nil, err
	}
	if after > 0 && e.storage.trimmed(shard, after) { // the shard is not open yet, so nothing is trimmed meanwhile
		return nil, fmt.Errorf("open shard %d: %w", shard, wlog.ErrTrimmed)
	}
	for at := wlog.Index(0); ; at++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h, body, end, err := e.next(l, at)
		if end || err != nil {
			return l.orNil(err), err
		}
		if h == nil || h.Kind != wlog.Data || at <= after {
			continue
		}
		time.Sleep(e.replayTime())
		if err := fn(at, body); err != nil {
			return nil, fmt.Errorf("open shard %d: %w", shard, err)
		}
	}
}

// replayTime returns how long the replay of an entry takes.
func (e *Engine) replayTime() time.Duration {
	if e.node == nil {
		return 0
	}
	e.storage.mu.Lock()
	defer e.storage.mu.Unlock()
	return e.node.replay
}

// begin notes the term of the node in which l is opened.
func (e *Engine) begin(l *log) error {
	e.storage.mu.Lock()
	defer e.storage.mu.Unlock()
	l.epoch = e.storage.stream(l.shard).ownerEpoch
	return e.owns(l)
}

// owns returns an error if the node has lost the shard. The caller holds the storage's mutex.
func (e *Engine) owns(l *log) error {
	st := e.storage.stream(l.shard)
	switch {
	case e.closed:
		return wlog.ErrClosed
	case e.node != nil && (st.ownerNode != e.node.id || st.ownerEpoch != l.epoch):
		return fmt.Errorf("shard %d: %w", l.shard, wlog.ErrNotOwner)
	}
	return nil
}

// orNil keeps a nil *log from becoming a Log that is not nil.
func (l *log) orNil(err error) wlog.Log {
	if err != nil {
		return nil
	}
	return l
}

// next returns the entry at an index; nil = it is void or was trimmed. At the end of the stream it makes l the owner.
func (e *Engine) next(l *log, at wlog.Index) (h *wlog.Header, body []byte, end bool, err error) {
	s := e.storage
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := e.owns(l); err != nil {
		return nil, nil, false, err
	}
	st := s.stream(l.shard)
	switch {
	case at < st.first:
		return nil, nil, false, nil
	case at == st.next():
		e.logs = append(e.logs, l)
		st.takeOver(l)
		return nil, nil, true, nil
	}
	header, body, err := st.at(at)
	if err != nil {
		return nil, nil, false, err
	}
	void, err := l.chain.Follow(at, &header)
	if void || err != nil {
		return nil, nil, false, err
	}
	return &header, body, false, nil
}

func (st *stream) takeOver(l *log) {
	if st.owner != nil {
		st.owner.lose(ErrOverruled)
	}
	st.owner = l
	if l.node != nil {
		l.offset = st.offset(l.node)
	}
	h := l.chain.Next(wlog.Takeover, l.shard, now())
	h.Epoch++
	h.Synced = true
	at := st.add(&h, nil)
	l.chain.Appended(at, &h)
	l.storage.announce()
}

// MaxEntry implements [wlog.Engine].
func (e *Engine) MaxEntry() int { return wlog.MaxEntry }

// Shards implements [wlog.Engine].
func (e *Engine) Shards(ctx context.Context) ([]uint32, error) {
	e.storage.mu.Lock()
	defer e.storage.mu.Unlock()
	var all []uint32
	for shard, st := range e.storage.shards {
		if len(st.entries) > 0 {
			all = append(all, shard)
		}
	}
	slices.Sort(all)
	return all, ctx.Err()
}

// Close implements [wlog.Engine].
func (e *Engine) Close() error {
	e.storage.mu.Lock()
	defer e.storage.mu.Unlock()
	e.closed = true
	for _, l := range e.logs {
		l.cause = wlog.ErrClosed
	}
	e.storage.announce()
	return nil
}
