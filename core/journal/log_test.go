package journal

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// memLog is a log that does as it is told. It is its own engine.
type memLog struct {
	mu      sync.Mutex // guards the fields below
	entries []stored
	last    wlog.Index
	appends int
	closed  bool

	gate     chan struct{}     // if not nil, every append takes one from it first
	refuse   func(n int) error // asked at the n-th append, from 1
	fits     func(size int) bool
	lost     chan struct{}
	trimmed  func(before wlog.Index) error
	room     int64 // bytes that entries may have; 0 = there is no limit
	used     int64 // of entries that are not trimmed
	overfull int   // entries for which there was no room
	forget   bool  // keep no entries
	hoard    bool  // keep those that are trimmed
	written  func(entry string)
}

type stored struct {
	at    wlog.Index
	entry []byte
}

var (
	_ wlog.Log    = (*memLog)(nil)
	_ wlog.Engine = (*memEngine)(nil)
)

type memEngine struct{ *memLog }

func (e memEngine) Open(_ context.Context, _ uint32, fn func(wlog.Index, []byte) error) (wlog.Log, error) {
	for _, st := range e.entries {
		if err := fn(st.at, st.entry); err != nil {
			return nil, err
		}
	}
	return e.memLog, nil
}

func (e memEngine) MaxEntry() int { return wlog.MaxEntry }

func (e memEngine) Shards(context.Context) ([]uint32, error) { return []uint32{1}, nil }

func (l *memLog) Append(ctx context.Context, entry []byte, purpose wlog.Purpose) (wlog.Index, error) {
	if l.gate != nil {
		select {
		case <-l.gate:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appends++
	if l.refuse != nil {
		if err := l.refuse(l.appends); err != nil {
			return 0, err
		}
	}
	if l.room > 0 && l.used+wlog.EntrySize(len(entry)) > l.room {
		l.overfull++
		return 0, wlog.ErrFull
	}
	if l.fits != nil && !l.fits(len(entry)) {
		return 0, wlog.ErrFull
	}
	return l.store(entry), nil
}

// store keeps an entry. The caller holds mu.
func (l *memLog) store(entry []byte) wlog.Index {
	l.last += wlog.Index(len(entry) + wlog.HeaderSize)
	l.used += wlog.EntrySize(len(entry))
	if !l.forget {
		l.entries = append(l.entries, stored{l.last, bytes.Clone(entry)})
	}
	if l.written != nil {
		l.written(string(entry))
	}
	return l.last
}

func (l *memLog) ReadAt(context.Context, wlog.Index, int, []byte) error { panic("not needed") }

func (l *memLog) Trim(before wlog.Index) error {
	l.mu.Lock()
	l.entries = slices.DeleteFunc(l.entries, func(st stored) bool {
		trimmed := !l.hoard && st.at < before
		if trimmed {
			l.used -= wlog.EntrySize(len(st.entry))
		}
		return trimmed
	})
	l.mu.Unlock()
	if l.trimmed == nil {
		return nil
	}
	return l.trimmed(before)
}

func (l *memLog) Lost() <-chan struct{} { return l.lost }

func (l *memLog) Depth() int { return 1 }

func (l *memLog) Begin([]byte, wlog.Purpose) (<-chan wlog.Appended, error) { panic("not needed") }

func (l *memLog) HasSpace(int, wlog.Purpose) bool { panic("not needed") }

// Room implements [wlog.Log].
func (l *memLog) Room() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.room == 0 {
		return 1 << 40
	}
	return max(0, l.room-l.used)
}

// Least implements [wlog.Log].
func (l *memLog) Least() wlog.Purpose {
	l.mu.Lock()
	defer l.mu.Unlock()
	return wlog.Bringing
}

func (l *memLog) Reserve(int, wlog.Purpose) error { panic("not needed") }

func (l *memLog) Frees(wlog.Index) bool { panic("not needed") }

func (l *memLog) Offset() time.Duration { return 0 }

func (l *memLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}

// limit leaves space for no entry of more bytes.
func (l *memLog) limit(bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fits = func(size int) bool { return size <= bytes }
}

// state is what the entries that there are amount to.
func (l *memLog) state() records {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.folded()
}

// folded is state. The caller holds mu.
func (l *memLog) folded() records {
	r := records{}
	for _, st := range l.entries {
		r.fold(string(st.entry))
	}
	return r
}

// bodies returns the entries there are.
func (l *memLog) bodies() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, st := range l.entries {
		out = append(out, string(st.entry))
	}
	return out
}

func open(tb testing.TB, l *memLog, o Options) *Writer {
	tb.Helper()
	s, err := Open(tb.Context(), memEngine{l}, 1, func(uint32, wlog.Index, []byte) error { return nil }, o)
	if err != nil {
		tb.Fatal(err)
	}
	s.Recovered(nil)
	return s
}

// outcome of a commit.
type outcome struct {
	name string
	err  error
}

// history collects outcomes in the order they come in.
type history struct {
	mu  sync.Mutex // guards all
	all []outcome
}

func (h *history) as(name string) Completer { return &entrant{h, name} }

func (h *history) add(o outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, o)
}

func (h *history) outcomes() []outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

// names of those that became durable.
func (h *history) durable() (names []string) {
	for _, o := range h.outcomes() {
		if o.err == nil {
			names = append(names, o.name)
		}
	}
	return names
}

type entrant struct {
	h    *history
	name string
}

func (e *entrant) Durable()         { e.h.add(outcome{name: e.name}) }
func (e *entrant) Failed(err error) { e.h.add(outcome{name: e.name, err: err}) }

func (e memEngine) Close() error { return nil }
