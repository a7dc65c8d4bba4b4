package seg

import (
	"errors"
	"fmt"
	"sync"

	"github.com/curfewmq/curfew/core/wlog"
)

// logState says whether a log is open, and if not, the reason.
type logState struct {
	lost chan struct{}

	mu    sync.Mutex // guards cause
	cause error      // nil = it is open
}

// err returns the error with which calls on the log fail; nil = the log is open.
func (s *logState) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// lose ends the log and returns the reason. Only the first reason counts.
func (s *logState) lose(reason error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = fmt.Errorf("%w: %w", wlog.ErrLost, reason)
		close(s.lost)
	}
	return reason
}

// close ends the log because its owner closes it.
func (s *logState) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil || errors.Is(s.cause, wlog.ErrLost) {
		s.cause = wlog.ErrClosed
	}
}
