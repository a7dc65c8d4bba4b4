package mgmt

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/sdk/hook"
)

// asPage makes a request one of the page's.
func asPage(q *http.Request) *http.Request {
	q.Header.Set("X-Requested-With", "curfew")
	q.Header.Set("Sec-Fetch-Site", "same-origin")
	if q.Method == "POST" || q.Method == "PUT" {
		q.Header.Set("Content-Type", "application/json")
	}
	return q
}

const guestLogin = `{"user":"guest","password":"guest"}`

// logIn logs in as the page does, and returns the cookie.
func (r *rig) logIn(body string) *http.Cookie {
	r.t.Helper()
	w := r.serve(asPage(r.request("-", "POST", "/api/session", body)))
	if w.Code != 204 || w.Body.Len() > 0 {
		r.t.Fatalf("login: got %d %s", w.Code, w.Body)
	}
	return r.cookieOf(w)
}

func (r *rig) cookieOf(w *httptest.ResponseRecorder) *http.Cookie {
	r.t.Helper()
	all := w.Result().Cookies()
	if len(all) != 1 {
		r.t.Fatalf("got the cookies %v", all)
	}
	return all[0]
}

// with asks with a cookie, as the page does.
func (r *rig) with(cookie *http.Cookie, method, path, body string) *httptest.ResponseRecorder {
	q := asPage(r.request("-", method, path, body))
	q.AddCookie(cookie)
	return r.serve(q)
}

func TestSession(t *testing.T) {
	now := new(atomic.Int64)
	now.Store(int64(24 * time.Hour))
	r := newRig(t, func(o *Options) {
		o.Clock = func() hook.Instant { return hook.Instant(now.Load()) }
		o.TraceURL = "https://tracing.example/{trace_id}"
	})
	cookie := r.logIn(guestLogin)
	if cookie.Name != "curfew-session-15672" || cookie.Path != "/" || cookie.Domain != "" || cookie.MaxAge != 8*3600 || !cookie.HttpOnly ||
		cookie.Secure || cookie.SameSite != http.SameSiteStrictMode || len(cookie.Value) != 43 {
		t.Errorf("got %v", cookie)
	}
	w := r.with(cookie, "GET", "/api/session", "")
	const want = `{"name":"guest","tags":["administrator"],"expires_at":115200000,"node":"curfew@test","cluster_name":"curfew@test",` +
		`"version":"1.2.3","trace_url":"https://tracing.example/{trace_id}"}`
	if w.Code != 200 || w.Body.String() != want {
		t.Errorf("got %d %s, want %s", w.Code, w.Body, want)
	}
	if w := r.with(cookie, "PUT", "/api/queues/%2F/q", "{}"); w.Code != 201 {
		t.Errorf("a declaration: got %d %s", w.Code, w.Body)
	}
	now.Add(int64(8*time.Hour) - 1)
	if w := r.with(cookie, "GET", "/api/whoami", ""); w.Code != 200 {
		t.Errorf("in the last moment: got %d %s", w.Code, w.Body)
	}
	now.Add(1)
	if w := r.with(cookie, "GET", "/api/whoami", ""); w.Code != 401 || !strings.Contains(w.Body.String(), "The session has ended") {
		t.Errorf("after 8 hours: got %d %s", w.Code, w.Body)
	}
}

func TestSessionsOwnBasicLogin(t *testing.T) {
	r := newRig(t)
	r.do(201, "PUT", "/api/users/u", `{"password":"u","tags":"monitoring"}`)
	cookie := r.logIn(guestLogin)
	for _, tt := range []struct {
		user   string
		status int
		name   string
	}{
		{"u:u", 200, "u"}, {"u:wrong", 401, ""}, {"-", 200, auth.Guest},
	} {
		q := asPage(r.request(tt.user, "GET", "/api/session", ""))
		q.AddCookie(cookie)
		w := r.serve(q)
		var who struct {
			Name    string `json:"name"`
			Expires *int64 `json:"expires_at"`
			Trace   any    `json:"trace_url"`
		}
		_ = json.Unmarshal(w.Body.Bytes(), &who) // an empty body is refused below
		if w.Code != tt.status || who.Name != tt.name && tt.status == 200 || tt.status == 200 && (who.Expires == nil) != (tt.user != "-") || who.Trace != nil {
			t.Errorf("as %q with guest's cookie: got %d %s", tt.user, w.Code, w.Body)
		}
	}
}

