package wlogtest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

func (s *suite) empty() {
	var m Model
	for range 3 {
		l := s.open(0, &m)
		if s.isLost(l) {
			s.Error("Lost is closed from the beginning")
		}
		s.restart()
	}
}

func (s *suite) replay() {
	var m Model
	for range 3 {
		l := s.open(0, &m)
		for range 60 {
			s.append(l, &m, s.size())
		}
		s.restart()
	}
	s.open(0, &m)
}

func (s *suite) sizes() {
	var m Model
	l := s.open(0, &m)
	for _, size := range []int{0, 1, 7, 8, 9, 4095, 4096, 4097, s.LargeEntry, 0, 3 * s.LargeEntry, 1} {
		s.append(l, &m, size)
	}
	m.ReadBack(s.T, l, s.rng)
	s.restart()
	m.ReadBack(s.T, s.open(0, &m), s.rng)
}

func (s *suite) buffer() {
	var m Model
	l := s.open(0, &m)
	for range 20 {
		entry := m.Next(200)
		at, err := l.Append(s.Context(), entry, wlog.Bringing)
		s.noError(err, "Append")
		s.noError(m.Appended(at, len(entry), nil), "Append")
		clear(entry)
	}
	m.ReadBack(s.T, l, s.rng)
	s.restart()
	s.open(0, &m)
}

func (s *suite) read() {
	var m Model
	l := s.open(0, &m)
	s.append(l, &m, 100)
	at := s.append(l, &m, 1000)
	last := s.append(l, &m, 0)
	m.ReadBack(s.T, l, s.rng)
	for _, tc := range []struct {
		name   string
		at     wlog.Index
		off, n int
		want   error
	}{
		{"past the end", at, 999, 2, wlog.ErrRange},
		{"after the end", at, 1001, 0, wlog.ErrRange},
		{"before the beginning", at, -1, 1, wlog.ErrRange},
		{"of an empty entry", last, 0, 1, wlog.ErrRange},
		{"at no index", 0, 0, 1, wlog.ErrNoEntry},
		{"after the last", last + 4096, 0, 1, wlog.ErrNoEntry},
		{"far after the last", last + 1<<40, 0, 1, wlog.ErrNoEntry},
		{"nothing at the end", at, 1000, 0, nil},
	} {
		s.wantError(l.ReadAt(s.Context(), tc.at, tc.off, make([]byte, tc.n)), tc.want, tc.name)
	}
	s.append(l, &m, 10)
	m.ReadBack(s.T, l, s.rng)
}

func (s *suite) readBesideAppend() {
	var m Model
	l := s.open(0, &m)
	for range 50 {
		s.append(l, &m, s.size())
	}
	before := m
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for _, e := range before.kept() {
				p := make([]byte, e.size)
				if err := l.ReadAt(s.Context(), e.at, 0, p); err != nil || !bytes.Equal(p, Body(e.number, e.size)) {
					s.Errorf("ReadAt(%#x): %v, or other bytes than were appended", e.at, err)
				}
			}
		})
	}
	for range 100 {
		s.append(l, &m, s.size())
	}
	readers.Wait()
}

func (s *suite) trim() {
	var m Model
	l := s.open(0, &m)
	s.noError(l.Trim(1), "Trim of nothing")
	for range 4 {
		for range 60 {
			s.append(l, &m, s.size())
		}
		before := m.At(m.Len() * 3 / 4)
		s.noError(l.Trim(before), "Trim")
		m.Trimmed(before)
		s.noError(l.Trim(before), "Trim again")
		m.ReadBack(s.T, l, s.rng)
		s.restart()
		l = s.open(0, &m)
		m.ReadBack(s.T, l, s.rng)
	}
	last := m.At(m.Len() - 1)
	s.noError(l.Trim(last+1), "Trim of everything")
	m.Trimmed(last + 1)
	s.restart()
	l = s.open(0, &m)
	s.append(l, &m, 10)
	s.restart()
	s.open(0, &m)
}

