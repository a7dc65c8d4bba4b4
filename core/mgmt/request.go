package mgmt

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/sdk/hook"
)

type (
	object = jsonobj.Object
	member = jsonobj.Member
)

// caller is the maker of a request: where it comes from, and which user is logged in. It belongs to the goroutine that serves the request.
type caller struct {
	api  *API
	w    http.ResponseWriter
	r    *http.Request
	user auth.User

	session   auth.SessionID // by which the user is logged in; zero = by name and password, or by certificate
	from      auth.Origin    // of a request with a session
	until     hook.Instant   // when the session ends; zero without one
	certified bool           // the client's certificate has logged the user in
}

// request is a request and its answer. It belongs to the goroutine that serves it.
type request struct {
	caller
	vars  values
	vhost *vhost.VHost // that the path names; nil if it names none
	query query

	forwarded bool       // by another node of the cluster, which has let the user in
	part      bool       // the answer is merged with the parts of other nodes
	joins     bool       // the live view is put together from the states of all nodes
	place     bodyPlace  // of the body in the memory for bodies
	holding   *holding   // the request's share in the memory for parts; nil = none
	without   []string   // shards whose vhosts are left out of the answer, because another node's part has them
	gathering *gathering // the parts of other nodes that join the answer; nil = the answer is this node's alone

	byID map[vhost.Owner]wire.OpenConn // see connectionsByID
}

// handler carries out a request, and answers it unless it returns an error.
type handler func(*request) error

// serve checks the user's login and rights, and calls the handler.
func (c *request) serve(e *endpoint) error {
	if e.need == stranger {
		return e.do(c)
	}
	login := c.authenticate
	if c.forwarded {
		login = c.assume
	}
	if err := login(); err != nil {
		return err
	}
	if err := c.authorise(e.need); err != nil {
		return err
	}
	var err error
	parse := c.api.parseQuery
	if e.reads {
		parse = parseParameters
	}
	if c.query, err = parse(c.r.URL.RawQuery); err != nil {
		return err
	}
	if e.check != nil {
		if err := e.check(c); err != nil {
			return err
		}
	}
	return c.dispatch(e)
}

// maxSmallBody limits the bodies of requests that carry neither a message nor definitions.
const maxSmallBody = 1 << 20

// body returns a reader of the object in the body. No body is an empty object.
func (c *request) body() *jsonobj.Reader {
	return c.jsonBody(maxSmallBody)
}

// jsonBody is body for up to so many bytes.
func (c *request) jsonBody(limit int64) *jsonobj.Reader {
	b, err := c.read(min(limit, c.api.BodyMax))
	return jsonobj.ReadWithin(c.limits(jsonobj.MaxValues), b, err)
}

func (c *request) read(limit int64) ([]byte, error) {
	b, err := io.ReadAll(c.reserving(http.MaxBytesReader(c.w, c.r.Body, limit)))
	return b, c.bodyError(err)
}

// bodyError returns the error of a body that could not be read. The client, or a proxy, has caused it.
func (c *request) bodyError(err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); err == nil || large {
		return err
	}
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		c.takeTime(writeTimeout) // the time for the answer has passed, too
		return &failure{http.StatusRequestTimeout, "request_timeout", "the body of the request did not come in time"}
	}
	return badRequest("the body of the request: %v", err)
}

// takeTime gives the client more time than usual to read the answer.
func (c *caller) takeTime(most time.Duration) {
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(most)) // a server without deadlines, as in tests, needs none
}

// reply answers with an object, or with the members that the query wants. If all nodes are asked, their counts are added.
func (c *request) reply(o object) error {
	if g := c.gathering; g != nil && g.sum != nil {
		o = g.sum(append([]object{o}, g.objects()...))
		g.findUnserved()
		g.mark()
		o = g.incomplete(o)
	}
	writeObject(c.w, http.StatusOK, o.Pick(c.query.columns))
	return nil
}

// created answers a PUT, unless there was an error: 201 if it created something, else 204.
func (c *request) created(created bool, err error) error {
	if err == nil && created {
		c.w.WriteHeader(http.StatusCreated)
		return nil
	}
	return c.done(err)
}

// removed answers a DELETE, unless there was an error: 204 if it deleted something, else 404.
func (c *request) removed(existed bool, err error) error {
	if err == nil && !existed {
		return errNotFound
	}
	return c.done(err)
}

// done answers 204 unless there was an error.
func (c *request) done(err error) error {
	if err == nil {
		c.w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (c *request) refuse(err error) {
	f := c.failureOf(err)
	if f == nil {
		c.api.Log.Error("management request", "method", c.r.Method, "path", c.r.URL.Path, "user", c.user.Name, "error", err)
		f = &failure{http.StatusInternalServerError, "internal_error", "see the broker logfile"}
	}
	if (f == errNoLogin || f == errLoginFailed || f == errSessionEnded) && c.popsUp() {
		c.w.Header().Set("WWW-Authenticate", `Basic realm="`+realm+`"`)
	}
	if f == errElsewhere {
		c.w.Header().Set("Retry-After", "1")
		if c.forwarded {
			c.w.Header().Set(undoneHeader, "1")
		}
	}
	if f.code == "" {
		c.w.WriteHeader(f.status)
		return
	}
	writeFailure(c.w, f)
}

// failureOf is the function of that name for an error of this request. A vhost that has moved lacks everything, so that "not found" would
// be wrong.
func (c *request) failureOf(err error) *failure {
	f := failureOf(err)
	switch {
	case f == nil || c.vhost == nil || !c.vhost.Moved():
		return f
	case f == errNotFound:
		return errElsewhere
	case f.code == interrupted:
		return errMoved
	}
	return f
}

// popsUp reports whether a refusal may make a browser ask for a name and a password. Browsers do so over any page.
func (c *caller) popsUp() bool {
	h := c.r.Header
	switch {
	case h.Get("X-Requested-With") != "", strings.Contains(h.Get("Accept"), "text/event-stream"):
		return false
	case hasCookie(c.r), strings.TrimSuffix(c.r.URL.EscapedPath(), "/") == root+"session":
		return false
	}
	mode := h.Get("Sec-Fetch-Mode")
	return mode == "" || mode == "navigate"
}

// realm is RabbitMQ's: some tools send a name and a password only to it.
const realm = "RabbitMQ Management"

func writeFailure(w http.ResponseWriter, f *failure) {
	writeObject(w, f.status, object{{"error", f.code}, {"reason", f.reason}})
}

func writeObject(w http.ResponseWriter, status int, o object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(o.Append(nil)) // if the client is gone, the server notices
}
