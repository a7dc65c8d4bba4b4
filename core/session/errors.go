package session

import (
	"cmp"
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// replyCodes maps the errors of a vhost to reply codes; any other error is an internal error.
var replyCodes = map[vhost.Kind]uint16{
	vhost.NotFound:       amqp.ReplyNotFound,
	vhost.AccessRefused:  amqp.ReplyAccessRefused,
	vhost.Locked:         amqp.ReplyResourceLocked,
	vhost.Precondition:   amqp.ReplyPreconditionFailed,
	vhost.NotAllowed:     amqp.ReplyNotAllowed,
	vhost.NotImplemented: amqp.ReplyNotImplemented,
}

// in adds to err the method that caused it, and gives errors of a vhost their reply codes. It returns nil for nil.
func in(err error, class, method uint16) error {
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*vhost.Error](err); ok {
		if errors.Is(err, wlog.ErrNotOwner) {
			e := errMoved(refused.Text).In(class, method)
			if e.Undone = !refused.MayBeDone(); !e.Undone {
				e.Text += ", and whether the change was made is not known"
			}
			return e
		}
		e := amqp.Errorf(cmp.Or(replyCodes[refused.Kind], amqp.ReplyInternalError), "%s", refused.Text).In(class, method)
		e.Soft = refused.Kind == vhost.Stopped
		return e
	}
	if e, ok := errors.AsType[*amqp.Error](err); ok && e.Class == 0 {
		return e.In(class, method)
	}
	return err
}

// errStopped returns the error for a queue that has stopped. It is soft, because other queues may work, unless the whole vhost has moved.
func errStopped(why *queue.StoppedError) *amqp.Error {
	if why.Moved() {
		return errMoved(why.Error())
	}
	e := amqp.Errorf(amqp.ReplyInternalError, "%s, see the broker logfile", why.Error())
	e.Soft = true
	return e
}

// errMoved returns the error that ends a connection whose vhost is now served by another node; the connection's eviction, which may follow, has
// the same effect. Clients reconnect after such an error, whereas the end of a channel is left to the application.
func errMoved(text string) *amqp.Error { return amqp.Errorf(amqp.ReplyConnectionForced, "%s", text) }

func precondition(layout string, args ...any) error {
	return amqp.Errorf(amqp.ReplyPreconditionFailed, layout, args...)
}
