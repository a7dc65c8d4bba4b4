package wire

import (
	"errors"
	"sync"
	"time"
)

// maxMetronomes bounds the connections that are polled at a time. With more busy connections than that, no processor is idle, and input
// accumulates without polling.
const maxMetronomes = 64

var errNoMetronome = errors.New("no metronome")

// metronomes is a pool of unused metronomes.
type metronomes struct {
	mu   sync.Mutex // guards the fields below
	free []*metronome
	made int
}

// take returns a metronome that ticks at an interval.
func (s *metronomes) take(every time.Duration) (*metronome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		m := s.free[n-1]
		s.free = s.free[:n-1]
		return m, m.tick(every)
	}
	if s.made == maxMetronomes {
		return nil, errNoMetronome
	}
	m, err := newMetronome()
	if err != nil {
		return nil, err
	}
	s.made++
	return m, m.tick(every)
}

// give stops a metronome and returns it to the pool.
func (s *metronomes) give(m *metronome) {
	_ = m.tick(0) // a failure only costs time
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, m)
}

// close closes the unused metronomes.
func (s *metronomes) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.free {
		m.close()
	}
	s.made -= len(s.free)
	s.free = nil
}
