package mgmt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/replicas"
)

// Headers of requests between nodes. Clients cannot set them: ServeHTTP ignores them.
const (
	userHeader = "Curfew-User" // the user that the asking node has let in, escaped as in a query
	partHeader = "Curfew-Part" // the answer is merged with the parts of other nodes
)

// undoneHeader marks an answer to another node, which refuses a request with nothing done because what it is about has moved away from here.
const undoneHeader = "Curfew-Undone"

// passedHeaders are the headers that go to the node that answers. Other headers are for the asked node only.
var passedHeaders = []string{"Accept", "Content-Type", "Last-Event-Id", "X-Reason"}

// returnedHeaders are the headers of another node's answer that the client gets. The asked node makes all others itself.
var returnedHeaders = []string{
	"Allow", "Content-Disposition", "Content-Type", "Location", "Retry-After", staleHeader, unreachableHeader, missingHeader, "X-Accel-Buffering",
}

// Forwarded answers requests of the cluster's other nodes, for users that they have let in. It must be reachable over the links between
// nodes only.
func (a *API) Forwarded() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := strings.CutPrefix(r.URL.EscapedPath(), root)
		if !ok {
			writeFailure(w, errNotFound)
			return
		}
		c := &request{caller: caller{api: a, w: w, r: r}, forwarded: true, part: r.Header.Get(partHeader) != ""}
		a.answer(c, path, func(*http.Request) error { return nil }) //nolint:contextcheck // the request has it
	})
}

// assume logs a forwarded request in as the user that the asking node names. Access is checked here, too. The user may be so new that this
// node does not know it yet.
func (c *caller) assume() error {
	name, err := url.QueryUnescape(c.r.Header.Get(userHeader))
	if err != nil || name == "" {
		return badRequest("header %s: the name of a user is expected", userHeader)
	}
	u, ok := c.api.users().Known(name)
	if !ok {
		c.freshen()
		u, ok = c.api.users().Known(name)
	}
	if !ok {
		return errLoginFailed
	}
	c.user = u
	return nil
}

// forward lets another node answer.
func (ns *nodes) forward(c *request, n replicas.Node, e *endpoint) error {
	answer, err := ns.send(c, n, e)
	if err != nil {
		return err
	}
	return ns.passOn(c, answer, e)
}

// send sends the request to another node, as the user's, and returns the answer, whose body is still to be read.
func (ns *nodes) send(c *request, n replicas.Node, e *endpoint) (*http.Response, error) {
	most := e.most
	if most == 0 {
		most = ns.patience
	}
	c.takeTime(most + writeTimeout)
	if e.most > 0 {
		_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(uploadTimeout)) // see load
	}
	ctx, cancel := context.WithCancel(c.r.Context())
	wait := &patience{most: most, late: time.AfterFunc(most, cancel)}
	body := c.r.Body
	if body != nil && body != http.NoBody {
		body = &arriving{body, wait}
	}
	answer, err := ns.peers.Do(ctx, n.ID, ns.outgoing(ctx, c, c.r.Method, c.r.URL, body))
	if !wait.end() && err == nil {
		_ = answer.Body.Close() // it came too late
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, ns.unforwarded(c, n, most, err)
	}
	if answer.Header.Get(undoneHeader) != "" {
		_ = answer.Body.Close() // the status says everything
		cancel()
		return nil, errElsewhere
	}
	answer.Body = &partBody{from: answer.Body, cancel: cancel, late: time.AfterFunc(ns.silence, cancel), most: ns.silence}
	return answer, nil
}

// failureThere returns the failure of another node's step.
func failureThere(answer *http.Response, code string, reason any) error {
	switch {
	case answer.Header.Get(undoneHeader) != "":
		return errElsewhere
	case reason == errMoved.reason:
		return errMoved
	}
	return &failure{answer.StatusCode, code, reason}
}

// patience bounds how long a node may take to answer. It counts from the last byte of the client's body, because the client may take its
// time to send that. Any goroutine may use it.
type patience struct {
	most time.Duration

	mu    sync.Mutex // guards the fields below
	late  *time.Timer
	ended bool
}

// again restarts the wait, unless it is over.
func (p *patience) again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended && p.late.Stop() {
		p.late.Reset(p.most)
	}
}

