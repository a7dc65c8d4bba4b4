package mgmt

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
)

const (
	// uploadTimeout is how long a client may take to send definitions.
	uploadTimeout = 5 * time.Minute
	// importTimeout is how long an import may take: each definition is durable before the answer.
	importTimeout = 30 * time.Minute
)

// definitionHandlers export and import definitions.
type definitionHandlers struct {
	files *definitions.Definitions
	nodes *nodes
	log   *slog.Logger
}

// export writes the definitions of the vhost that the path names or, if it names none, of the whole broker.
func (a *definitionHandlers) export(c *request) error {
	modules, err := wantsModules(c)
	if err != nil {
		return err
	}
	all := a.files.Collect(c.vhost, modules)
	if c.gathering != nil {
		if err := c.gathering.addSections(all); err != nil {
			return err
		}
	}
	if name := c.query.raw.Get("download"); name != "" {
		c.w.Header().Set("Content-Disposition", attachment(name))
	}
	c.w.Header().Set("Content-Type", "application/json")
	_ = a.files.Write(timedWriter{ResponseWriter: c.w}, all) // it fails if the client is gone
	return nil
}

// attachment returns the header Content-Disposition of a file.
func attachment(name string) string {
	return mime.FormatMediaType("attachment", map[string]string{"filename": name})
}

func checkWantsModules(c *request) error {
	_, err := wantsModules(c)
	return err
}

// wantsModules reports whether an export is to have expiry policies.
func wantsModules(c *request) (bool, error) {
	switch v := c.query.raw.Get("modules"); v {
	case "", "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, badRequest("modules is '%.64s': true and false are known", v)
	}
}

// load imports definitions into the vhost that the path names or, if it names none, into the whole broker.
func (a *definitionHandlers) load(c *request) error {
	b, err := definitionsFile(c)
	if err != nil {
		return err
	}
	if c.forwarded {
		return a.loadStep(c, b)
	}
	dry, err := dryRun(c)
	if err != nil {
		return err
	}
	if dry {
		warnings, err := a.files.Rehearse(b, c.vars["vhost"])
		if err != nil {
			return failureOfModule(err)
		}
		return answerRehearsal(c, b, warnings)
	}
	warnings, err := a.files.Import(b, c.vars["vhost"], c.user.Name)
	if err != nil {
		return failureOfModule(err)
	}
	for _, w := range warnings {
		a.log.Warn("import", "warning", w)
	}
	if len(warnings) > 0 {
		return c.warned(false, warnings)
	}
	return c.done(nil)
}

// dryRun reports whether an import is only to be checked.
func dryRun(c *request) (bool, error) {
	switch v := c.query.raw.Get("dry-run"); v {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, badRequest("dry-run is '%.64s': true and false are known", v)
	}
}

// answerRehearsal answers a dry run: how many definitions the file has, and the warnings of an import.
func answerRehearsal(c *request, b []byte, warnings []string) error {
	counts, err := definitions.Counts(b, c.vars["vhost"])
	if err != nil {
		return err
	}
	return c.reply(object{{"definitions", counts}, {"warnings", definitions.Tags(warnings)}})
}

// definitionsFile reads the definitions to import, and takes the time for that.
func definitionsFile(c *request) ([]byte, error) {
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(uploadTimeout)) // a server without deadlines, as in tests, needs none
	b, err := readUpload(c)
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &failure{http.StatusRequestEntityTooLarge, "bad_request", fmt.Sprintf(
			"the body of the request has more than %d bytes, which is management.body-size; without expiry policies, definitions are smaller", large.Limit,
		)}
	}
	c.takeTime(importTimeout)
	if err == nil {
		limits := c.limits(maxDefinitionValues)
		err = limits.Check(b)
	}
	return b, err
}

// readUpload reads the body: JSON, or a form as browsers send them, with the JSON as its file.
func readUpload(c *request) ([]byte, error) {
	kind, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type")) // every other type is read as JSON
	if kind != "multipart/form-data" {
		return c.read(c.api.BodyMax)
	}
	c.r.Body = c.reserving(http.MaxBytesReader(c.w, c.r.Body, c.api.BodyMax))
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
			return nil, formError(c, err)
		}
		if part.FormName() == "file" {
			b, err := io.ReadAll(part)
			return b, formError(c, err)
		}
	}
}

// formError returns the error of a form that could not be read.
func formError(c *request, err error) error {
	err = c.bodyError(err)
	if f, ok := errors.AsType[*failure](err); ok && f.status == http.StatusBadRequest {
		return badRequest("form: %v", f.reason)
	}
	return err
}
