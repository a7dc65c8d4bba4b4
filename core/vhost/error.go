package vhost

import (
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/wlog"
)

// Kind classifies errors by the client's way out. Sessions turn it into a reply code.
type Kind uint8

// The kinds of errors.
const (
	NotFound       Kind = iota + 1 // no such queue or exchange
	AccessRefused                  // not allowed on this object, whichever user asks
	Locked                         // another connection's exclusive queue
	Precondition                   // arguments or state do not allow it
	NotImplemented                 // a feature of RabbitMQ that is not offered
	NotAllowed                     // a limit is reached, or the connection's vhost does not exist
	Conflict                       // not possible because of something that is running; possible later
	Stopped                        // a log it needs has failed, or another node serves the vhost: then it wraps [wlog.ErrNotOwner]
)

// Error is a refused request. Text is the part that the client reads after the name of the reply code. For requests that RabbitMQ refuses,
// too, it is RabbitMQ's text, to the letter.
type Error struct {
	Kind Kind
	Text string

	cause   error // the broker's own failure; nil if the client is to blame
	started bool  // see MayBeDone
}

// MayBeDone reports whether the change may have been made all the same: it was being written when the log failed, or the vhost moved.
func (e *Error) MayBeDone() bool { return e.started }

// interrupted returns the error of a change that was being written, nil for nil.
func interrupted(e *Error) error {
	if e == nil {
		return nil
	}
	i := *e
	i.started = true
	return &i
}

func (e *Error) Error() string { return e.Text }

func (e *Error) Unwrap() error { return e.cause }

func refuse(kind Kind, layout string, args ...any) *Error {
	return &Error{Kind: kind, Text: fmt.Sprintf(layout, args...)}
}

var errDefaultExchange = &Error{Kind: AccessRefused, Text: "operation not permitted on the default exchange"}

// queueName is how error texts name a queue.
func (r *rules) queueName(name string) string {
	return "queue '" + name + "' in vhost '" + r.name + "'"
}

func (r *rules) exchangeName(name string) string {
	return "exchange '" + name + "' in vhost '" + r.name + "'"
}

// checkFields refuses arguments that would take much memory for as long as they are kept. of names the object with these arguments.
func checkFields(of string, t amqp.Table) error {
	if n := t.Fields(); n > amqp.MaxArguments {
		return refuse(Precondition, "the arguments of %s have %d fields and elements: at most %d are allowed", of, n, amqp.MaxArguments)
	}
	return nil
}

func (r *rules) locked(queue string) *Error {
	return refuse(Locked, "cannot obtain exclusive access to locked %s. It could be originally declared on another connection or "+
		"the exclusive property value does not match that of the original declaration.", r.queueName(queue))
}

// elsewhere is the error for everything in a vhost that another node serves.
func (r *rules) elsewhere(cause error) *Error {
	return &Error{Kind: Stopped, Text: "vhost '" + r.name + "' is not served by this node any more", cause: cause}
}

// stoppedError is an error that the broker itself is to blame for, if the vhost is still its own.
func (r *rules) stoppedError(cause error, layout string, args ...any) *Error {
	if errors.Is(cause, wlog.ErrNotOwner) {
		return r.elsewhere(cause)
	}
	e := refuse(Stopped, layout+", see the broker logfile", args...)
	e.cause = cause
	return e
}

// stopped is the error for a queue whose log has failed. Such a queue is stopped until the broker is restarted.
func (r *rules) stopped(e *queue.StoppedError) *Error { return r.stoppedError(e, "%v", e) }

// checkLog returns an error if the log of a queue has failed.
func (r *rules) checkLog(cfg *queue.Config) error {
	if cfg.Storage == nil {
		return nil
	}
	if err := cfg.Storage.Journal.Err(); err != nil {
		return r.stopped(&queue.StoppedError{VHost: cfg.VHost, Queue: cfg.Name, Exchange: cfg.Schedule != nil, Shard: cfg.Storage.Shard, Err: err})
	}
	return nil
}

// notDurable is the error for a change while definitions cannot be logged.
func (r *rules) notDurable(cause error) *Error {
	return r.stoppedError(cause, "vhost '%s': definitions cannot be kept: shard 0 failed", r.name)
}

// undelivered is the error for the name of a deleted queue with dead letters that could not be written: the next start of the broker
// restores the queue with them.
func (r *rules) undelivered(name string, cause error) *Error {
	return r.stoppedError(cause, "%s: messages that it dead-lettered could not be written", r.queueName(name))
}

// checkExclusive refuses other connections' exclusive queues.
func (r *rules) checkExclusive(name string, e queueEntry, owner Owner) error {
	if o := e.owner(); o != 0 && o != owner {
		return r.locked(name)
	}
	return nil
}
