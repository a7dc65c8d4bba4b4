package ctl

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strings"
)

// client calls the management API.
type client struct {
	base           string // "http://localhost:15672", without a slash at the end
	user, password string // both empty: a certificate identifies the user
	http           *http.Client
	warn           func(text string) // prints a warning about an incomplete answer; nil = it is not printed
	warned         map[string]bool   // warnings that were printed
}

// object is a JSON object of the API, whose members are decoded when they are read.
type object map[string]json.RawMessage

// text returns a member that is a string, or "".
func (o object) text(name string) string {
	var s string
	_ = json.Unmarshal(o[name], &s) // a member of another type counts as absent
	return s
}

// number returns a member that is a whole number, or 0.
func (o object) number(name string) int64 {
	var n int64
	_ = json.Unmarshal(o[name], &n)
	return n
}

// refusal is an answer of the API with a status other than 2xx.
type refusal struct {
	status int
	reason string
}

func (r *refusal) Error() string { return fmt.Sprintf("%s (status %d)", r.reason, r.status) }

// loginFailed is the reason that the API gives for a wrong name or password. Its other reasons concern the permissions of the user.
const loginFailed = "Login failed"

const credentialsHelp = "--username and --password, or CURFEW_CTL_USERNAME and CURFEW_CTL_PASSWORD, specify others."

// failure turns the refusal into the error that ends a command.
func (r *refusal) failure(api *client) error {
	if r.status == http.StatusUnauthorized && api.user == "" {
		return failed(noPermission, "%s does not accept this certificate: %s", api.base, r.reason)
	}
	if r.status == http.StatusUnauthorized && r.reason == loginFailed {
		return failed(noPermission, "%s does not know user '%s' with this password: %s\n\n%s", api.base, api.user, r.reason, credentialsHelp)
	}
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return failed(noPermission, "%s does not let user '%s' do that: %s", api.base, api.user, r.reason)
	case http.StatusServiceUnavailable:
		return failed(temporaryFailure, "%s", r.reason)
	}
	return failed(unavailable, "%s", r.reason)
}

func isRefusal(err error, status int) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.status == status
}

// path returns the path of a resource from its parts, which may contain any characters.
func path(parts ...string) string {
	var b strings.Builder
	b.WriteString("/api")
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(segment(p))
	}
	return b.String()
}

// segment escapes a part of a path.
func segment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E") // otherwise it would be removed as the current or the parent directory
	}
	return url.PathEscape(s)
}

func (c *client) get(ctx context.Context, path string, into any) error {
	return c.call(ctx, http.MethodGet, path, nil, into)
}

func (c *client) put(ctx context.Context, path string, body any) error {
	return c.call(ctx, http.MethodPut, path, body, nil)
}

func (c *client) remove(ctx context.Context, path string) error {
	return c.call(ctx, http.MethodDelete, path, nil, nil)
}

// call sends body (nil = none) and decodes the answer into into (nil = it is ignored). An
// empty answer to anything but GET leaves into unchanged.
func (c *client) call(ctx context.Context, method, path string, body, into any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = encode(body); err != nil {
			return err
		}
	}
	answer, err := c.send(ctx, method, path, data, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if into == nil {
		if _, err = io.Copy(io.Discard, answer.Body); err != nil {
			return c.misread(answer, "an answer", err)
		}
		return nil
	}
	err = json.NewDecoder(answer.Body).Decode(into)
	if errors.Is(err, io.EOF) && method != http.MethodGet {
		return nil
	}
	if err != nil {
		return c.misread(answer, "JSON", err)
	}
	return nil
}