func (s *suite) trimBesideAppend() {
	var m Model
	l := s.open(0, &m)
	indices := make(chan wlog.Index, 1000)
	var trimmer sync.WaitGroup
	trimmer.Go(func() {
		for at := range indices {
			if err := l.Trim(at); err != nil {
				s.Errorf("Trim: %v", err)
			}
		}
	})
	for range 150 {
		at := s.append(l, &m, s.size())
		m.Trimmed(at)
		indices <- at
	}
	close(indices)
	trimmer.Wait()
	s.restart()
	s.open(0, &m)
}

func (s *suite) shards() {
	var a, b Model
	la, lb := s.open(7, &a), s.open(3, &b)
	for range 20 {
		s.append(la, &a, s.size())
		s.append(lb, &b, s.size())
	}
	s.noError(la.Close(), "Close")
	s.append(lb, &b, 1)
	s.restart()
	found, err := s.engine.Shards(s.Context())
	s.noError(err, "Shards")
	if want := []uint32{3, 7}; !slices.Equal(found, want) {
		s.Errorf("Shards: got %v, want %v", found, want)
	}
	s.open(3, &b)
	s.open(7, &a)
}

func (s *suite) takeover() {
	var m Model
	former := s.open(0, &m)
	for range 10 {
		s.append(former, &m, s.size())
	}
	l := s.open(0, &m)
	s.isOver(former, wlog.ErrLost)
	s.append(l, &m, 10)
	s.noError(former.Close(), "Close of a lost Log")
	if s.isLost(l) {
		s.Error("the new owner lost the shard, too")
	}
	s.append(l, &m, 10)
	m.ReadBack(s.T, l, s.rng)
	s.restart()
	s.open(0, &m)
}

// takeovers checks that a shard can be opened again and again with hardly an entry between.
func (s *suite) takeovers() {
	var m Model
	for i := range 150 {
		l := s.open(0, &m)
		if i%50 == 0 {
			s.append(l, &m, 100)
		}
	}
	s.restart()
	s.open(0, &m)
}

// resumed checks that an opener that has the first entries receives only the others.
func (s *suite) resumed() {
	e, ok := s.engine.(wlog.Standby)
	if !ok {
		s.Skip("this engine's shards have one owner")
	}
	var m Model
	l := s.open(0, &m)
	for range 50 {
		s.append(l, &m, s.size())
	}
	for had := 10; had <= m.Len(); had += 20 {
		next := had
		l, err := e.Resume(s.Context(), 0, m.At(had-1), func(at wlog.Index, body []byte) error {
			next++
			return m.acked[next-1].check(at, body)
		})
		s.noError(err, "Resume")
		if next != m.Len() {
			s.Fatalf("behind %d entries of %d there are %d", had, m.Len(), next-had)
		}
		s.append(l, &m, 10)
	}
	s.isOver(l, wlog.ErrLost)
	s.open(0, &m)
}

func (s *suite) closing() {
	var m Model
	l := s.open(0, &m)
	s.append(l, &m, 10)
	s.noError(l.Close(), "Close")
	s.noError(l.Close(), "second Close")
	_, err := l.Append(s.Context(), []byte("more"), wlog.Bringing)
	s.wantError(err, wlog.ErrClosed, "Append after Close")
	if s.isLost(l) {
		s.Error("Close closed Lost")
	}
	l = s.open(0, &m)
	s.append(l, &m, 10)
	s.noError(s.engine.Close(), "Engine.Close")
	_, err = l.Append(s.Context(), []byte("more"), wlog.Bringing)
	s.wantError(err, wlog.ErrClosed, "Append after Engine.Close")
	_, err = s.engine.Open(s.Context(), 0, m.Replay().Entry)
	s.wantError(err, wlog.ErrClosed, "Open after Engine.Close")
	s.noError(s.engine.Close(), "second Engine.Close")
	s.start()
	s.open(0, &m)
}

func (s *suite) refusal() {
	var m Model
	l := s.open(0, &m)
	for range 3 {
		s.append(l, &m, 10)
	}
	refused, calls := errors.New("not understood"), 0
	_, err := s.engine.Open(s.Context(), 0, func(wlog.Index, []byte) error {
		if calls++; calls == 2 {
			return refused
		}
		return nil
	})
	s.wantError(err, refused, "Open")
	if calls != 2 {
		s.Errorf("fn was called %d times, want 2", calls)
	}
	s.append(s.open(0, &m), &m, 10)
	s.restart()
	s.open(0, &m)
}

