package mgmt

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/store"
)

// The answers of probes and health checks while something is wrong.
func TestProbes(t *testing.T) {
	const service, serving, connections = "/api/health/checks/is-in-service", "/api/health/checks/ready-to-serve-clients", "/api/health/checks/alarms"
	for _, tt := range []struct {
		alarms string
		path   string
		status int
		want   string
	}{
		{"", "/healthz", 200, `{"status":"ok","alarms":[]}`},
		{"", "/readyz", 200, `{"status":"ok","alarms":[]}`},
		{"memory,disk", "/healthz", 200, `{"status":"ok","alarms":["memory","disk"]}`},
		{"memory,disk", "/readyz", 200, `{"status":"ok","alarms":["memory","disk"]}`},
		{"memory,disk", "/health", 503, `{"status":"alarm","alarms":["memory","disk"]}`},
		{"memory", connections, 503, `{"status":"failed","reason":"alarms raised","alarms":[{"node":"curfew@test","resource":"memory","text":"The broker has more memory than its limit: publishers wait until consumers have taken messages."}]}`},
		{"memory", serving, 200, `{"status":"ok"}`},
		{"draining", "/healthz", 200, `{"status":"ok","alarms":[]}`},
		{"draining", "/readyz", 503, `{"status":"failed","reasons":["draining"],"alarms":[]}`},
		{"draining", service, 503, `{"status":"failed","reason":"this rabbit node is not currently available to serve"}`},
		{"draining", serving, 503, `{"status":"failed","reason":"this rabbit node is not currently available to serve"}`},
		{"disk,shard 2,draining", "/healthz", 503, `{"status":"failed","reasons":["shard 2"],"alarms":["disk","shard 2"]}`},
		{"disk,shard 2,draining", "/readyz", 503, `{"status":"failed","reasons":["shard 2","draining"],"alarms":["disk","shard 2"]}`},
		{"shard 0", service, 503, `{"status":"failed","reason":"this rabbit node is not currently available to serve"}`},
	} {
		r := newRig(t)
		if tt.alarms != "" {
			r.alarms = strings.Split(tt.alarms, ",")
		}
		if got := r.do(tt.status, "GET", tt.path, ""); got != tt.want {
			t.Errorf("%s with %q: got %s, want %s", tt.path, tt.alarms, got, tt.want)
		}
	}
}

func TestConnectionLimit(t *testing.T) {
	const full = `{"status":"failed","reason":"node connection limit is reached"`
	for _, tt := range []struct {
		limit, status int
		want, serving string
	}{
		{0, 200, `{"status":"ok","limit":"infinity","connections":1}`, `{"status":"ok"}`},
		{2, 200, `{"status":"ok","limit":2,"connections":1}`, `{"status":"ok"}`},
		{1, 503, full + `,"limit":1,"connections":1}`, full + `,"connections":1}`},
	} {
		r := newRig(t, func(o *Options) { o.ConnectionLimit = tt.limit })
		r.client(t, guest)
		for path, want := range map[string]string{"below-node-connection-limit": tt.want, "ready-to-serve-clients": tt.serving} {
			if got := r.do(tt.status, "GET", "/api/health/checks/"+path, ""); got != want {
				t.Errorf("%s at most %d: got %s, want %s", path, tt.limit, got, want)
			}
		}
	}
	r := newRig(t, func(o *Options) { o.Listeners = func() []Listener { return nil } })
	if got := r.do(503, "GET", "/api/health/checks/ready-to-serve-clients", ""); got != `{"status":"failed","reason":"no active listeners for AMQP/AMQPS"}` {
		t.Errorf("without AMQP: got %s", got)
	}
}

// Before there is an API, probes get an answer.
func TestStarting(t *testing.T) {
	const refused = `{"error":"starting","reason":"the broker is being started: it reads its data directory, or waits for the other nodes of a new cluster"}`
	for _, tt := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/healthz", 200, `{"status":"starting"}`},
		{"GET", "/readyz", 503, `{"status":"starting"}`},
		{"GET", "/health", 503, `{"status":"starting"}`},
		{"POST", "/healthz", 405, ""},
		{"POST", "/", 405, ""},
		{"HEAD", "/page/app.js", 503, refused},
		{"GET", "/api/overview", 503, refused},
		{"PUT", "/api/queues/%2F/q", 503, refused},
		{"GET", "/metrics", 503, refused},
	} {
		w := httptest.NewRecorder()
		Starting().ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
		if got := fmt.Sprint(w.Code, " ", w.Body); got != fmt.Sprint(tt.status, " ", tt.want) {
			t.Errorf("%s %s: got %s, want %d %s", tt.method, tt.path, got, tt.status, tt.want)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", tt.path, w.Header())
		}
	}
}

// People that open the page while the broker starts read so, and get the page when it is there.
func TestStartingPage(t *testing.T) {
	w := httptest.NewRecorder()
	Starting().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 503 || w.Header().Get("Content-Type") != "text/html; charset=utf-8" || w.Header().Get("Retry-After") != "1" ||
		!strings.Contains(w.Body.String(), "Curfew is starting") || !strings.Contains(w.Body.String(), `http-equiv="refresh"`) {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
}

// A disk with space enough raised its alarm, which said that there was none: it was file descriptors that lacked.
func TestAlarmForLackOfFiles(t *testing.T) {
	r := newRig(t)
	r.alarms = []string{"disk"}
	r.api.Store.SetSpace(1, &store.Shortage{Path: "/data", Free: 1000, Needed: 10, Files: true})
	reason := r.do(503, "GET", "/api/health/checks/alarms", "")
	for _, want := range []string{`"text":"No more files can be opened: `, `"path":"/data","free_bytes":1000,"needed_bytes":10,"out_of_files":true`} {
		if !strings.Contains(reason, want) {
			t.Errorf("got %s, want %s", reason, want)
		}
	}
	if live := r.do(200, "GET", "/api/live?view=now", ""); !strings.Contains(live, "No more files can be opened: ") {
		t.Errorf("the live view has %s", live)
	}
	r.api.Store.SetSpace(1, &store.Shortage{Path: "/data", Free: 1, Needed: 10})
	if reason := r.do(503, "GET", "/api/health/checks/alarms", ""); strings.Contains(reason, "iles") {
		t.Errorf("there is no space: got %s", reason)
	}
}
