package mgmt

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
)

// failure is the answer to a request that is refused: RabbitMQ's body {"error", "reason"}.
type failure struct {
	status int
	code   string
	reason any // a string, or a list where RabbitMQ has one
}

func (f *failure) Error() string { return f.code + ": " + fmt.Sprint(f.reason) }

func badRequest(layout string, args ...any) error {
	return &failure{http.StatusBadRequest, "bad_request", fmt.Sprintf(layout, args...)}
}

// badTerm is a bad request whose reason RabbitMQ prints as a pair.
func badTerm(what, value string) error {
	return &failure{http.StatusBadRequest, "bad_request", []string{what, value}}
}

func notAuthorised(reason string) error {
	return &failure{http.StatusUnauthorized, "not_authorised", reason}
}

var (
	errNotFound = &failure{http.StatusNotFound, "Object Not Found", "Not Found"}
	errNoVHost  = &failure{http.StatusNotFound, "not_found", "vhost_not_found"}
	errNotJSON  = &failure{http.StatusBadRequest, "bad_request", "not_json"}
)

// failureOf is the answer to err; nil if err is none that a client has caused.
func failureOf(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &failure{
			http.StatusRequestEntityTooLarge, "bad_request",
			fmt.Sprintf("the body of the request has more than %d bytes", large.Limit),
		}
	}
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return ofAMQP(e)
	}
	if e, ok := errors.AsType[*vhost.Error](err); ok {
		return ofVHost(e)
	}
	return ofAuth(err)
}

// ofAMQP is the answer to what a client is refused over AMQP, too.
func ofAMQP(e *amqp.Error) *failure {
	switch e.Code {
	case amqp.ReplyNotFound:
		return &failure{http.StatusNotFound, "not_found", e.Text}
	case amqp.ReplyAccessRefused:
		return &failure{http.StatusUnauthorized, "not_authorised", e.Text}
	case amqp.ReplyInternalError:
		return nil
	}
	return &failure{http.StatusBadRequest, "bad_request", e.Text}
}

func ofVHost(e *vhost.Error) *failure {
	switch e.Kind {
	case vhost.NotFound:
		return &failure{http.StatusNotFound, "not_found", e.Text}
	case vhost.AccessRefused:
		return &failure{http.StatusUnauthorized, "not_authorised", e.Text}
	}
	return &failure{http.StatusBadRequest, "bad_request", e.Text}
}

func ofAuth(err error) *failure {
	if invalid, ok := errors.AsType[*auth.Invalid](err); ok {
		return &failure{http.StatusBadRequest, "bad_request", invalid.Error()}
	}
	if errors.Is(err, auth.ErrNoUser) {
		return errNotFound
	}
	if errors.Is(err, auth.ErrNoVHost) {
		return errNoVHost
	}
	return nil
}
