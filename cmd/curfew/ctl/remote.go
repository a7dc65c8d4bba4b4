package ctl

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
)

// Remote calls the management API for other commands of this binary, with the same flags and variables as "curfew ctl".
type Remote struct{ api *client }

// Connect returns a Remote. given holds the flags that were given, by their names in this package: url, host, port, username,
// password, cacert, insecure, cert, key. transport carries the requests; nil = the network.
func Connect(given map[string]string, environ []string, transport http.RoundTripper) (*Remote, error) {
	c, err := connect(&commandLine{values: given}, environ)
	if err != nil {
		return nil, err
	}
	if transport != nil {
		c.http.Transport = transport
	}
	return &Remote{c}, nil
}

// Close closes idle connections.
func (r *Remote) Close() { r.api.http.CloseIdleConnections() }

// Path returns the path of a resource below /api. Its parts may contain any characters.
func Path(parts ...string) string { return path(parts...) }

// Call sends body as JSON (nil = none) and decodes the answer into into (nil = it is ignored).
func (r *Remote) Call(ctx context.Context, method, path string, body, into any) error {
	return r.worded(r.api.call(ctx, method, path, body, into))
}

// worded returns an error for commands that print a prefix of their own before it.
func (r *Remote) worded(err error) error {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return &Refusal{Status: refused.status, Reason: strings.TrimPrefix(refused.failure(r.api).Error(), "Error:\n")}
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return &failure{f.status, strings.TrimPrefix(f.text, "Error: ")}
	}
	return err
}

// Refusal is an answer of the API with a status other than 2xx.
type Refusal struct {
	Status int // of HTTP
	Reason string
}

func (r *Refusal) Error() string { return r.Reason }

// Stream requests a resource of any length. The caller closes the result. Errors are those of Call.
func (r *Remote) Stream(ctx context.Context, path string) (io.ReadCloser, error) {
	answer, err := r.api.send(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, r.worded(err)
	}
	return answer.Body, nil
}
