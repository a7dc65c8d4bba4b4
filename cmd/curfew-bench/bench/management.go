package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxAnswer is the greatest number of bytes that are read of an answer.
const maxAnswer = 16 << 20

// endpoint is the address of a management API, with user and password.
type endpoint struct{ url *url.URL }

func (e *endpoint) String() string {
	if e == nil || e.url == nil {
		return ""
	}
	return e.url.String()
}

func (e *endpoint) Set(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
		return errors.New("must be http://USER:PASSWORD@HOST:PORT, or the same with https")
	}
	if u.Path = ""; u.User == nil {
		u.User = url.UserPassword("guest", "guest")
	}
	e.url = u
	return nil
}

// managed registers --management.
func (f flags) managed(initial string) {
	otherwise := "; without it, lists are not measured"
	if initial != "" {
		otherwise = ""
		if err := f.o.management.Set(initial); err != nil {
			panic(err) // a constant
		}
	}
	f.Var(&f.o.management, "management", "the management API's `URL`, http://USER:PASSWORD@HOST:PORT"+otherwise)
}

// vhost is the virtual host as a part of a path.
func (s *session) vhost() string { return url.PathEscape(s.o.broker.vhost) }

// call sends a request to the management API, and decodes the answer unless into is nil.
func (s *session) call(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return err
		}
	}
	u := *s.o.management.url
	login := u.User
	u.User = nil
	r, err := http.NewRequestWithContext(ctx, method, u.String()+"/api/"+path, &content)
	if err != nil {
		return err
	}
	password, _ := login.Password()
	r.SetBasicAuth(login.Username(), password)
	got, err := s.http(r)
	if err != nil {
		return fmt.Errorf("--management: %w", err)
	}
	defer func() { _ = got.Body.Close() }() // the answer was read to its end
	text, err := io.ReadAll(io.LimitReader(got.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("--management: %s %s: %w", method, path, err)
	case got.StatusCode >= http.StatusBadRequest:
		return fmt.Errorf("--management: %s %s: %s %s", method, path, got.Status, bytes.TrimSpace(text))
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("--management: %s %s: %w", method, path, err)
	}
	return nil
}
