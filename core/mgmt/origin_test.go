package mgmt

import (
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/wire/proxy"
	"github.com/curfewmq/curfew/sdk/hook"
)

// whence is where a request seems to come from.
type whence struct {
	name         string
	remote, host string // "" = from this machine, for localhost
	header       http.Header
	old          bool // HTTP/1.0
	here         bool // it is taken for one from this machine
	forbidden    bool // to be made at all
}

// The API took every request from a loopback address for one from this machine, and let the default administrator in: a page
// that had its name point here could make itself an administrator, and a reverse proxy published guest to the world.
var whences = []whence{
	{name: "this machine", here: true},
	{name: "by its address", host: "127.0.0.1:15672", here: true},
	{name: "by another loopback address", remote: "127.0.0.1:9", host: "127.0.1.1", here: true},
	{name: "over IPv6", remote: "[::1]:9", host: "[::1]:15672", here: true},
	{name: "over IPv6, without a port", remote: "[::1]:9", host: "[::1]", here: true},
	{name: "IPv4 in IPv6", remote: "[::ffff:127.0.0.1]:9", host: "[::ffff:127.0.0.1]:15672", here: true},
	{name: "in capitals, with the root", host: "LocalHost.:15672", here: true},
	{name: "through a tunnel", host: "localhost:8080", here: true},
	{name: "below localhost", host: "broker.localhost", here: true},
	{name: "by the machine's name", host: "Test:15672", here: true},
	{name: "typed into a browser", header: http.Header{"Sec-Fetch-Site": {"none"}}, here: true},
	{name: "a page of ours", header: http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {"http://localhost:15672"}}, here: true},

	{name: "another machine", remote: "192.0.2.1:9"},
	{name: "another machine in IPv6", remote: "[2001:db8::1]:9"},
	{name: "another machine, IPv4 in IPv6", remote: "[::ffff:192.0.2.1]:9"},
	{name: "who knows", remote: "pipe"},
	{name: "nobody", remote: "@"},

	{name: "a page whose name leads here", host: "evil.example.com:15672"},
	{
		name: "such a page, as browsers send it", host: "evil.example.com",
		header: http.Header{"Origin": {"http://evil.example.com"}, "Sec-Fetch-Site": {"same-origin"}},
	},
	{name: "a name with localhost in it", host: "localhost.example.com"},
	{name: "a name that ends in it", host: "notlocalhost"},
	{name: "a name on the local network", host: "printer"},
	{name: "no host", host: " "},
	{name: "the address of another machine", host: "192.0.2.7:15672"},
	{name: "no address", host: "0.0.0.0:15672"},

	{name: "a proxy", header: http.Header{"X-Forwarded-For": {"192.0.2.1"}}},
	{name: "a proxy for somebody here", header: http.Header{"X-Forwarded-For": {"127.0.0.1"}}},
	{name: "a proxy that says nothing", header: http.Header{"X-Forwarded-For": {""}}},
	{name: "a proxy by the standard", header: http.Header{"Forwarded": {"for=127.0.0.1"}}},
	{name: "a proxy that says its name", header: http.Header{"Via": {"1.1 proxy"}}},
	{name: "another proxy", header: http.Header{"X-Real-Ip": {"127.0.0.1"}}},
	{name: "a proxy that changes the host", header: http.Header{"X-Forwarded-Host": {"localhost"}}},
	{name: "a proxy that says whence by Origin alone", header: http.Header{"Origin": {"https://broker.example.com"}, "Sec-Fetch-Site": {"same-origin"}}},
	{name: "a page from nowhere", header: http.Header{"Origin": {"null"}, "Sec-Fetch-Site": {"same-origin"}}},
	{name: "a proxy that says nothing in HTTP/1.0", old: true},

	{name: "a page of another site", header: http.Header{"Sec-Fetch-Site": {"cross-site"}}, forbidden: true},
	{name: "a page on another port", header: http.Header{"Sec-Fetch-Site": {"same-site"}}, forbidden: true},
	{name: "a frame on another site's page", header: http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"iframe"}}, forbidden: true},
}

// put makes a request one from there.
func (w *whence) put(q *http.Request) {
	if w.remote != "" {
		q.RemoteAddr = w.remote
	}
	if w.host != "" {
		q.Host = strings.TrimSpace(w.host)
	}
	maps.Copy(q.Header, w.header)
	if w.old {
		q.Proto, q.ProtoMinor = "HTTP/1.0", 0
	}
}

// unhurried has a second pass with each look at the clock, so that no login has to wait because of failed ones.
func unhurried(o *Options) {
	var looks atomic.Int64
	began := o.Clock()
	o.Clock = func() hook.Instant { return began.Add(time.Duration(looks.Add(1)) * time.Second) }
}

