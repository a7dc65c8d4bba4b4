package ctl

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// Remote is the management API, for other commands of this binary: found, and entered, as the commands of this one do it.
type Remote struct{ api *client }

// Connect finds the API. given are the flags that were, by the names that they have here: url, host, port, username, password,
// cacert, insecure. transport is what requests go over, nil for the network.
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

// Close gives up connections that are kept open for the next call.
func (r *Remote) Close() { r.api.http.CloseIdleConnections() }

// Path is the path of a resource below /api. Its parts may have any character.
func Path(parts ...string) string { return path(parts...) }

// Call sends body as JSON, nil for none, and decodes the answer into into, nil to ignore it.
func (r *Remote) Call(ctx context.Context, method, path string, body, into any) error {
	err := r.api.call(ctx, method, path, body, into)
	if refused, ok := errors.AsType[*refusal](err); ok {
		return &Refusal{Status: refused.status, Reason: strings.TrimPrefix(refused.failure(r.api).Error(), "Error:\n")}
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return &failure{f.status, strings.TrimPrefix(f.text, "Error: ")} // the caller says in its own way that it is one
	}
	return err
}

// Refusal is an answer of the API that is not the one hoped for.
type Refusal struct {
	Status int // of HTTP
	Reason string
}

func (r *Refusal) Error() string { return r.Reason }
