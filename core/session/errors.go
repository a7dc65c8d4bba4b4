package session

import (
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
)

// in makes err, if there is one, the error of the method that caused it. What a vhost refuses gets its reply code here.
func in(err error, class, method uint16) error {
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*vhost.Error](err); ok {
		e := amqp.Errorf(replyCode(refused.Kind), "%s", refused.Text).In(class, method)
		e.Soft = refused.Kind == vhost.Stopped
		return e
	}
	if e, ok := errors.AsType[*amqp.Error](err); ok && e.Class == 0 {
		return e.In(class, method)
	}
	return err
}

func replyCode(k vhost.Kind) uint16 {
	switch k {
	case vhost.NotFound:
		return amqp.ReplyNotFound
	case vhost.AccessRefused:
		return amqp.ReplyAccessRefused
	case vhost.Locked:
		return amqp.ReplyResourceLocked
	case vhost.Precondition:
		return amqp.ReplyPreconditionFailed
	case vhost.NotAllowed:
		return amqp.ReplyNotAllowed
	case vhost.NotImplemented:
		return amqp.ReplyNotImplemented
	}
	return amqp.ReplyInternalError
}

// errStopped is the error for what a queue that is stopped was asked. It is not the connection's end: others may be at work.
func errStopped(why *queue.StoppedError) *amqp.Error {
	e := amqp.Errorf(amqp.ReplyInternalError, "%s, see the broker logfile", why)
	e.Soft = true
	return e
}

func precondition(layout string, args ...any) error {
	return amqp.Errorf(amqp.ReplyPreconditionFailed, layout, args...)
}