// end ends the wait, and reports whether it was not over yet.
func (p *patience) end() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	return p.late.Stop()
}

// arriving is the body of a client, which is passed on while it is read.
type arriving struct {
	io.ReadCloser
	wait *patience
}

func (a *arriving) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	a.wait.again()
	return n, err
}

// nodeSilence is how long a node may say nothing in the middle of an answer.
const nodeSilence = 45 * time.Second

// forwardTime is how long a forwarded request may wait for an answer: longer than a node waits for its own operations.
const forwardTime = operationTimeout + 5*time.Second

// unforwarded returns the answer for a request that another node has not answered.
func (ns *nodes) unforwarded(c *request, n replicas.Node, most time.Duration, err error) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return err
	}
	if c.r.Context().Err() != nil { // the client has gone, or its body did not come
		return c.bodyError(err)
	}
	c.takeTime(writeTimeout) // its body may have taken long
	c.w.Header().Set("Retry-After", "1")
	why := fmt.Sprintf(": %.200s", err.Error())
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		why = fmt.Sprintf(" within %s", most)
	}
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		why += "; whether it was done is not known"
	}
	return c.errUnreachable([]string{n.Name}, why)
}

// outgoing returns a request to another node, as the user's.
func (ns *nodes) outgoing(ctx context.Context, c *request, method string, to *url.URL, body io.ReadCloser) *http.Request {
	r := (&http.Request{
		Method: method, URL: &url.URL{Scheme: "http", Host: "node", Path: to.Path, RawPath: to.RawPath, RawQuery: to.RawQuery}, Host: "node",
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: body, ContentLength: c.r.ContentLength,
	}).WithContext(ctx)
	for _, name := range passedHeaders {
		if values := c.r.Header.Values(name); len(values) > 0 {
			r.Header[name] = slices.Clone(values)
		}
	}
	r.Header.Set(userHeader, url.QueryEscape(c.user.Name))
	return r
}

// passOn passes another node's answer on. If that answer breaks off, it breaks off its own, too, so that the client does not take it for
// complete.
func (ns *nodes) passOn(c *request, answer *http.Response, e *endpoint) error {
	defer func() { _ = answer.Body.Close() }() // the answer was read
	if answer.StatusCode < http.StatusOK || answer.StatusCode > 599 {
		return fmt.Errorf("another node answered with status %d", answer.StatusCode)
	}
	copyHeader(c.w.Header(), answer.Header)
	c.w.WriteHeader(answer.StatusCode)
	if e.streams && answer.StatusCode == http.StatusOK {
		return ns.passStream(c, answer.Body)
	}
	if _, err := io.Copy(timedWriter{ResponseWriter: c.w}, answer.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

func copyHeader(to, from http.Header) {
	for _, name := range returnedHeaders {
		if v := from.Get(name); v != "" {
			to.Set(name, v)
		}
	}
}

// streamCheck is the least time between two checks that the reader of another node's stream is still logged in here.
const streamCheck = time.Second

// passStream answers with a stream of another node, as long as the user may read it. That node bounds how many there are. It ends with the
// streams of this node.
func (ns *nodes) passStream(c *request, from io.ReadCloser) error {
	out := ns.viewers.Writer(c.w, writeTimeout)
	defer out.HurryAtEnd()()
	defer ns.viewers.AtEnd(func() { _ = from.Close() })()
	b, checked := make([]byte, bufferSize), time.Now()
	for {
		n, err := from.Read(b)
		if n > 0 && out.Send(b[:n]) != nil {
			return nil // the reader has gone
		}
		if now := time.Now(); err == nil && now.Sub(checked) >= streamCheck {
			checked = now
			if !c.renew() {
				return nil
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			select {
			case <-ns.viewers.Ended():
				return nil
			default:
				panic(http.ErrAbortHandler)
			}
		}
	}
}

// retryLogin reports whether a refused login may be tried once more: the user may have been added or changed at another node.
func (c *caller) retryLogin(err error) bool {
	if !auth.WasChecked(err) { // only failed checks of passwords are limited
		return false
	}
	before := c.api.users().Version()
	c.freshen()
	return c.api.users().Version() != before
}