// Metrics without a login and logins of the default administrator follow one rule.
func TestGuestIsFromThisMachine(t *testing.T) {
	answer := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, only := range []bool{true, false} {
		r := newRig(t, unhurried, func(o *Options) { o.GuestLoopbackOnly, o.Metrics = only, answer })
		r.do(201, "PUT", "/api/users/admin", `{"password":"admin","tags":"administrator"}`)
		for _, w := range whences {
			t.Run(w.name, func(t *testing.T) {
				for _, ask := range []struct {
					user, method, path string
					here, there        int
				}{
					{guest, "PUT", "/api/users/evil", 204, 401},
					{guest, "GET", "/api/whoami", 200, 401},
					{"admin:admin", "PUT", "/api/users/evil", 204, 204},
					{"-", "GET", "/metrics", 200, 401},
				} {
					want := ask.there
					switch {
					case w.forbidden:
						want = 403
					case w.here, ask.user == guest && !only:
						want = ask.here
					}
					must(t, r.setEvil())
					q := r.request(ask.user, ask.method, ask.path, `{"password":"x","tags":"administrator"}`)
					w.put(q)
					got := r.serve(q)
					if got.Code != want {
						t.Errorf("%s %s of %s, guest from here only %v: got %d %s, want %d", ask.method, ask.path, ask.user, only, got.Code, got.Body, want)
					}
					if want == 401 && ask.user == guest && !strings.Contains(got.Body.String(), "User can only log in via localhost") {
						t.Errorf("got %s", got.Body)
					}
				}
			})
		}
	}
}

// setEvil makes the user that a test tries to change.
func (r *rig) setEvil() error {
	_, err := r.api.users().Set(auth.Account{Name: "evil"})
	return err
}

// Requests may be for the names in management.hosts, for addresses, and for this machine's names.
func TestHosts(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hosts = []string{"broker.example.com"} })
	for host, want := range map[string]int{
		"broker.example.com": 200, "Broker.Example.Com.:443": 200, "localhost:15672": 200, "test": 200, "192.0.2.7:15672": 200, "[2001:db8::1]": 200,
		"evil.example.com": 421, "example.com": 421, "xbroker.example.com": 421, "": 421,
	} {
		for _, path := range []string{"/health", "/healthz", "/version"} {
			q := r.request("-", "GET", path, "")
			q.Host, q.RemoteAddr = host, "192.0.2.1:9"
			w := r.serve(q)
			if w.Code != want {
				t.Errorf("%s for %q: got %d %s, want %d", path, host, w.Code, w.Body, want)
			}
			if want == 421 && !strings.Contains(w.Body.String(), "management.hosts") {
				t.Errorf("got %s", w.Body)
			}
		}
		q := r.request("-", "GET", "/healthz", "")
		q.Host = host
		w := httptest.NewRecorder()
		if r.api.Unguarded().ServeHTTP(w, q); w.Code != want {
			t.Errorf("metrics for %q: got %d, want %d", host, w.Code, want)
		}
	}
}

// A link on a page of another site may be followed: somebody looks at the answer.
func TestLinksAreFollowed(t *testing.T) {
	r := newRig(t)
	q := r.request(guest, "GET", "/api/whoami", "")
	q.Header = http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}, "Authorization": q.Header["Authorization"]}
	if w := r.serve(q); w.Code != 200 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// However often guest tries from elsewhere, the answer is that it has to be here, not to come again later.
func TestGuestFromElsewhereOften(t *testing.T) {
	r := newRig(t, func(o *Options) { o.GuestLoopbackOnly = true })
	for i := range 30 {
		q := r.request(guest, "GET", "/api/whoami", "")
		q.Host = "evil.example.com"
		if w := r.serve(q); w.Code != 401 || !strings.Contains(w.Body.String(), "User can only log in via localhost") {
			t.Fatalf("time %d: got %d %s", i, w.Code, w.Body)
		}
	}
	r.do(200, "GET", "/api/whoami", "")
}

// Failed logins through a proxy on this machine do not use up the attempts of local clients.
func TestProxiesHaveAttemptsOfTheirOwn(t *testing.T) {
	r := newRig(t)
	for range 20 {
		q := r.request("guest:wrong", "GET", "/api/whoami", "")
		q.Header.Set("X-Forwarded-For", "192.0.2.1")
		r.serve(q)
	}
	r.do(200, "GET", "/api/whoami", "")
}

// A proxy that speaks the PROXY protocol hides where requests come from, also if it connects from here and announces this machine.
func TestForwardedRequests(t *testing.T) {
	r := newRig(t, func(o *Options) { o.GuestLoopbackOnly = true })
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	q := r.request(guest, "GET", "/api/whoami", "")
	if w := r.serve(q.WithContext(noteForwarded(q.Context(), far))); w.Code != http.StatusOK {
		t.Errorf("directly: %d", w.Code)
	}
	for _, conn := range []net.Conn{&proxy.Conn{}, tls.Server(&proxy.Conn{}, nil)} {
		w := r.serve(q.WithContext(noteForwarded(q.Context(), conn)))
		if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "User can only log in via localhost") {
			t.Errorf("%T: %d %s", conn, w.Code, w.Body)
		}
	}
}
