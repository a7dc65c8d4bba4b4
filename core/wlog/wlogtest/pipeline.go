package wlogtest

import (
	"errors"

	"github.com/curfewmq/curfew/core/wlog"
)

// begun is an entry on its way.
type begun struct {
	number uint64
	size   int
	entry  []byte
	done   <-chan wlog.Appended
}

// pipelined opens a shard. It skips the test if only one entry may be on its way at a time.
func (s *suite) pipelined(m *Model) wlog.Log {
	s.Helper()
	l := s.open(0, m)
	if l.Depth() == 1 {
		s.Skip("this log has one entry on its way at a time")
	}
	return l
}

// begin begins to append an entry of size bytes, which must succeed.
func (s *suite) begin(l wlog.Log, m *Model, size int) begun {
	s.Helper()
	entry := m.Next(size)
	done, err := l.Begin(entry, wlog.Bringing)
	s.noError(err, "Begin")
	return begun{m.Count(), size, entry, done}
}

// ended waits for the result of an entry. The caller may overwrite the entry then.
func (s *suite) ended(m *Model, b begun) error {
	s.Helper()
	a := <-b.done
	clear(b.entry)
	s.noError(m.AppendedAs(b.number, a.At, b.size, a.Err), "answer")
	return a.Err
}

func (s *suite) pipeline() {
	var m Model
	for range 3 {
		l := s.pipelined(&m)
		var flying []begun
		for range 200 {
			for len(flying) > s.rng.IntN(6) {
				s.noError(s.ended(&m, flying[0]), "append")
				flying = flying[1:]
			}
			flying = append(flying, s.begin(l, &m, min(s.size(), 10_000)))
		}
		for _, b := range flying {
			s.noError(s.ended(&m, b), "append")
		}
		s.append(l, &m, 100)
		m.ReadBack(s.T, l, s.rng)
		s.restart()
	}
	s.open(0, &m)
}

// pipelineTakeover takes the shard over while entries are on their way. Each is decided before the next owner begins: it is there, or
// never.
func (s *suite) pipelineTakeover() {
	var m Model
	for range 20 {
		l := s.pipelined(&m)
		var flying []begun
		for range s.rng.IntN(5) {
			flying = append(flying, s.begin(l, &m, 100))
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			for _, b := range flying {
				_ = s.ended(&m, b)
			}
		}()
		next, replayed := wlog.Log(nil), [][]byte(nil)
		next, err := s.engine.Open(s.Context(), 0, func(_ wlog.Index, entry []byte) error {
			replayed = append(replayed, entry)
			return nil
		})
		s.noError(err, "Open")
		<-answered
		if len(replayed) < m.Len() {
			s.Fatalf("the next owner got %d entries, and %d were acknowledged", len(replayed), m.Len())
		}
		s.isOver(l, wlog.ErrLost)
		s.noError(next.Close(), "Close")
	}
	s.open(0, &m)
}

// brokenPipeline checks that all entries behind a failed one fail.
func (s *suite) brokenPipeline() {
	if s.Break == nil {
		s.Skip("this storage never breaks")
	}
	var m Model
	for range 10 {
		l := s.pipelined(&m)
		flying := []begun{s.begin(l, &m, 100)}
		s.Break(s.T)
		for range 3 {
			done, err := l.Begin(m.Next(200), wlog.Bringing)
			if err != nil {
				refused := make(chan wlog.Appended, 1)
				refused <- wlog.Appended{Err: err}
				done = refused
			}
			flying = append(flying, begun{number: m.Count(), size: 200, done: done})
		}
		failed := 0
		for _, b := range flying {
			if err := s.ended(&m, b); err != nil {
				failed++
				if errors.Is(err, wlog.ErrFull) {
					s.Errorf("a broken storage returned %v", err)
				}
			}
		}
		if failed == 0 {
			s.Error("nothing failed")
		}
		s.isOver(l, wlog.ErrLost)
		s.restart()
	}
	s.open(0, &m)
}

// fullPipeline checks that an entry without space is refused at once, and no other entry is.
func (s *suite) fullPipeline() {
	if s.SetFull == nil {
		s.Skip("this storage is never full")
	}
	var m Model
	l := s.pipelined(&m)
	s.append(l, &m, 100)
	s.SetFull(s.T, true)
	s.untilFull(l, &m)
	done, err := l.Begin(m.Next(100), wlog.Settling)
	s.noError(err, "Begin")
	s.noError(s.ended(&m, begun{number: m.Count(), size: 100, done: done}), "append")
	_, err = l.Begin(m.Next(s.LargeEntry), wlog.Bringing)
	s.wantError(err, wlog.ErrFull, "Begin")
	m.Refused()
	s.SetFull(s.T, false)
	s.untilFree(l, &m)
	s.noError(s.ended(&m, s.begin(l, &m, 100)), "append")
	s.restart()
	s.open(0, &m)
}

// closedPipeline checks that Close waits for the entries on their way.
func (s *suite) closedPipeline() {
	var m Model
	l := s.pipelined(&m)
	flying := []begun{s.begin(l, &m, 10), s.begin(l, &m, 10)}
	s.noError(l.Close(), "Close")
	for _, b := range flying {
		s.noError(s.ended(&m, b), "append")
	}
	_, err := l.Begin([]byte("more"), wlog.Bringing)
	s.wantError(err, wlog.ErrClosed, "Begin after Close")
	s.restart()
	s.open(0, &m)
}
