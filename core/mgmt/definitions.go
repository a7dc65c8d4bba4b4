package mgmt

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"time"
)

const (
	// uploadTimeout is how long a client may take to send definitions.
	uploadTimeout = 5 * time.Minute
	// importTimeout is how long an import may take: each definition is durable before the answer.
	importTimeout = 30 * time.Minute
)

// export writes the definitions of the vhost that the path names or, if it names none, of the whole broker.
func (a *API) export(c *request) error {
	if name := c.query.raw.Get("download"); name != "" {
		c.w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	}
	c.w.Header().Set("Content-Type", "application/json")
	_ = a.files.Export(timedWriter{c.w}, c.vhost) // it fails if the client is gone
	return nil
}

// load imports definitions into the vhost that the path names or, if it names none, into the whole broker.
func (a *API) load(c *request) error {
	timeouts := http.NewResponseController(c.w) // a server without deadlines, as in tests, needs none
	_ = timeouts.SetReadDeadline(time.Now().Add(uploadTimeout))
	b, err := c.upload()
	if err != nil {
		return err
	}
	_ = timeouts.SetWriteDeadline(time.Now().Add(importTimeout))
	return c.done(a.files.Import(b, c.vars["vhost"], c.user.Name))
}

// upload reads the body: JSON, or a form as browsers send them, with the JSON as its file.
func (c *request) upload() ([]byte, error) {
	kind, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type")) // every other type is read as JSON
	if kind != "multipart/form-data" {
		return c.read(c.api.BodyMax)
	}
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, c.api.BodyMax)
	form, err := c.r.MultipartReader()
	if err != nil {
		return nil, badRequest("form: %v", err)
	}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return nil, badRequest("the form has no part named file")
		}
		if err != nil {
			return nil, formError(err)
		}
		if part.FormName() == "file" {
			b, err := io.ReadAll(part)
			return b, formError(err)
		}
	}
}

// formError returns the error of a form that could not be read.
func formError(err error) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); err == nil || large {
		return err
	}
	return badRequest("form: %v", err)
}
