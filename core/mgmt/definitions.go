package mgmt

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/curfewmq/curfew/core/vhost"
)

const (
	// uploadTimeout is how long a client may take to send definitions.
	uploadTimeout = 5 * time.Minute
	// importTimeout is how long an import may take: each definition is durable before the answer.
	importTimeout = 30 * time.Minute
)

func (a *API) exportAll(c *request) error { return a.export(c, nil) }

func (a *API) exportVHost(c *request) error { return a.export(c, c.vhost) }

func (a *API) export(c *request, v *vhost.VHost) error {
	if name := c.query.raw.Get("download"); name != "" {
		c.w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	}
	c.w.Header().Set("Content-Type", "application/json")
	_ = a.files.Export(timedWriter{c.w}, v) // it fails if the client is gone
	return nil
}

func (a *API) importAll(c *request) error { return a.load(c, "") }

func (a *API) importVHost(c *request) error { return a.load(c, c.vhost.Name()) }

func (a *API) load(c *request, in string) error {
	timeouts := http.NewResponseController(c.w) // a server without deadlines, as in tests, needs none
	_ = timeouts.SetReadDeadline(time.Now().Add(uploadTimeout))
	b, err := c.upload()
	if err != nil {
		return err
	}
	_ = timeouts.SetWriteDeadline(time.Now().Add(importTimeout))
	return c.done(a.files.Import(b, in, c.user.Name))
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