func (s *suite) cancelled() {
	var m Model
	s.append(s.open(0, &m), &m, 10)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	_, err := s.engine.Open(ctx, 0, m.Replay().Entry)
	s.wantError(err, context.Canceled, "Open")
	s.open(0, &m)
}

func (s *suite) cancelledAppend() {
	var m Model
	l := s.open(0, &m)
	s.append(l, &m, 10)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	at, err := l.Append(ctx, m.Next(10), wlog.Bringing)
	s.noError(m.Appended(at, 10, err), "Append")
	if err != nil {
		s.isOver(l, wlog.ErrLost)
	}
	s.restart()
	s.open(0, &m)
}

func (s *suite) full() {
	if s.SetFull == nil {
		s.Skip("this storage is never full")
	}
	var m Model
	l := s.open(0, &m)
	s.append(l, &m, 100)
	s.SetFull(s.T, true)
	s.untilFull(l, &m)
	for range 10 {
		s.appendFor(l, &m, 100, wlog.Settling)
	}
	s.appendFor(l, &m, 100, wlog.Trimming)
	m.ReadBack(s.T, l, s.rng)
	if s.isLost(l) {
		s.Error("Lost is closed")
	}
	s.SetFull(s.T, false)
	s.untilFree(l, &m)
	s.restart()
	s.open(0, &m)
}

// untilFull appends large entries until there is no space for one.
func (s *suite) untilFull(l wlog.Log, m *Model) {
	s.Helper()
	for range 1000 {
		at, err := l.Append(s.Context(), m.Next(s.LargeEntry), wlog.Bringing)
		if errors.Is(err, wlog.ErrFull) {
			m.Refused()
			return
		}
		s.noError(err, "Append")
		s.noError(m.Appended(at, s.LargeEntry, nil), "Append")
	}
	s.Fatal("a full storage took 1000 large entries")
}

// untilFree appends a large entry as soon as the storage takes it.
func (s *suite) untilFree(l wlog.Log, m *Model) {
	s.Helper()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for range 1000 {
		at, err := l.Append(s.Context(), m.Next(s.LargeEntry), wlog.Bringing)
		if err == nil {
			s.noError(m.Appended(at, s.LargeEntry, nil), "Append")
			return
		}
		s.wantError(err, wlog.ErrFull, "Append")
		m.Refused()
		<-poll.C
	}
	s.Fatal("a storage with space again still takes no large entry")
}

func (s *suite) broken() {
	if s.Break == nil {
		s.Skip("this storage never breaks")
	}
	var m Model
	for range 10 {
		l := s.open(0, &m)
		for range s.rng.IntN(20) {
			s.append(l, &m, s.size())
		}
		s.Break(s.T)
		at, err := l.Append(s.Context(), m.Next(500), wlog.Bringing)
		if err == nil || errors.Is(err, wlog.ErrFull) {
			s.Fatalf("Append to a broken storage: got error %v, want another", err)
		}
		s.noError(m.Appended(at, 500, err), "Append")
		s.isOver(l, wlog.ErrLost)
		s.restart()
	}
	s.open(0, &m)
}

func (s *suite) crash() {
	if s.Crash == nil {
		s.Skip("this storage cannot crash")
	}
	var m Model
	for range 20 {
		l := s.open(0, &m)
		for range s.rng.IntN(50) {
			s.append(l, &m, s.size())
		}
		s.Crash(s.T)
		_ = s.engine.Close() // any error will do after a crash
		s.start()
	}
	s.open(0, &m)
}

// random calls methods in random order.
func (s *suite) random() {
	var m Model
	l := s.open(0, &m)
	for range 500 {
		switch n := s.rng.IntN(100); {
		case n < 90:
			s.append(l, &m, s.size())
		case n < 95 && m.Len() > 0:
			before := m.At(s.rng.IntN(m.Len()))
			s.noError(l.Trim(before), "Trim")
			m.Trimmed(before)
		case n < 97:
			m.ReadBack(s.T, l, s.rng)
		case n < 98:
			l = s.open(0, &m)
		default:
			s.restart()
			l = s.open(0, &m)
		}
	}
}
