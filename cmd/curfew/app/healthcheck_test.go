package app

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt"
)

func TestHealthcheck(t *testing.T) {
	var alarms []string
	handlers := map[string]http.Handler{"starting": mgmt.Starting()}
	api := mgmt.New(mgmt.Options{Alarms: func() []string { return alarms }, Clock: clock.New()})
	handlers["api"], handlers["metrics"] = api, api.Unguarded()
	servers := map[string]*httptest.Server{}
	for name, handler := range handlers {
		servers[name] = httptest.NewServer(handler)
		defer servers[name].Close()
	}
	address := func(name string) string { return servers[name].Listener.Addr().String() }
	starting, management, metrics := address("starting"), address("api"), address("metrics")
	check := func(want int, text string, args ...string) {
		t.Helper()
		code, stdout, stderr := invoke(append([]string{"healthcheck"}, args...)...)
		if got := stdout + stderr; code != want || got != text+"\n" || (code == exitOK) != (stderr == "") {
			t.Errorf("%v: exit status %d, got %q, want %d, %q", args, code, got, want, text)
		}
	}
	check(1, "curfew healthcheck: not ready: http://"+starting+"/readyz answers 503 Service Unavailable: starting", "--management", starting)
	check(0, "live: http://"+starting+"/healthz", "--management", starting, "--live")
	check(0, "ready: http://"+management+"/readyz", "--management", management)
	check(0, "ready: http://"+metrics+"/readyz", "--url", "http://"+metrics)
	check(0, "ready: http://"+metrics+"/readyz", "--url", "http://"+metrics+"/")
	check(0, "live: http://"+metrics+"/healthz", "--url", "http://"+metrics+"/readyz", "--live")
	t.Setenv("CURFEW_LISTEN__METRICS", metrics)
	check(0, "ready: http://"+metrics+"/readyz", "--management", management)
	alarms = []string{"memory", "shard 2"}
	check(1, "curfew healthcheck: not ready: http://"+metrics+"/readyz answers 503 Service Unavailable: shard 2")
	check(1, "curfew healthcheck: not live: http://"+metrics+"/healthz answers 503 Service Unavailable: shard 2", "--live")
	servers["metrics"].Close()
	if code, _, stderr := invoke("healthcheck", "--live"); code != exitFailure || !strings.Contains(stderr, "connection refused") {
		t.Errorf("after the end: exit status %d, %s", code, stderr)
	}
}

func TestHealthcheckElsewhere(t *testing.T) {
	block := make(chan struct{})
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow/readyz":
			select {
			case <-block:
			case <-r.Context().Done():
			}
		case "/elsewhere/readyz":
			http.Redirect(w, r, "/readyz", http.StatusFound)
		case "/readyz":
		default:
			http.Error(w, "{", http.StatusNotFound)
		}
	}))
	defer other.Close()
	defer close(block)
	_, port, err := net.SplitHostPort(other.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string // a part of the output
	}{
		{"own certificate", []string{"--management", "off"}, 0, "ready: https://127.0.0.1:" + port + "/readyz\n"},
		{"other's certificate", []string{"--url", other.URL}, 1, "certificate signed by unknown authority"},
		{"bad URL", []string{"--url", "localhost:15672"}, 2, `the flag --url takes an address such as http://broker:15672, not "localhost:15672"`},
		{"a login", []string{"--url", "http://u:p@localhost:15672"}, 2, "the flag --url takes no user"},
		{"no time", []string{"--timeout", "0s"}, 2, "the flag --timeout takes a duration above 0s, not 0s"},
		{"port unknown", []string{"--management", "127.0.0.1:0"}, 2, "the port of listen.management is not known: it is 127.0.0.1:0; name the broker with --url"},
		{"bad configuration", []string{"--management", "x"}, 2, "curfew healthcheck: the configuration has an error:\n  listen.management: "},
		{"no file", []string{"--config", "/nonexistent.yaml"}, 2, `"/nonexistent.yaml" cannot be read: no such file or directory`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("CURFEW_LISTEN__MANAGEMENT_TLS", ":"+port)
			t.Setenv("CURFEW_TLS__CERT", "x")
			t.Setenv("CURFEW_TLS__KEY", "x")
			code, stdout, stderr := invoke(append([]string{"healthcheck"}, tt.args...)...)
			if code != tt.code || !strings.Contains(stdout+stderr, tt.want) {
				t.Errorf("exit status %d, got %s%s, want %d, %s", code, stdout, stderr, tt.code, tt.want)
			}
		})
	}
	plain := httptest.NewServer(other.Config.Handler)
	defer plain.Close()
	for path, want := range map[string]string{
		"/slow": "/slow/readyz does not answer in time\n", "/elsewhere": "/elsewhere/readyz answers 302 Found\n", "/x": "/x/readyz answers 404 Not Found\n",
	} {
		code, _, stderr := invoke("healthcheck", "--url", plain.URL+path, "--timeout", "300ms")
		if code != exitFailure || stderr != "curfew healthcheck: not ready: "+plain.URL+want {
			t.Errorf("exit status %d, got %s", code, stderr)
		}
	}
	if code, _, stderr := invoke("healthcheck", "--management", "off"); code != exitUsage || !strings.Contains(stderr, "turn one on, as in listen.metrics: 127.0.0.1:15692") {
		t.Errorf("exit status %d, got %s", code, stderr)
	}
}

func TestOwnHost(t *testing.T) {
	for host, want := range map[string]string{
		"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "127.0.0.2": "127.0.0.2", "broker.example": "broker.example", "192.0.2.1": "192.0.2.1",
	} {
		if got := ownHost(host); got != want {
			t.Errorf("%q: got %s, want %s", host, got, want)
		}
	}
}
