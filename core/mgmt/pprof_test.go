package mgmt

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestProfiles(t *testing.T) {
	off := newRig(t)
	if w := off.serve(off.request(guest, "GET", "/debug/pprof/", "")); w.Code != http.StatusNotFound {
		t.Errorf("off: got %d", w.Code)
	}
	r := newRig(t, unhurried, func(o *Options) { o.Profiles, o.GuestLoopbackOnly = true, true })
	r.do(201, "PUT", "/api/users/watcher", `{"password":"w","tags":"monitoring"}`)
	for _, tt := range []struct {
		name, user, method, path string
		change                   func(*http.Request)
		status                   int
		want                     string // the body begins so
	}{
		{name: "list", path: "", status: 200, want: "profile?seconds=30\ntrace?seconds=1\nallocs "},
		{name: "heap", path: "heap?gc=1", status: 200, want: "\x1f\x8b"},
		{name: "text", path: "goroutine?debug=1", status: 200, want: "goroutine profile: total "},
		{name: "nobody", user: "-", path: "heap", status: 401},
		{name: "wrong password", user: "guest:x", path: "heap", status: 401},
		{name: "no administrator", user: "watcher:w", path: "heap", status: 401, want: `{"error":"not_authorised","reason":"Not administrator user"}`},
		{name: "guest from elsewhere", path: "heap", change: func(q *http.Request) { q.RemoteAddr = "192.0.2.1:9" }, status: 401, want: `{"error":"not_authorised","reason":"User can only log in via localhost"}`},
		{name: "a page of another site", path: "heap", change: func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "cross-site") }, status: 403},
		{
			name: "a link on another site", path: "heap", status: 403,
			change: func(q *http.Request) {
				q.Header.Set("Sec-Fetch-Site", "cross-site")
				q.Header.Set("Sec-Fetch-Mode", "navigate")
				q.Header.Set("Sec-Fetch-Dest", "document")
			},
		},
		{name: "unknown", path: "cmdline", status: 404},
		{name: "POST", method: "POST", path: "heap", status: 405},
		{name: "too long", path: "profile?seconds=61", status: 400, want: `{"error":"bad_request","reason":"seconds: \"61\" is not a whole number from 1 to 60"}`},
		{name: "for no time", path: "trace?seconds=0", status: 400, want: `{"error":"bad_request","reason":"seconds: \"0\" is not a whole number from 1 to 10"}`},
		{name: "bad number", path: "heap?debug=x", status: 400, want: `{"error":"bad_request","reason":"debug: \"x\" is not a whole number from 0 to 2"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			user, method := guest, "GET"
			if tt.user != "" {
				user = tt.user
			}
			if tt.method != "" {
				method = tt.method
			}
			q := r.request(user, method, "/debug/pprof/"+tt.path, "")
			if tt.change != nil {
				tt.change(q)
			}
			if w := r.serve(q); w.Code != tt.status || !strings.HasPrefix(w.Body.String(), tt.want) {
				t.Errorf("got %d %.200q, want %d %q", w.Code, w.Body, tt.status, tt.want)
			}
		})
	}
	w := httptest.NewRecorder()
	r.api.Unguarded().ServeHTTP(w, r.request(guest, "GET", "/debug/pprof/", ""))
	if w.Code != http.StatusNotFound {
		t.Errorf("on listen.metrics: got %d", w.Code)
	}
}

// The session of a browser is not enough: pages of this site that do something else could be made to use it.
func TestProfilesBySession(t *testing.T) {
	r := newRig(t, unhurried, func(o *Options) { o.Profiles = true })
	q := r.request("-", "POST", "/api/session", `{"user":"guest","password":"guest"}`)
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("X-Requested-With", "test")
	login := r.serve(q)
	cookies := login.Result().Cookies()
	if len(cookies) == 0 {
		t.Fatalf("no session: %d %s", login.Code, login.Body)
	}
	for path, status := range map[string]int{"/api/whoami": 200, "/debug/pprof/heap": 401} {
		q := r.request("-", "GET", path, "")
		q.AddCookie(cookies[0])
		if w := r.serve(q); w.Code != status {
			t.Errorf("%s: got %d, want %d", path, w.Code, status)
		}
	}
}

// profiler is a kind of profile of which one is made at a time.
type profiler struct{ busy bool }

func (p *profiler) start(w io.Writer) (stop func(), err error) {
	if p.busy {
		return nil, errors.New("already in use")
	}
	p.busy = true
	return func() {
		p.busy = false
		_, _ = io.WriteString(w, "profile")
	}, nil
}

// A profile lasts as long as asked, one at a time, and not longer than its client.
func TestProfileTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &profiler{}
		ask := func(ctx context.Context, query string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			c := &request{caller: caller{api: &API{}, w: w, r: httptest.NewRequestWithContext(ctx, "GET", "/debug/pprof/profile"+query, http.NoBody)}}
			if err := recordProfile(c, profileSeconds, maxProfileSeconds, p.start); err != nil {
				c.refuse(err)
			}
			return w
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan *httptest.ResponseRecorder)
		go func() { first <- ask(ctx, "") }()
		synctest.Wait()
		if w := ask(t.Context(), "?seconds=7"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "7" {
			t.Errorf("a second one: got %d %v %s", w.Code, w.Header(), w.Body)
		}
		cancel()
		if w := <-first; w.Body.Len() > 0 || p.busy {
			t.Errorf("the client has gone, and got %d bytes; busy: %t", w.Body.Len(), p.busy)
		}
		for query, want := range map[string]time.Duration{"": 30 * time.Second, "?seconds=2": 2 * time.Second, "?seconds=60": time.Minute} {
			began := time.Now()
			if w := ask(t.Context(), query); w.Code != 200 || w.Body.String() != "profile" || time.Since(began) != want {
				t.Errorf("%s: got %d %q after %s", query, w.Code, w.Body, time.Since(began))
			}
		}
	})
}

// The processor's profile ends with its client, and another one can be made.
func TestProcessorProfile(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range []string{"profile", "trace", "profile"} {
		w := httptest.NewRecorder()
		c := &request{caller: caller{api: &API{}, w: w, r: httptest.NewRequestWithContext(gone, "GET", "/debug/pprof/"+name, http.NoBody)}}
		if err := sendSample(c, name); err != nil || w.Body.Len() > 0 {
			t.Errorf("%s: got %v, %d bytes", name, err, w.Body.Len())
		}
	}
}
