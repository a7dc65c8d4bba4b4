package queue

import (
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// StoppedError says why a queue is stopped: its journal has failed, bodies cannot be
// read, it panicked, another node serves its vhost, or the broker ends. It is unknown
// which of the last operations a restart or the other node finds, so nothing is
// delivered, enqueued or expired any more.
type StoppedError struct {
	VHost, Queue string
	Exchange     bool   // Queue is the name of an exchange, whose held messages these are
	Shard        uint32 // 0 means none
	Err          error  // of the journal, or the turn's panic

	ready, unacked, held, discarded int // messages that a restart may find, by state
	persistent                      int // of all states
	readyBytes                      int64
}

func (e *StoppedError) Error() string {
	if e.Moved() {
		return "vhost '" + e.VHost + "' is not served by this node any more"
	}
	kind := "queue"
	if e.Exchange {
		kind = "exchange"
	}
	text := fmt.Sprintf("%s '%s' in vhost '%s' is stopped", kind, e.Queue, e.VHost)
	if errors.Is(e.Err, journal.ErrClosed) {
		return text + ": the broker is shutting down"
	}
	if errors.Is(e.Err, errUnreadable) {
		return text + ": " + errUnreadable.Error()
	}
	if e.panicked() {
		return text + ": an error in the broker"
	}
	return fmt.Sprintf("%s: shard %d failed", text, e.Shard)
}

func (e *StoppedError) Unwrap() error { return e.Err }

// Moved reports whether the queue is stopped because another node serves its vhost.
func (e *StoppedError) Moved() bool { return errors.Is(e.Err, wlog.ErrNotOwner) }

// panicked reports whether the queue is stopped because of an error in the broker.
func (e *StoppedError) panicked() bool {
	_, ok := errors.AsType[*panicError](e.Err)
	return ok
}

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

// stop stops the queue. The operations of a turn that panicked may be incomplete, so
// those that are not committed are dropped. In other cases they are complete, and are
// committed.
func (q *Queue) stop(err error) {
	e := &StoppedError{VHost: q.cfg.VHost, Queue: q.cfg.Name, Exchange: q.cfg.Schedule != nil, Err: err, readyBytes: q.readyBytes}
	if r := q.cfg.Storage; r != nil {
		e.Shard = r.Shard
	}
	if p, ok := errors.AsType[*panicError](err); ok {
		q.mailbox.pins.count(q, &q.buf.ops)
		q.buf = new(turnBuffers)
		q.report(p)
	} else {
		if errors.Is(err, errUnreadable) { // in other cases nothing is trimmed by this node any more
			q.mailbox.pins.count(q, nil)
		}
		q.buf.abandon()
	}
	q.stopped = e
	if err := contain(func() { q.letGo(e) }); err != nil {
		q.breakDown(err)
	}
	q.lease, q.trim = 0, 0
}

// letGo drops the messages and the consumers of a stopped queue.
func (q *Queue) letGo(e *StoppedError) {
	if q.contents != nil {
		all := q.messages()
		e.count(q)
		q.count.Lost += uint64(max(0, all-e.ready-e.unacked-e.held-e.discarded)) // a turn that broke off may have left a message in the list that no count has
	}
	q.abandonRedrive()
	q.dropContents()
	for c := q.consumers.pop(); c != nil; c = q.consumers.pop() {
		c.dismiss(q)
	}
}

// count counts the messages of a queue that are in the journal.
func (e *StoppedError) count(q *Queue) {
	if q.cfg.Storage == nil {
		return
	}
	for l := range q.levels {
		f := &q.levels[l]
		for seq, s := f.messageFrom(0); s != nil; seq, s = f.messageFrom(seq + 1) {
			if !q.isJournalled(s) {
				continue
			}
			e.persistent += s.flags.persistent()
			switch {
			case s.is(stateReady):
				e.ready++
			case s.is(stateHeld):
				e.held++
			case q.discards.reason(ref(l, seq)) != hook.ReasonNone:
				e.discarded++
			default:
				e.unacked++
			}
		}
	}
}

// Flush commits all changes of the queue, and how far messages were delivered, which is
// not committed by itself otherwise.
func (q *Queue) Flush() {
	if q.stopped == nil {
		q.journalDelivered()
		q.commit(nil)
	}
}

// End commits the last operations of the queue, and stops it because the broker ends. It
// returns how many messages a restart will not find.
func (q *Queue) End() (lost int) {
	if q.stopped == nil {
		q.journalDelivered()
		q.commit(nil)
		q.stop(journal.ErrClosed)
	}
	return int(q.Stats().Lost)
}

// Abandon stops the queue because another node serves it, unless it is stopped already,
// and frees its messages. It commits nothing. It returns how many messages the other node
// will not find.
func (q *Queue) Abandon() (lost int) {
	if q.stopped == nil {
		q.stop(wlog.ErrNotOwner)
	}
	for q.garbage != nil {
		q.freeGarbage()
	}
	return int(q.Stats().Lost)
}

// decline answers a task for a stopped queue.
func (t *task) decline(q *Queue, now hook.Instant) {
	switch t.kind {
	case taskAnswered:
		t.transfer.release(nil)
	case taskPublish:
		t.batch.complete(q.stopped)
	case taskCall:
		t.call.fn(q, now)
		t.call.end(nil)
	}
}
