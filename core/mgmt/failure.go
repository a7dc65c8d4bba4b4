package mgmt

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/vhost"
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

// failureOf returns the answer for an error; nil if no client has caused it.
func failureOf(err error) *failure {
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
		return failureOfKind(e.Code == amqp.ReplyNotFound, e.Code == amqp.ReplyAccessRefused, e.Code == amqp.ReplyInternalError, e.Text)
	}
	if e, ok := errors.AsType[*vhost.Error](err); ok {
		if e.Kind == vhost.Conflict {
			return &failure{http.StatusConflict, "conflict", e.Text}
		}
		return failureOfKind(e.Kind == vhost.NotFound, e.Kind == vhost.AccessRefused, false, e.Text)
	}
	if e, ok := errors.AsType[*auth.Invalid](err); ok {
		return &failure{http.StatusBadRequest, "bad_request", e.Text}
	}
	switch {
	case isOwnership(err):
		return errMoved
	case errors.Is(err, auth.ErrNoUser):
		return errNotFound
	case errors.Is(err, auth.ErrNoVHost):
		return errNoVHost
	}
	return nil
}

// failureOfKind returns the answer for an error of the broker's, by what kind of error it is.
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
