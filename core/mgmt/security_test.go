package mgmt

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/sdk/hook"
)

// The server has every timeout there is, complaints go to the broker's log.
func TestServerLimits(t *testing.T) {
	var b strings.Builder
	s := Server(http.NotFoundHandler(), slog.New(slog.NewTextHandler(&b, nil)), 0)
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 {
		t.Errorf("a timeout is missing: %+v", s)
	}
	if s.MaxHeaderBytes != 64<<10 {
		t.Errorf("MaxHeaderBytes = %d, want 64 KiB", s.MaxHeaderBytes)
	}
	s.ErrorLog.Print("odd request")
	if got := b.String(); !strings.Contains(got, `level=WARN msg="odd request"`) {
		t.Errorf("log = %s", got)
	}
}

// Every answer has headers that tell browsers how they may use it.
func TestSecurityHeaders(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/health", "/nothing", "/api/nothing", "/api/whoami", "/api/queues", "/api/queues/%2F/none"} {
		for _, user := range []string{guest, "-"} {
			h := r.serve(r.request(user, "GET", path, "")).Header()
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
				"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Cache-Control": "no-cache, no-store",
				"Access-Control-Allow-Origin": "", "Strict-Transport-Security": "",
			} {
				if got := h.Get(name); got != want {
					t.Errorf("%s of %s: %s: got %q, want %q", path, user, name, got, want)
				}
			}
		}
	}
	q := r.request(guest, "GET", "/health", "")
	q.TLS = &tls.ConnectionState{}
	if got := r.serve(q).Header().Get("Strict-Transport-Security"); got != "max-age=31536000" {
		t.Errorf("over TLS: got %q", got)
	}
}

// Nothing below /api answers without a login, but for logging in and out.
func TestNoLogin(t *testing.T) {
	r := newRig(t)
	for _, rt := range r.api.routes() {
		for _, e := range rt.endpoints {
			if e.need == stranger {
				if rt.path != "session" || e.method == "GET" {
					t.Errorf("%s %s needs no login", e.method, rt.path)
				}
				continue
			}
			path := strings.NewReplacer("{vhost}", "%2F", "{kind}", "q", "{", "", "}", "").Replace(root + rt.path)
			if w := r.serve(r.request("-", e.method, path, "")); w.Code != 401 || w.Body.Len() > 0 {
				t.Errorf("%s %s: got %d %s, want 401", e.method, path, w.Code, w.Body)
			}
		}
	}
}

// A page of another site cannot use the login that the browser remembers.
func TestCrossOrigin(t *testing.T) {
	for _, tt := range []struct {
		name   string
		method string
		header [2]string
		status int
	}{
		{"fetched across sites", "PUT", [2]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"another origin", "PUT", [2]string{"Origin", "https://elsewhere.example"}, 403},
		{"form of the same site", "PUT", [2]string{"Sec-Fetch-Site", "same-origin"}, 201},
		{"no browser", "PUT", [2]string{}, 201},
		{"reading beside what is shown", "GET", [2]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"another port of the same machine", "GET", [2]string{"Sec-Fetch-Site", "same-site"}, 403},
		{"an address that somebody types", "GET", [2]string{"Sec-Fetch-Site", "none"}, 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			q := r.request(guest, tt.method, "/api/queues/%2F/q", "{}")
			if tt.header[0] != "" {
				q.Header.Set(tt.header[0], tt.header[1])
			}
			if w := r.serve(q); w.Code != tt.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
		})
	}
}

