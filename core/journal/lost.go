package journal

import (
	"errors"
	"fmt"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// watch has run find out that the log was lost, even if nothing is to be appended. It ends with the log.
func (w *Writer) watch() {
	select {
	case <-w.log.Lost():
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wakeRunner()
	case <-w.closing:
	}
}

// ended returns the failure that an error of the log is. Where owners change, one that wraps [wlog.ErrNotOwner] says that the shard has
// another.
func (w *Writer) ended(err error) error {
	if w.o.OnLost != nil && errors.Is(err, wlog.ErrLost) && !errors.Is(err, wlog.ErrNotOwner) {
		return fmt.Errorf("%w: %w", wlog.ErrNotOwner, err)
	}
	return err
}

// Offset returns the shard's clock minus this node's, as long as the log is open: see [wlog.Log].
func (w *Writer) Offset() time.Duration { return w.log.Offset() }
