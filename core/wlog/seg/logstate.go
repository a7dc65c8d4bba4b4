package seg

import (
	"errors"
	"fmt"
	"sync"

	"github.com/curfewmq/curfew/core/wlog"
)

// logState is whether a journal goes on, and if not, why.
type logState struct {
	lost chan struct{}

	mu    sync.Mutex // guards what follows
	cause error      // nil while it goes on
}

// end returns what calls on a journal fail with that has come to its end, and
// nil while it goes on.
func (l *logState) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// lose ends the journal for a reason, which it returns; the first one counts.
func (l *logState) lose(reason error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = fmt.Errorf("%w: %w", wlog.ErrLost, reason)
		close(l.lost)
	}
	return reason
}

// close ends the journal at its owner's wish.
func (l *logState) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil || errors.Is(l.cause, wlog.ErrLost) {
		l.cause = wlog.ErrClosed
	}
}
