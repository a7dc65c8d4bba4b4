package mgmt

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
)

// quiet is a broker for many requests; the login is made once.
func quiet(f *testing.F) *rig {
	f.Helper()
	r := newRig(f)
	r.do(201, "PUT", "/api/queues/%2F/q", `{"durable":true}`)
	return r
}

// For any parameters there is an answer, and it is JSON.
func FuzzQuery(f *testing.F) {
	r := quiet(f)
	for _, s := range []string{
		"page=1&page_size=2&name=a&use_regex=true", "columns=a.b,c,,.&sort=a..b&sort_reverse=true", "page=99999999999999999999",
		"disable_stats=true&enable_queue_totals=true", "page=1&name=(((((&use_regex=true", "columns=.", "sort=.", "page=1&name=\xff", "%zz",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, path := range []string{"/api/queues", "/api/exchanges", "/api/queues/%2F/q", "/api/overview"} {
			w := r.fuzzed(t, "GET", &url.URL{Path: strings.ReplaceAll(path, "%2F", "/"), RawPath: path, RawQuery: query}, nil)
			if w.Code != 200 && w.Code != 400 {
				t.Errorf("%s?%s: got %d %s", path, query, w.Code, w.Body)
			}
		}
	})
}

func (r *rig) fuzzed(t *testing.T, method string, u *url.URL, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	q := httptest.NewRequest(method, "/", bytes.NewReader(body))
	q.URL, q.RemoteAddr = u, "127.0.0.1:9"
	q.SetBasicAuth("guest", "guest")
	w := r.serve(q)
	if b := w.Body.Bytes(); len(b) > 0 && w.Header().Get("Content-Type") != backupType && !json.Valid(b) {
		t.Errorf("%s %s: not JSON: %q", method, u, b)
	}
	if w.Code >= 500 && w.Code != http.StatusServiceUnavailable {
		t.Errorf("%s %s %q: got %d %s", method, u, body, w.Code, w.Body)
	}
	return w
}

// For any request the broker answers, and stays as it was for other users.
func FuzzRequest(f *testing.F) {
	r := quiet(f)
	for _, rt := range r.api.routes() {
		for _, e := range rt.endpoints {
			f.Add(e.method, strings.NewReplacer("{vhost}", "%2F", "{queue}", "q", "{kind}", "q", "{", "", "}", "").Replace(rt.path), []byte(`{}`))
		}
	}
	f.Add("PUT", "queues/%2F/q2", []byte(`{"durable":1,"arguments":{"a":{"b":[1e400]}}}`))
	f.Add("POST", "exchanges/%2F/amq.default/publish", []byte(`{"properties":{"headers":{"x":null},"timestamp":1e3},"routing_key":"q","payload":"","payload_encoding":"string"}`))
	f.Add("POST", "queues/%2F/q/get", []byte(`{"count":1,"ackmode":"ack_requeue_true","encoding":"auto","truncate":-1}`))
	f.Fuzz(func(t *testing.T, method, path string, body []byte) {
		unescaped, err := url.PathUnescape(path)
		if err != nil || strings.HasPrefix(path, "users/guest") || strings.HasPrefix(path, "permissions/") || strings.HasPrefix(path, "users/bulk") ||
			path == "index.html" || !token(method) || len(r.api.Store.VHosts()) > 50 {
			t.Skip()
		}
		if strings.HasPrefix(unescaped, "vhosts") && method == "DELETE" || strings.HasPrefix(unescaped, "users/guest") {
			t.Skip()
		}
		r.fuzzed(t, method, &url.URL{Path: root + unescaped, RawPath: root + path}, body)
	})
}

// token reports whether s could be a method.
func token(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// A refused import has changed nothing, and an export can be imported.
func FuzzImport(f *testing.F) {
	r := quiet(f)
	script, err := os.ReadFile("testdata/definitions.txt")
	must(f, err)
	for l := range strings.Lines(string(script)) {
		if body, ok := strings.CutPrefix(l, "> POST /api/definitions "); ok {
			f.Add([]byte(body))
		}
	}
	before := r.do(200, "GET", "/api/definitions", "")
	f.Fuzz(func(t *testing.T, body []byte) {
		if bytes.Contains(body, []byte(`"password"`)) || bytes.Contains(body, []byte(`guest`)) {
			t.Skip() // slow, or the end of the test's own login
		}
		w := r.fuzzed(t, "POST", &url.URL{Path: "/api/definitions"}, body)
		after := r.exported(t)
		if !accepted(w) && after != before {
			t.Errorf("%s: refused, %s, but it changed\n%s\nto\n%s", body, w.Body, before, after)
		}
		if accepted(w) && after != before {
			if w := r.fuzzed(t, "POST", &url.URL{Path: "/api/definitions"}, []byte(after)); !accepted(w) {
				t.Errorf("%s was exported: %d %s", after, w.Code, w.Body)
			}
		}
		before = r.exported(t)
	})
}

// accepted reports whether an import succeeded: with 200 it has warnings, of a policy whose keys have no effect here, say.
func accepted(w *httptest.ResponseRecorder) bool { return w.Code == 204 || w.Code == 200 }

// exported is everything that is defined, as the broker prints it.
func (r *rig) exported(t *testing.T) string {
	t.Helper()
	w := r.fuzzed(t, "GET", &url.URL{Path: "/api/definitions"}, nil)
	if w.Code != 200 {
		t.Fatalf("export: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}
