package mgmt

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestMetricsAreForThisMachineAndWhoMayMonitor(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("metrics")) })
	r := newRig(t, func(o *Options) { o.Metrics = answer })
	r.do(http.StatusCreated, http.MethodPut, "/api/users/clerk", `{"password": "clerk", "tags": "management"}`)
	monitor, _ := r.api.users().Lookup("guest")
	monitor.Tags = []string{tagMonitoring}
	_, err := r.api.users().Set(monitor)
	must(t, err)
	for _, tc := range []struct {
		name, user, from, host, header, value string
		want                                  int
	}{
		{name: "this machine", from: "127.0.0.1:9", host: "localhost:15672", want: 200},
		{name: "this machine by its name", from: "127.0.1.1:9", host: "test:15672", want: 200},
		{name: "a name that might lead anywhere", from: "127.0.1.1:9", host: "broker:15672", want: 401},
		{name: "this machine over IPv6", from: "[::1]:9", host: "[::1]:15672", want: 200},
		{name: "a proxy on this machine", from: "127.0.0.1:9", host: "localhost", header: "X-Forwarded-For", value: "192.0.2.1", want: 401},
		{name: "a proxy that says little", from: "127.0.0.1:9", host: "localhost", header: "X-Forwarded-Host", want: 401},
		{name: "a page whose site claims to be here", from: "127.0.0.1:9", host: "site.example.com", want: 401},
		{name: "another machine", from: "192.0.2.1:9", host: "localhost", want: 401},
		{name: "who may monitor", user: guest, from: "192.0.2.1:9", host: "broker.example.com", want: 200},
		{name: "who may not", user: "clerk:clerk", from: "192.0.2.1:9", host: "broker", want: 401},
		{name: "a wrong password", user: "guest:wrong", from: "192.0.2.1:9", host: "broker", want: 401},
	} {
		for _, path := range []string{"/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_metrics"} {
			q := r.request(tc.user, http.MethodGet, path, "")
			q.RemoteAddr, q.Host = tc.from, tc.host
			if tc.header != "" {
				q.Header.Set(tc.header, tc.value)
			}
			if w := r.serve(q); w.Code != tc.want || (w.Body.String() == "metrics") != (tc.want == 200) {
				t.Errorf("%s, %s: got %d %s, want %d", tc.name, path, w.Code, w.Body, tc.want)
			}
		}
	}
}

func TestMetricsThatAreNotThere(t *testing.T) {
	newRig(t).do(http.StatusNotFound, http.MethodGet, "/metrics", "")
}

func TestUnguarded(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Metrics = http.NotFoundHandler() })
	r.api.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	for path, want := range map[string]int{
		"/metrics": http.StatusTeapot, "/metrics/per-object": http.StatusTeapot, "/metrics/else": 404, "/api/overview": 404, "/": 404,
	} {
		q := r.request(guest, http.MethodGet, path, "")
		q.RemoteAddr = "192.0.2.1:9"
		w := httptest.NewRecorder()
		r.api.Unguarded().ServeHTTP(w, q)
		if w.Code != want || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
}
