package mgmt

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func handler(alarms ...string) http.Handler {
	return Handler(Options{Product: "Curfew", Version: "1.2.3", Alarms: func() []string { return alarms }})
}

func TestReplies(t *testing.T) {
	const notFound = `{"error":"Object Not Found","reason":"Not Found"}`
	for _, tt := range []struct {
		name, method, path string
		alarms             []string
		status             int
		body               string
	}{
		{"healthy", "GET", "/health", nil, 200, `{"status":"ok"}`},
		{"alarms", "GET", "/health", []string{"memory", "draining"}, 503, `{"status":"alarm","alarms":["memory","draining"]}`},
		{"head", "HEAD", "/health", nil, 200, `{"status":"ok"}`},
		{"query is ignored", "GET", "/health?verbose", nil, 200, `{"status":"ok"}`},
		{"version", "GET", "/version", nil, 200, `{"product":"Curfew","version":"1.2.3"}`},
		{"root", "GET", "/", nil, 404, notFound},
		{"another method", "POST", "/health", nil, 404, notFound},
		{"below", "GET", "/health/", nil, 404, notFound},
		{"unclean path", "GET", "//health/../version", nil, 404, notFound},
		{"api of later", "GET", "/api/overview", nil, 404, notFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			handler(tt.alarms...).ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, http.NoBody))
			if w.Code != tt.status || w.Body.String() != tt.body {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, tt.status, tt.body)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type = %q, want application/json", got)
			}
		})
	}
}

// The server has every timeout there is, complaints go to the broker's log.
func TestServerLimits(t *testing.T) {
	var b strings.Builder
	s := Server(handler(), slog.New(slog.NewTextHandler(&b, nil)))
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
