package mgmt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// failure is the answer to a refused request: RabbitMQ's body {"error", "reason"}.
type failure struct {
	status int
	code   string
	reason any // a string, or a list where RabbitMQ has one
}

func (f *failure) Error() string { return f.code + ": " + fmt.Sprint(f.reason) }

func badRequest(layout string, args ...any) error {
	return &failure{http.StatusBadRequest, "bad_request", fmt.Sprintf(layout, args...)}
}

func notAuthorised(reason string) error {
	return &failure{http.StatusUnauthorized, "not_authorised", reason}
}

var (
	errNotFound = &failure{http.StatusNotFound, "Object Not Found", "Not Found"}
	errNoVHost  = &failure{http.StatusNotFound, "not_found", "vhost_not_found"}
)

// failureOf returns the answer for an error; nil for an error of the broker's own.
func failureOf(err error) *failure {
	f := failureOfLast(err)
	if f == errElsewhere && errors.Is(err, definitions.ErrPartly) {
		return errMoved
	}
	return f
}

// begun marks an error of a request that had done a part before it failed.
func begun(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", definitions.ErrPartly, err)
}

// failureOfLast is failureOf without regard to the parts that were done before the error.
func failureOfLast(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if e, ok := errors.AsType[*jsonobj.Error](err); ok {
		return &failure{http.StatusBadRequest, "bad_request", e.Reason}
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &failure{
			http.StatusRequestEntityTooLarge, "bad_request",
			fmt.Sprintf("the body of the request has more than %d bytes", large.Limit),
		}
	}
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		if e.Code == amqp.ReplyConnectionForced {
			return interruption(e)
		}
		return failureOfKind(e.Code == amqp.ReplyNotFound, e.Code == amqp.ReplyAccessRefused, e.Code == amqp.ReplyInternalError, e.Text)
	}
	if e, ok := errors.AsType[*vhost.Error](err); ok {
		switch {
		case e.Kind == vhost.Conflict:
			return &failure{http.StatusConflict, "conflict", e.Text}
		case e.Kind == vhost.Stopped && !isOwnership(e):
			return broken(e)
		case e.Kind == vhost.Stopped:
			return moved(e.MayBeDone())
		}
		return failureOfKind(e.Kind == vhost.NotFound, e.Kind == vhost.AccessRefused, false, e.Text)
	}
	if e, ok := errors.AsType[*auth.Invalid](err); ok {
		return &failure{http.StatusBadRequest, "bad_request", e.Text}
	}
	switch {
	case isOwnership(err):
		return moved(!errors.Is(err, wlog.ErrUnwritten))
	case errors.Is(err, context.DeadlineExceeded):
		return errLate
	case errors.Is(err, wlog.ErrClosed), errors.Is(err, journal.ErrClosed), errors.Is(err, context.Canceled):
		return errStopping
	case errors.Is(err, auth.ErrNoUser):
		return errNotFound
	case errors.Is(err, auth.ErrNoVHost):
		return errNoVHost
	}
	return nil
}

// interrupted is the code of a failure whose text names the cause of the interruption.
const interrupted = "interrupted"

// Failures of actions that the broker has begun.
var (
	errLate     = &failure{http.StatusServiceUnavailable, "timeout", "it was not done in time; whether it will be done is not known"}
	errStopping = &failure{http.StatusServiceUnavailable, "stopping", "the broker is stopping; whether it was done is not known"}
)

// moved returns the failure of a request whose vhost, or the registry, has moved to another node.
func moved(mayBeDone bool) *failure {
	if mayBeDone {
		return errMoved
	}
	return errElsewhere
}

// broken returns the failure of a request that needs a log which has failed.
func broken(e *vhost.Error) *failure {
	text := e.Text
	if e.MayBeDone() {
		text += "; whether it was done is not known"
	}
	return &failure{http.StatusInternalServerError, "internal_error", text}
}

// interruption returns the failure of a request whose connection inside the broker was closed: its vhost has moved or was deleted, its user
// was deleted, or the broker stops.
func interruption(e *amqp.Error) *failure {
	if e.Undone {
		return errElsewhere
	}
	text := e.Text
	if !strings.HasSuffix(text, " is not known") { // of a change, the session says so itself
		text += "; whether it was done is not known"
	}
	return &failure{http.StatusServiceUnavailable, interrupted, text}
}

// failureOfKind returns the answer for an error of the broker's, by its kind.
func failureOfKind(notFound, refused, internal bool, text string) *failure {
	switch {
	case internal:
		return nil
	case notFound:
		return &failure{http.StatusNotFound, "not_found", text}
	case refused:
		return &failure{http.StatusUnauthorized, "not_authorised", text}
	}
	return &failure{http.StatusBadRequest, "bad_request", text}
}
