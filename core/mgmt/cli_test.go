package mgmt

import (
	"net/http"
	"strings"
	"testing"
)

// Where RabbitMQ serves rabbitmqadmin there was JSON, which "curl -o rabbitmqadmin" made a script of.
func TestRabbitmqadminIsNotServed(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/cli", "/cli/", "/cli/index.html", "/cli/rabbitmqadmin"} {
		w := r.serve(r.request("-", http.MethodGet, path, ""))
		if kind := w.Header().Get("Content-Type"); w.Code != http.StatusNotFound || kind != "text/plain; charset=utf-8" {
			t.Errorf("%s: got %d %s, want 404 and a text", path, w.Code, kind)
		}
		for line := range strings.Lines(w.Body.String()) {
			if !strings.HasPrefix(line, "#") {
				t.Errorf("%s: a shell that is given the text runs %q", path, line)
			}
		}
		for _, want := range []string{"rabbitmq-server", "curfew ctl"} {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: the text does not name %s", path, want)
			}
		}
	}
}

// The answers are RabbitMQ 3.10's, except for the text about an unreadable header, and for guest's logins from elsewhere, whose password is
// not checked.
func TestWhyALoginFailed(t *testing.T) {
	const failed = `{"error":"not_authorized","reason":"Login failed"}`
	const unreadable = `{"error":"bad_request","reason":"header Authorization: after \"Basic\" comes NAME:PASSWORD in base64"}`
	r := newRig(t)
	r.do(http.StatusCreated, http.MethodPut, "/api/users/none", `{"password":"p","tags":""}`)
	for _, tt := range []struct {
		name, header, from string
		status             int
		asks               bool
		body               string
	}{
		{name: "no login", status: 401, asks: true},
		{name: "a wrong password", header: "Basic Z3Vlc3Q6d3Jvbmc=", status: 401, asks: true, body: failed},
		{name: "no such user", header: "Basic bm9ib2R5OnA=", status: 401, asks: true, body: failed},
		{name: "an empty password", header: "Basic Z3Vlc3Q6", status: 401, asks: true, body: failed},
		{name: "a token", header: "Bearer abc", status: 401, asks: true, body: failed},
		{name: "no base64", header: "Basic x!", status: 400, body: unreadable},
		{name: "no colon", header: "basic Zm9v", status: 400, body: unreadable},
		{name: "no tag", header: "Basic bm9uZTpw", status: 401, body: `{"error":"not_authorised","reason":"Not management user"}`},
		{
			name: "guest from elsewhere", header: "Basic Z3Vlc3Q6Z3Vlc3Q=", from: "192.0.2.1:5", status: 401,
			body: `{"error":"not_authorised","reason":"User can only log in via localhost"}`,
		},
	} {
		q := r.request("-", http.MethodGet, "/api/whoami", "")
		if tt.header != "" {
			q.Header.Set("Authorization", tt.header)
		}
		if tt.from != "" {
			q.RemoteAddr = tt.from
		}
		r.api.GuestLoopbackOnly = true
		w := r.serve(q)
		if asks := w.Header().Get("WWW-Authenticate") != ""; w.Code != tt.status || asks != tt.asks || w.Body.String() != tt.body {
			t.Errorf("%s: got %d, asks %v, %s; want %d, %v, %s", tt.name, w.Code, asks, w.Body, tt.status, tt.asks, tt.body)
		}
	}
}
