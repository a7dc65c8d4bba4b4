package app

import (
	"fmt"
	"testing"
)

// While the data directory is read, which may take long, those who watch over the broker see that it lives and is not ready.
func TestStartingIsSeen(t *testing.T) {
	f := newFake()
	f.recovered = make(chan struct{})
	p := launch(t, f, "listen: {amqp: \"127.0.0.1:0\", management: \"127.0.0.1:0\", metrics: \"127.0.0.1:0\"}\n")
	p.wait("listening")
	p.wait("listening")
	check := func(path, want string) {
		t.Helper()
		for _, key := range []string{"listen.management", "listen.metrics"} {
			if status, body := p.getFrom(key, path); fmt.Sprint(status, " ", body) != want {
				t.Errorf("%s%s: got %d %s, want %s", key, path, status, body, want)
			}
		}
	}
	check("/healthz", `200 {"status":"starting"}`)
	check("/readyz", `503 {"status":"starting"}`)
	if status, _ := p.get("/api/overview"); status != 503 {
		t.Errorf("the API answers %d", status)
	}
	close(f.recovered)
	p.wait("ready")
	check("/healthz", `200 {"status":"ok","alarms":[]}`)
	check("/readyz", `200 {"status":"ok","alarms":[]}`)
	p.stop()
}