func TestLogOut(t *testing.T) {
	r := newRig(t)
	cookie, other := r.logIn(guestLogin), r.logIn(guestLogin)
	if w := r.with(cookie, "DELETE", "/api/session", ""); w.Code != 204 || r.cookieOf(w).MaxAge >= 0 || r.cookieOf(w).Value != "" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	if w := r.with(cookie, "GET", "/api/session", ""); w.Code != 401 {
		t.Errorf("after the logout: got %d %s", w.Code, w.Body)
	}
	if w := r.with(cookie, "DELETE", "/api/session", ""); w.Code != 204 {
		t.Errorf("again: got %d %s", w.Code, w.Body)
	}
	if w := r.with(other, "GET", "/api/session", ""); w.Code != 200 {
		t.Errorf("another browser: got %d %s", w.Code, w.Body)
	}
	if w := r.with(&http.Cookie{Name: "a", Value: "b"}, "DELETE", "/api/session", ""); w.Code != 204 {
		t.Errorf("without a session: got %d %s", w.Code, w.Body)
	}
}

// A browser that somebody has given a cookie of their own gets a new session, and the one that they know is over.
func TestSessionFixation(t *testing.T) {
	r := newRig(t)
	planted := r.logIn(guestLogin)
	w := r.with(planted, "POST", "/api/session", guestLogin)
	if w.Code != 204 || r.cookieOf(w).Value == planted.Value {
		t.Fatalf("got %d %v", w.Code, w.Header())
	}
	if w := r.with(planted, "GET", "/api/session", ""); w.Code != 401 {
		t.Errorf("the old session: got %d", w.Code)
	}
	made := &http.Cookie{Name: planted.Name, Value: strings.Repeat("A", 43)}
	if w := r.with(made, "POST", "/api/session", guestLogin); w.Code != 204 || r.cookieOf(w).Value == made.Value {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
}

// The rights of a session are the user's present rights.
func TestSessionsEndWithTheirUser(t *testing.T) {
	r := newRig(t)
	login := func() *http.Cookie {
		r.do(201, "PUT", "/api/users/u", `{"password":"u","tags":"administrator"}`)
		return r.logIn(`{"user":"u","password":"u"}`)
	}
	for _, tt := range []struct {
		name, method, path, body string
		want                     string // of GET /api/users with the cookie
		status                   int
	}{
		{"tags", "PUT", "/api/users/u", `{"password_hash":"HASH","hashing_algorithm":"rabbit_password_hashing_sha512","tags":"monitoring"}`, "Not administrator user", 401},
		{"no tags", "PUT", "/api/users/u", `{"password_hash":"HASH","hashing_algorithm":"rabbit_password_hashing_sha512","tags":""}`, "Not management user", 401},
		{"password", "PUT", "/api/users/u", `{"password":"v","tags":"administrator"}`, "The session has ended", 401},
		{"hash", "PUT", "/api/users/u", `{"password_hash":"","tags":"administrator"}`, "The session has ended", 401},
		{"end", "DELETE", "/api/users/u", "", "The session has ended", 401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cookie := login()
			account, _ := r.api.users().Lookup("u")
			hash, _ := account.Password.Encode()
			if w := r.with(cookie, "GET", "/api/users", ""); w.Code != 200 {
				t.Fatalf("before: got %d %s", w.Code, w.Body)
			}
			r.do(204, tt.method, tt.path, strings.ReplaceAll(tt.body, "HASH", hash))
			if w := r.with(cookie, "GET", "/api/users", ""); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("got %d %s, want %s", w.Code, w.Body, tt.want)
			}
			if tt.name != "end" {
				r.do(204, "DELETE", "/api/users/u", "")
			}
		})
	}
}

