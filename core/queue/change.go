package queue

import (
	"context"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Change runs fn on the queue's turn, as Do does, and returns when fn's changes are
// durable. It returns ErrGone or a [StoppedError], without having run fn, when the queue
// was deleted or is stopped. If ctx ends or the journal fails first, it is unknown
// whether a restart finds the changes.
func (m *Mailbox) Change(ctx context.Context, fn func(q *Queue, now hook.Instant)) error {
	durable := make(changeCommit, 2) // two outcomes: if the queue stops after the commit, Do runs the function again
	err := m.Do(func(q *Queue, now hook.Instant) {
		if q.stopped != nil {
			durable <- q.stopped
			return
		}
		fn(q, now)
		if q.cfg.Storage == nil {
			durable <- nil
			return
		}
		q.commit(durable)
	})
	if err != nil {
		return err
	}
	select {
	case err := <-durable:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// changeCommit gets the outcome of a change's commit.
type changeCommit chan error

var _ journal.Completer = changeCommit(nil)

// Durable implements [journal.Completer].
func (c changeCommit) Durable() { c <- nil }

// Failed implements [journal.Completer].
func (c changeCommit) Failed(err error) { c <- err }
