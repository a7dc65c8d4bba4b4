package queue

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// A panic in a turn stops its queue and nothing else. The turn may run on any goroutine:
// that of a connection, a request to the management API, a timer, or the start of the
// broker. Its caller may hold locks, and the queue would otherwise wait for ever for the
// end of the turn.

// panicError is a panic because a queue's data is not as its code expects it.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// contain runs fn and returns the panic that ended it: the error of a body that cannot be
// read, or a panicError.
func contain(fn func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case unreadable:
			err = p.error
		default:
			err = &panicError{p, debug.Stack()}
		}
	}()
	fn()
	return nil
}

// faultHost is a host that wants a report of panics that stop queues.
type faultHost interface {
	// Faulted reports a panic that stopped a queue. It is called on the queue's turn.
	Faulted(from *Config, v any, stack []byte)
}

// report passes a panic on to the host. If the host panics, too, its panic is
// ignored.
func (q *Queue) report(p *panicError) {
	if h, ok := q.host.(faultHost); ok {
		_ = contain(func() { h.Faulted(q.cfg, p.value, p.stack) })
	}
}

// contain runs a part of the mailbox's turn. It reports false after a panic, which stops
// the queue.
func (m *Mailbox) contain(fn func()) (whole bool) {
	err := contain(fn)
	if err != nil {
		m.queue.breakDown(err)
	}
	return err == nil
}

// breakDown stops a queue that panicked. If it was stopped or deleted before, the panic
// kept it from freeing its contents: then breakDown drops the references to them.
func (q *Queue) breakDown(err error) {
	if q.stopped == nil && !q.closed {
		q.stop(err)
		return
	}
	if p, ok := errors.AsType[*panicError](err); ok {
		q.buf = new(turnBuffers)
		q.report(p)
	}
	q.forsake()
}

// forsake drops all references to the contents of a queue, which cannot be trusted, and
// reports to its consumers that it is stopped. The memory outside the Go heap is lost
// until the broker ends.
func (q *Queue) forsake() {
	if old := q.contents; old != nil {
		q.contents = newContents(q)
		q.count = old.count
	}
	q.ready, q.unacked, q.moving, q.readyBytes = 0, 0, 0, 0
	_ = contain(q.abandonRedrive)
	q.discards, q.departing.list, q.ending, q.redrive, q.garbage, q.parted = nil, nil, nil, nil, nil, nil
	q.lease, q.trim = 0, 0
	q.emptied = true
	for c := q.consumers.pop(); c != nil; c = q.consumers.pop() {
		_ = contain(func() { c.dismiss(q) })
	}
}

// abandonRedrive ends the redrive of a queue that is deleted or stopped.
func (q *Queue) abandonRedrive() {
	if q.redrive == nil {
		return
	}
	reason := "no queue '" + q.cfg.Name + "' in vhost '" + q.cfg.VHost + "': it was deleted"
	if !q.closed {
		reason = q.stopped.Error()
	}
	q.redrive.end(q, q.mailbox.clock(), RedriveFailed, reason)
}

// dismiss reports to a removed consumer why it gets no more messages.
func (c *Consumer) dismiss(q *Queue) {
	c.removed = true
	if q.closed {
		c.Sink.Cancelled(c)
		return
	}
	c.Sink.Stopped(c, q.stopped)
}
