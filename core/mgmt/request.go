package mgmt

import (
	"encoding/json"
	"net/http"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wire"
)

// request is one request on its way. It belongs to the goroutine that serves it.
type request struct {
	api   *API
	w     http.ResponseWriter
	r     *http.Request
	vars  values
	user  auth.User
	vhost *vhost.VHost // that the path names; nil if it names none
	query query

	owning map[vhost.Owner]wire.OpenConn // see owners
}

// serve finds out who asks and whether they may, and does what is asked.
func (c *request) serve(e *endpoint) error {
	if err := c.authenticate(); err != nil {
		return err
	}
	if err := c.authorise(e.need); err != nil {
		return err
	}
	var err error
	if c.query, err = parseQuery(c.r.URL.RawQuery); err != nil {
		return err
	}
	return e.do(c)
}

// reply answers with an object, of which the query may want only some members.
func (c *request) reply(o object) error {
	if c.query.columns != nil {
		o = o.pick(c.query.columns)
	}
	writeJSON(c.w, http.StatusOK, appendObject(nil, o))
	return nil
}

// created answers a PUT: 201 if there was nothing before, else 204.
func (c *request) created(fresh bool) error {
	if fresh {
		c.w.WriteHeader(http.StatusCreated)
		return nil
	}
	return c.done()
}

// done answers what has nothing to say but that it was done.
func (c *request) done() error {
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// removed answers a DELETE.
func (c *request) removed(existed bool) error {
	if !existed {
		return errNotFound
	}
	return c.done()
}

// refuse answers a request that could not be carried out.
func (c *request) refuse(err error) {
	f := failureOf(err)
	if f == nil {
		c.api.Log.Error("management request", "method", c.r.Method, "path", c.r.URL.Path, "user", c.user.Name, "error", err)
		f = &failure{http.StatusInternalServerError, "internal_error", "see the broker logfile"}
	}
	if f == errNoLogin || f == errLoginFailed {
		c.w.Header().Set("WWW-Authenticate", `Basic realm="`+realm+`"`)
	}
	if f.code == "" {
		c.w.WriteHeader(f.status)
		return
	}
	writeFailure(c.w, f)
}

const realm = "Curfew Management"

func writeFailure(w http.ResponseWriter, f *failure) {
	writeJSON(w, f.status, appendObject(nil, object{{"error", f.code}, {"reason", f.reason}}))
}

func writeJSON(w http.ResponseWriter, status int, body json.RawMessage) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone; the server notices
}