func TestBodyLimits(t *testing.T) {
	r := newRig(t, func(o *Options) { o.BodyMax = 2 << 20 })
	large := `{"description":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		want                     string
	}{
		{"a little thing", "PUT", "/api/vhosts/v", large, 413, "the body of the request has more than 1048576 bytes"},
		{"definitions may be larger", "POST", "/api/definitions", large, 204, ""},
		{"not that much", "POST", "/api/definitions", large + strings.Repeat(" ", 1<<20), 413, "the body of the request has more than 2097152 bytes"},
		{"nested", "PUT", "/api/vhosts/v", strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40), 400, "JSON nests deeper than 32 levels"},
		{"brackets in strings do not nest", "PUT", "/api/vhosts/v", `{"description":"` + strings.Repeat(`[\"`, 40) + `"}`, 201, ""},
		{"too many columns", "GET", "/api/queues?columns=" + strings.Repeat("a,", 200), "", 400, "columns: 201 of them: at most 200 are allowed"},
		{"a long expression", "GET", "/api/queues?page=1&use_regex=true&name=" + strings.Repeat("a", 1025), "", 400, "name has 1025 bytes: at most 1024 are allowed"},
		{"a long name", "PUT", "/api/queues/%2F/" + strings.Repeat("q", 256), "{}", 400, "name has 256 bytes: at most 255 are allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := r.serve(r.request(guest, tt.method, tt.path, tt.body))
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, tt.status, tt.want)
			}
		})
	}
}

// A client that guesses passwords has to wait, and learns how long.
func TestGuessing(t *testing.T) {
	r := newRig(t, func(o *Options) {
		now := o.Clock()
		o.Clock = func() hook.Instant { return now } // however long it takes
	})
	hash, err := auth.ParseHash(base64.StdEncoding.EncodeToString(append([]byte{0, 0, 1000 >> 8, 1000 & 0xff}, make([]byte, 48)...)), string(auth.PBKDF2))
	must(t, err) // a hash that takes no time to check, of an unknown password
	_, err = r.api.users().Set(auth.Account{Name: "u", Tags: []string{tagManagement}, Password: hash})
	must(t, err)
	var w *httptest.ResponseRecorder
	for range 20 {
		if w = r.serve(r.request("u:wrong", "GET", "/api/whoami", "")); w.Code != 401 {
			break
		}
	}
	if w.Code != 429 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "too_many_requests") {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := r.serve(r.request(guest, "GET", "/api/whoami", "")); w.Code != 200 {
		t.Errorf("somebody else: got %d %s", w.Code, w.Body)
	}
}

// A client that leaves before the answer, or has waited for too long, has not guessed wrong: the answer says that it may try again.
func TestLoginThatWaitsNoLonger(t *testing.T) {
	r := newRig(t)
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	for range 30 { // more than may fail
		w := r.serve(r.request("guest:wrong", "GET", "/api/whoami", "").WithContext(ctx))
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "too_many_logins") {
			t.Fatalf("got %d %v %s", w.Code, w.Header(), w.Body)
		}
	}
	r.do(200, "GET", "/api/whoami", "")
}

func TestOperatorPoliciesFixed(t *testing.T) {
	r := newRig(t, func(o *Options) { o.FixedOperators = true })
	const refused = `{"error":"method_not_allowed","reason":"Broker settings disallow editing of operator policies."}`
	for _, method := range []string{"PUT", "DELETE"} {
		if got := r.do(405, method, "/api/operator-policies/%2F/o", `{"pattern":"a","definition":{"message-ttl":1}}`); got != refused {
			t.Errorf("%s: got %s", method, got)
		}
	}
	r.do(200, "GET", "/api/operator-policies", "")
	r.do(201, "PUT", "/api/policies/%2F/o", `{"pattern":"a","definition":{"message-ttl":1}}`)
	got := r.do(400, "POST", "/api/definitions", `{"parameters":[{"component":"operator_policy","vhost":"/","name":"o","value":{"pattern":"a","definition":{"message-ttl":1}}}]}`)
	if !strings.Contains(got, "disallow editing") {
		t.Errorf("import: got %s", got)
	}
}

// A stranger could fill the disk with lines about refused logins, 64 KiB and more each, as fast as requests go.
func TestRefusedLoginsDoNotFillTheLog(t *testing.T) {
	var b strings.Builder
	r := newRig(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&b, nil)) })
	for i := range 2000 {
		name := strings.Repeat("x", 30_000)
		if i%2 == 0 {
			name = auth.Guest
		}
		q := r.request(name+":wrong", "GET", "/api/whoami", "")
		q.Host = strings.Repeat("h", 30_000)
		q.RemoteAddr = "192.0.2.1:9"
		if w := r.serve(q); w.Code != 401 && w.Code != 429 {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
	}
	if b.Len() > 100_000 {
		t.Errorf("2000 refused logins are %d bytes of log, beginning with %.300s", b.Len(), b.String())
	}
	if !strings.Contains(b.String(), "login refused") {
		t.Error("nothing is said of them")
	}
}

// A stranger must not fill the log: the certificates in a handshake that fails may have names of any length, which the error quotes.
func TestFailedTLSIsLoggedShortly(t *testing.T) {
	var b strings.Builder
	s := Server(http.NotFoundHandler(), slog.New(slog.NewTextHandler(&b, nil)), 0)
	s.ErrorLog.Printf("http: TLS handshake error from %s: %v", "192.0.2.1:9", strings.Repeat("x", 100<<10))
	if got := b.String(); len(got) > 1000 || !strings.Contains(got, `level=WARN msg="http: TLS handshake error from 192.0.2.1:9: xxx`) {
		t.Errorf("logged %d bytes: %.200s", len(got), got)
	}
	b.Reset()
	s.ErrorLog.Print("http: panic serving 192.0.2.1:9: " + strings.Repeat("y", 10<<10))
	if got := b.String(); len(got) < 10<<10 {
		t.Errorf("the trace of a panic is cut: %d bytes", len(got))
	}
}
