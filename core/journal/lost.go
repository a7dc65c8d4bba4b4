package journal

import (
	"errors"
	"fmt"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// watch wakes run when the log is lost, because run does not notice it without commits.
// watch ends with the log.
func (w *Writer) watch() {
	select {
	case <-w.log.Lost():
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wakeRunner()
	case <-w.closing:
	}
}

// ended returns the writer's failure for an error of the log. Where owners change, the
// failure for a lost log wraps [wlog.ErrNotOwner].
func (w *Writer) ended(err error) error {
	if w.o.OnLost != nil && errors.Is(err, wlog.ErrLost) && !errors.Is(err, wlog.ErrNotOwner) {
		return fmt.Errorf("%w: %w", wlog.ErrNotOwner, err)
	}
	return err
}

// Offset returns the shard's clock minus this node's, as long as the log is open: see [wlog.Log].
func (w *Writer) Offset() time.Duration { return w.log.Offset() }
