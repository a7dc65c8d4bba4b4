package events

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// MaxStreams is how many streams there may be at a time.
	MaxStreams = 64
	// MaxUserStreams is how many one user may have, so that others get some.
	MaxUserStreams = 16
	// lastTime is how long a stream may take to write its end when all streams end: a stuck reader must not hold up the broker.
	lastTime = time.Second
)

// Streams are the open event streams. Any goroutine may use them.
type Streams struct {
	ended context.Context // done when they end
	end   func()          // ends them; once is enough
	until time.Time       // deadline of the last write; set before ended is done

	mu   sync.Mutex // guards what follows
	open int
	of   map[string]int // users
}

// NewStreams returns no open streams.
func NewStreams() *Streams {
	s := &Streams{of: map[string]int{}}
	ended, cancel := context.WithCancel(context.Background())
	s.ended = ended
	s.end = sync.OnceFunc(func() {
		s.until = time.Now().Add(lastTime)
		cancel()
	})
	return s
}

// End ends all streams, which would go on for ever, and those that are opened later.
func (s *Streams) End() { s.end() }

// Open counts a stream of a user, who has to close it. It fails if there are too many.
func (s *Streams) Open(user string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.of[user] >= MaxUserStreams:
		return fmt.Errorf("user '%s' has %d event streams already", user, MaxUserStreams)
	case s.open >= MaxStreams:
		return fmt.Errorf("there are %d event streams already", MaxStreams)
	}
	s.open++
	s.of[user]++
	return nil
}

// Close counts the end of a user's stream.
func (s *Streams) Close(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.of[user]--; s.of[user] == 0 {
		delete(s.of, user)
	}
}
