package queue

import (
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// StoppedError is why a queue is stopped: its journal has failed, bodies cannot be read,
// or the broker ends. It is unknown which of the last operations a restart finds, so
// until then nothing is delivered, enqueued or expired.
type StoppedError struct {
	VHost, Queue string
	Shard        uint32 // 0 means none
	Err          error  // of the journal

	ready, unacked, discarded int // messages that a restart may find
	readyBytes                int64
}

func (e *StoppedError) Error() string {
	text := fmt.Sprintf("queue '%s' in vhost '%s' is stopped", e.Queue, e.VHost)
	if errors.Is(e.Err, journal.ErrClosed) {
		return text + ": the broker is shutting down"
	}
	if errors.Is(e.Err, errUnreadable) {
		return text + ": " + errUnreadable.Error()
	}
	return fmt.Sprintf("%s: shard %d failed", text, e.Shard)
}

func (e *StoppedError) Unwrap() error { return e.Err }

// Stopped returns why the queue is stopped, nil if it is not. A stopped queue can be
// inspected and deleted; other calls have no effect.
func (q *Queue) Stopped() *StoppedError { return q.stopped }

// checkJournal stops the queue when its journal has failed.
func (q *Queue) checkJournal() {
	if q.stopped != nil || q.cfg.Storage == nil {
		return
	}
	if err := q.cfg.Storage.Journal.Err(); err != nil {
		q.stop(err)
	}
}

func (q *Queue) stop(err error) {
	e := &StoppedError{VHost: q.cfg.VHost, Queue: q.cfg.Name, Err: err, readyBytes: q.readyBytes}
	if r := q.cfg.Storage; r != nil {
		e.Shard = r.Shard
	}
	if q.contents != nil {
		all := q.ready + q.unacked + q.waiting()
		e.ready, e.unacked, e.discarded = q.countJournalled()
		q.count.Lost += uint64(all - e.ready - e.unacked - e.discarded)
	}
	q.stopped = e
	q.buf.abandon()
	q.dropContents()
	for _, c := range q.consumers.removeAll() {
		c.removed = true
		c.Sink.Stopped(c, e)
	}
	q.lease, q.trim = 0, 0
}

// countJournalled counts the messages that are in the journal.
func (q *Queue) countJournalled() (ready, unacked, discarded int) {
	if q.cfg.Storage == nil {
		return 0, 0, 0
	}
	for l := range q.levels {
		f := &q.levels[l]
		for seq, s := f.messageFrom(0); s != nil; seq, s = f.messageFrom(seq + 1) {
			switch {
			case !q.isJournalled(s):
			case !s.is(stateUnacked):
				ready++
			case q.discards.reason(ref(l, seq)) != hook.ReasonNone:
				discarded++
			default:
				unacked++
			}
		}
	}
	return ready, unacked, discarded
}

// End stops the queue because the broker ends, and commits its last operations before.
// It returns how many messages a restart does not find.
func (q *Queue) End() (lost int) {
	if q.stopped == nil {
		q.journalDelivered()
		q.commit(nil)
		q.stop(journal.ErrClosed)
	}
	return int(q.Stats().Lost)
}

// declineStopped answers a task for a stopped queue.
func (q *Queue) declineStopped(now hook.Instant, t *task) {
	switch t.kind {
	case taskPublish:
		t.batch.complete(q.stopped)
	case taskCall:
		t.call.fn(q, now)
		close(t.call.done)
	}
}