// encode returns JSON without HTML escapes. JSON that the user wrote stays unchanged, so
// that the lines in error messages are those of its text.
func encode(v any) ([]byte, error) {
	if text, ok := v.(json.RawMessage); ok {
		return text, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// send returns an answer with status 2xx. The caller closes its body.
func (c *client) send(ctx context.Context, method, path string, body []byte, header http.Header) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(request.Header, header)
	if c.user != "" || c.password != "" {
		request.SetBasicAuth(c.user, c.password)
	} else { // a certificate identifies the user. Browsers may have it, too, but no other site's page can set this header
		request.Header.Set("X-Requested-With", "curfew ctl")
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if answer.StatusCode/100 == 2 {
		c.warnOf(answer.Header)
		return answer, nil
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(io.LimitReader(answer.Body, maxReason))
	if err != nil {
		body = nil // the status is enough
	}
	if c.refusesPlain(answer.StatusCode, body) {
		return nil, c.plainRefused()
	}
	return nil, refused(answer, body)
}

// unreachable turns an error of the transport into one for the user. The URL is left out because it can be long and contain names.
func (c *client) unreachable(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	hint := cmp.Or(c.speaksHelp(err), addressHelp)
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		hint = "--cacert, or CURFEW_CTL_CACERT, names a file with the certificates to trust."
	}
	return &failure{unavailable, fmt.Sprintf("Error: unable to reach the management API at %s: %v\n\n%s", c.base, err, hint)}
}

// maxReason bounds how much of a refusal is read, in bytes.
const maxReason = 64 << 10

func refused(answer *http.Response, body []byte) error {
	r := &refusal{status: answer.StatusCode, reason: answer.Status}
	var said object
	if json.Unmarshal(body, &said) != nil || said["reason"] == nil {
		return r
	}
	if r.reason = said.text("reason"); r.reason == "" {
		r.reason = string(said["reason"])
	}
	return r
}

// each iterates over a list while it arrives, because the list can be long.
func (c *client) each(ctx context.Context, path string) iter.Seq2[object, error] {
	return func(yield func(object, error) bool) {
		answer, err := c.send(ctx, http.MethodGet, path, nil, nil)
		if err != nil {
			yield(nil, err)
			return
		}
		defer answer.Body.Close()
		d := json.NewDecoder(answer.Body)
		switch start, err := d.Token(); {
		case err != nil:
			yield(nil, c.misread(answer, "a list", err))
			return
		case start != json.Delim('['):
			yield(nil, fmt.Errorf("%s%s sent something other than a list", c.base, path))
			return
		}
		for d.More() {
			var o object
			if err := d.Decode(&o); err != nil {
				yield(nil, c.misread(answer, "a list without an error in it", err))
				return
			}
			if !yield(o, nil) {
				return
			}
		}
		if _, err := d.Token(); err != nil { // the end of the list, so that the connection can be reused
			yield(nil, c.misread(answer, "a list with an end", cmp.Or(whenCut(err), err)))
		}
	}
}

// whenCut returns the error for an answer that ends within a list; nil for other errors.
func whenCut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

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

// warnOf prints a warning about each thing that an answer from a node of a cluster lacks, once for each text.
func (c *client) warnOf(h http.Header) {
	if nodes := h.Get("Curfew-Unreachable"); nodes != "" {
		names := strings.Split(nodes, ", ")
		for i, name := range names {
			names[i] = shown(name)
		}
		c.warnOnce("no answer from " + strings.Join(names, ", ") + ": their part of the answer is missing")
	}
	if vhosts := h.Get("Curfew-Missing-Vhosts"); vhosts != "" {
		names := strings.Split(vhosts, ", ")
		for i, escaped := range names {
			if name, err := url.PathUnescape(escaped); err == nil {
				names[i] = "'" + shown(name) + "'"
			}
		}
		c.warnOnce(fmt.Sprintf("the virtual hosts %s have no owner now: their part is missing", strings.Join(names, ", ")))
	}
	if h.Get("Curfew-Stale") != "" {
		c.warnOnce("the node does not reach a majority of the cluster's nodes, or lacks the latest changes: the answer may be out of date")
	}
}

func (c *client) warnOnce(text string) {
	if c.warn == nil || c.warned[text] {
		return
	}
	if c.warned == nil {
		c.warned = map[string]bool{}
	}
	c.warned[text] = true
	c.warn(text)
}