func TestRefusedLogins(t *testing.T) {
	r := newRig(t, unhurried)
	r.do(201, "PUT", "/api/users/none", `{"password":"p","tags":""}`)
	for _, tt := range []struct {
		name, body string
		status     int
		reason     string
	}{
		{"wrong password", `{"user":"guest","password":"x"}`, 401, "Login failed"},
		{"nobody", `{"user":"nobody","password":"x"}`, 401, "Login failed"},
		{"blank", `{"user":"guest","password":""}`, 401, "Login failed"},
		{"no name", `{"user":"","password":"guest"}`, 401, "Login failed"},
		{"no tag", `{"user":"none","password":"p"}`, 401, "Not management user"},
		{"nothing", ``, 400, "{key_missing,user},{key_missing,password}"},
		{"no password", `{"user":"guest"}`, 400, "{key_missing,password}"},
		{"a number", `{"user":"guest","password":5}`, 400, "not_string"},
		{"a list", `[]`, 400, ""},
		{"no JSON", `user=guest&password=guest`, 400, ""},
		{"another member", `{"user":"guest","password":"guest","remember":true}`, 400, `unknown member \"remember\"; accepted are user, password`},
		{"large", `{"user":"guest","password":"` + strings.Repeat("x", 1<<15) + `"}`, 413, "16384 bytes"},
		{"deep", `{"user":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, 400, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := r.serve(asPage(r.request("-", "POST", "/api/session", tt.body)))
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.reason) {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, tt.status, tt.reason)
			}
			if len(w.Result().Cookies()) > 0 || w.Header().Get("WWW-Authenticate") != "" {
				t.Errorf("got %v", w.Header())
			}
		})
	}
	if n := r.api.users().Sessions(); n != 0 {
		t.Errorf("there are %d sessions", n)
	}
}

// A client that guesses passwords on the page has to wait as anywhere else, and learns how long.
func TestGuessingOnThePage(t *testing.T) {
	r := newRig(t, func(o *Options) {
		now := o.Clock()
		o.Clock = func() hook.Instant { return now }
	})
	cookie := r.logIn(guestLogin)
	var w *httptest.ResponseRecorder
	for range 12 {
		if w = r.serve(asPage(r.request("-", "POST", "/api/session", `{"user":"u","password":"x"}`))); w.Code != 401 {
			break
		}
	}
	if w.Code != 429 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "Too many failed logins") {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := r.with(cookie, "GET", "/api/whoami", ""); w.Code != 200 {
		t.Errorf("who is logged in: got %d %s", w.Code, w.Body)
	}
}

// A session of guest is for this machine, as the login is: also when its cookie is sent from elsewhere.
func TestGuestsSession(t *testing.T) {
	for _, only := range []bool{true, false} {
		r := newRig(t, unhurried, func(o *Options) { o.GuestLoopbackOnly = only })
		r.do(201, "PUT", "/api/users/admin", `{"password":"admin","tags":"administrator"}`)
		id, admins := r.logIn(guestLogin).Value, r.logIn(`{"user":"admin","password":"admin"}`).Value
		for i := range whences {
			w := &whences[i]
			t.Run(w.name, func(t *testing.T) {
				for _, ask := range []struct {
					token, method, path, body string
					may                       bool
				}{
					{id, "GET", "/api/whoami", "", w.here || !only},
					{id, "PUT", "/api/vhosts/v", "{}", w.here || !only},
					{admins, "GET", "/api/whoami", "", true},
					{"", "POST", "/api/session", guestLogin, w.here || !only},
				} {
					q := r.request("-", ask.method, ask.path, ask.body)
					q.Header.Set("Content-Type", "application/json")
					q.Header.Set("X-Requested-With", "curfew")
					w.put(q)
					if ask.token != "" {
						q.AddCookie(&http.Cookie{Name: cookieName(q), Value: ask.token})
					}
					got := r.serve(q)
					switch {
					case w.forbidden && got.Code != 403, !w.forbidden && (got.Code < 300) != ask.may,
						!w.forbidden && !ask.may && !strings.Contains(got.Body.String(), "User can only log in via localhost"):
						t.Errorf("%s %s, guest from here only %v: got %d %s", ask.method, ask.path, only, got.Code, got.Body)
					}
				}
			})
		}
	}
}

// No page of another site changes anything with the cookie, nor logs a browser in as somebody else.
func TestCrossSiteRequestsWithACookie(t *testing.T) {
	r := newRig(t)
	cookie := r.logIn(guestLogin)
	for _, tt := range []struct {
		name   string
		header http.Header
		change int // status of a change by the cookie
		login  int
	}{
		{"the page", http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {"http://localhost:15672"}}, 204, 204},
		{"the page, without Sec-Fetch", http.Header{"Origin": {"http://localhost:15672"}}, 204, 204},
		{"a script that says so", http.Header{"X-Requested-With": {"x"}}, 204, 204},
		{"another site", http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403, 403},
		{"another port", http.Header{"Sec-Fetch-Site": {"same-site"}}, 403, 403},
		{"another site, without Sec-Fetch", http.Header{"Origin": {"https://evil.example"}}, 403, 403},
		{"another port, without Sec-Fetch", http.Header{"Origin": {"http://localhost:8080"}}, 403, 403},
		{"a page without origin", http.Header{"Origin": {"null"}}, 403, 403},
		{"another site that says it is a script", http.Header{"Origin": {"https://evil.example"}, "X-Requested-With": {"x"}}, 403, 403},
		{"a form of an old browser", http.Header{"Content-Type": {"text/plain"}, "Referer": {"https://evil.example/"}}, 403, 403},
		{"nothing", nil, 403, 403},
		{"JSON", http.Header{"Content-Type": {"application/json"}}, 403, 204},
		{"JSON from another site", http.Header{"Content-Type": {"application/json"}, "Origin": {"https://evil.example"}}, 403, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, ask := range []struct {
				method, path, body string
				want               int
			}{
				{"POST", "/api/exchanges/%2F/amq.default/publish", `{"properties":{},"routing_key":"none","payload":"","payload_encoding":"string"}`, map[int]int{204: 200, 403: 403}[tt.change]},
				{"DELETE", "/api/users/nobody", "", map[int]int{204: 404, 403: 403}[tt.change]},
				{"POST", "/api/session", guestLogin, tt.login},
			} {
				q := r.request("-", ask.method, ask.path, ask.body)
				maps.Copy(q.Header, tt.header)
				if ask.path != "/api/session" {
					q.AddCookie(cookie)
				}
				if w := r.serve(q); w.Code != ask.want {
					t.Errorf("%s %s: got %d %s, want %d", ask.method, ask.path, w.Code, w.Body, ask.want)
				}
			}
			q := r.request("-", "DELETE", "/api/session", "")
			q.Header = tt.header.Clone()
			if q.Header == nil {
				q.Header = http.Header{}
			}
			spare := r.logIn(guestLogin)
			q.AddCookie(spare)
			if w := r.serve(q); w.Code != tt.change {
				t.Errorf("logout: got %d %s, want %d", w.Code, w.Body, tt.change)
			}
			if w := r.with(spare, "GET", "/api/whoami", ""); (w.Code == 200) != (tt.change == 403) {
				t.Errorf("after the logout: got %d", w.Code)
			}
		})
	}
	for _, site := range []string{"cross-site", "same-site"} {
		q := r.request("-", "GET", "/api/definitions", "")
		q.AddCookie(cookie)
		q.Header.Set("Sec-Fetch-Site", site)
		if w := r.serve(q); w.Code != 403 {
			t.Errorf("reading, %s: got %d", site, w.Code)
		}
	}
}

// Tools with a name and a password send neither Origin nor anything else.
func TestToolsNeedNoProof(t *testing.T) {
	r := newRig(t)
	q := r.request(guest, "PUT", "/api/queues/%2F/q", "{}")
	q.AddCookie(r.logIn(guestLogin))
	if w := r.serve(q); w.Code != 201 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestHostileCookies(t *testing.T) {
	r := newRig(t)
	cookie := r.logIn(guestLogin)
	wrong := cookie.Name + "=" + strings.Repeat("A", 43)
	for _, tt := range []struct {
		name, header string
		status       int
	}{
		{"right", cookie.Name + "=" + cookie.Value, 200},
		{"among others", "a=b; theme=dark; " + cookie.Name + "=" + cookie.Value + "; z", 200},
		{"behind wrong ones", strings.Repeat(wrong+"; ", maxCookies-1) + cookie.Name + "=" + cookie.Value, 200},
		{"behind very many", strings.Repeat(wrong+"; ", 800) + cookie.Name + "=" + cookie.Value, 401},
		{"huge", cookie.Name + "=" + strings.Repeat("A", 60_000), 401},
		{"behind a huge one", cookie.Name + "=" + strings.Repeat("A", 50_000) + "; " + cookie.Name + "=" + cookie.Value, 200},
		{"wrong", wrong, 401},
		{"empty", cookie.Name + "=", 401},
		{"no value", cookie.Name, 401},
		{"quoted", cookie.Name + `="` + cookie.Value + `"`, 200},
		{"of another port", "curfew-session-5672=" + cookie.Value, 401},
		{"without a port", "curfew-session=" + cookie.Value, 401},
		{"in other letters", "Curfew-Session-15672=" + cookie.Value, 401},
		{"the user's name", cookie.Name + "=guest", 401},
		{"control characters", cookie.Name + "=\x00\xff" + cookie.Value[2:], 401},
		{"with a prefix", hostPrefix + cookie.Name + "=" + cookie.Value, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := r.request("-", "GET", "/api/whoami", "")
			q.Header.Set("Cookie", tt.header)
			if w := r.serve(q); w.Code != tt.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
		})
	}
}

// Over TLS the cookie is for TLS alone, also where a proxy speaks it.
func TestCookieOverTLS(t *testing.T) {
	r := newRig(t)
	for name, change := range map[string]func(*http.Request){
		"here":           func(q *http.Request) { q.TLS = &tls.ConnectionState{} },
		"at a proxy":     func(q *http.Request) { q.Header.Set("Origin", "https://localhost:15672") },
		"without a port": func(q *http.Request) { q.TLS, q.Host = &tls.ConnectionState{}, "localhost" },
	} {
		t.Run(name, func(t *testing.T) {
			q := asPage(r.request("-", "POST", "/api/session", guestLogin))
			change(q)
			cookie := r.cookieOf(r.serve(q))
			want := "__Host-curfew-session-15672"
			if q.Host == "localhost" {
				want = "__Host-curfew-session"
			}
			if !cookie.Secure || cookie.Name != want || cookie.Path != "/" || cookie.Domain != "" {
				t.Errorf("got %v", cookie)
			}
			get := asPage(r.request("-", "GET", "/api/session", ""))
			get.Host = q.Host
			get.AddCookie(cookie)
			if w := r.serve(get); w.Code != 200 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			out := asPage(r.request("-", "DELETE", "/api/session", ""))
			change(out)
			out.AddCookie(cookie)
			if gone := r.cookieOf(r.serve(out)); gone.Name != want || !gone.Secure || gone.MaxAge >= 0 {
				t.Errorf("got %v", gone)
			}
		})
	}
}

// If the answer offered HTTP Basic authentication, the browser would ask for a password in a window of its own, over the page.
func TestNoPopUp(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		name   string
		header http.Header
		pops   bool
	}{
		{"a tool", nil, true},
		{"an address that somebody types", http.Header{"Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Site": {"none"}}, true},
		{"the page", http.Header{"X-Requested-With": {"curfew"}}, false},
		{"a stream of the page", http.Header{"Accept": {"text/event-stream"}}, false},
		{"an image", http.Header{"Sec-Fetch-Mode": {"no-cors"}, "Sec-Fetch-Site": {"same-origin"}}, false},
		{"with an old cookie", http.Header{"Cookie": {"curfew-session-15672=" + strings.Repeat("A", 43)}}, false},
		{"with an old cookie of a site with TLS", http.Header{"Cookie": {"__Host-curfew-session-15672=" + strings.Repeat("A", 43)}}, false},
		{"with a broken cookie", http.Header{"Cookie": {"curfew-session-15672=x"}}, false},
	} {
		for _, user := range []string{"-", "guest:wrong"} {
			q := r.request(user, "GET", "/api/whoami", "")
			maps.Copy(q.Header, tt.header)
			w := r.serve(q)
			if w.Code != 401 || (w.Header().Get("WWW-Authenticate") != "") != tt.pops {
				t.Errorf("%s as %s: got %d %v", tt.name, user, w.Code, w.Header())
			}
		}
	}
}

// A stream that began with a session ends with it.
func TestStreamsEndWithTheirSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := bubble(t, told(1))
		answers := bufio.NewReader(client)
		_, err := client.Write([]byte("POST /api/session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(guestLogin)) + "\r\n\r\n" + guestLogin))
		must(t, err)
		login, err := http.ReadResponse(answers, nil)
		must(t, err)
		must(t, login.Body.Close())
		if len(login.Cookies()) != 1 {
			t.Fatalf("login: got %d %v", login.StatusCode, login.Header)
		}
		began := time.Now()
		_, err = client.Write([]byte("GET /api/events HTTP/1.1\r\nHost: x\r\nCookie: " + login.Cookies()[0].String() + "\r\n\r\n"))
		must(t, err)
		stream, err := http.ReadResponse(answers, nil)
		must(t, err)
		if stream.StatusCode != 200 {
			t.Fatalf("got %d", stream.StatusCode)
		}
		_, err = io.Copy(io.Discard, stream.Body)
		must(t, err)
		must(t, stream.Body.Close())
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute {
			t.Errorf("the stream of a session of a minute took %v", took)
		}
	})
}

// A stream of a login with a password went on after the user got another one, or was replaced by another user of the name.
func TestStreamsEndWithTheirPassword(t *testing.T) {
	account := func(r *rig, password string) {
		r.do(204, "PUT", "/api/users/guest", `{"password":"`+password+`","tags":"administrator"}`)
	}
	for name, change := range map[string]func(r *rig){
		"another password": func(r *rig) { account(r, "other") },
		"another user": func(r *rig) {
			r.do(201, "PUT", "/api/users/second", `{"password":"second","tags":"administrator"}`)
			if w := r.serve(r.request("second:second", "DELETE", "/api/users/guest", "")); w.Code != 204 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			if w := r.serve(r.request("second:second", "PUT", "/api/users/guest", `{"password":"guest","tags":"administrator"}`)); w.Code != 201 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		},
	} {
		for _, path := range []string{"/api/events?format=ndjson", "/api/live?view=queues"} {
			t.Run(name+path, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client, server := bubbleOf(t, told(1))
					_, err := client.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nAccept: text/event-stream\r\n\r\n"))
					must(t, err)
					stream, err := http.ReadResponse(bufio.NewReader(client), nil)
					must(t, err)
					synctest.Wait()
					change(&rig{t: t, api: server.Handler.(contained).Handler.(*API)})
					ended := make(chan error, 1)
					go func() {
						_, err := io.Copy(io.Discard, stream.Body)
						ended <- err
					}()
					select {
					case err := <-ended:
						must(t, err)
					case <-time.After(time.Minute):
						t.Error("it goes on")
						must(t, client.Close())
						<-ended
					}
				})
			})
		}
	}
}
