package mgmt

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A panic of a handler was a warning of the HTTP server's. It is an error to report, and the server goes on.
func TestAHandlerThatPanics(t *testing.T) {
	var logged bytes.Buffer
	s := httptest.NewUnstartedServer(nil)
	s.Config = Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/fault":
			panic("at night")
		case "/abort":
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusNoContent)
	}), slog.New(slog.NewTextHandler(&logged, nil)), 0)
	s.Start()
	defer s.Close()
	transport, ok := s.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatalf("the client's transport is a %T", s.Client().Transport)
	}
	transport.DisableKeepAlives = true // over a connection that was used before, it would ask once more
	ask := func(path string) (status int) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		must(t, err)
		answer, err := s.Client().Do(r)
		if err != nil {
			return 0
		}
		must(t, answer.Body.Close())
		return answer.StatusCode
	}
	for path, want := range map[string]int{"/fault": 0, "/abort": 0, "/": http.StatusNoContent} {
		if got := ask(path); got != want {
			t.Errorf("%s: got %d, want %d", path, got, want)
		}
	}
	s.Close() // all has been logged
	text := logged.String()
	if strings.Count(text, "level=") != 1 || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, `path=/fault panic="at night"`) || !strings.Contains(text, "contained_test.go") {
		t.Errorf("logged %s", text)
	}
}
