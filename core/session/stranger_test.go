package session

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Each connection with a wrong protocol header used to add a line to the log.
func TestStrangersCostFewLogLines(t *testing.T) {
	var log bytes.Buffer
	s := testServer(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	now := hook.Instant(time.Hour)
	for range 2 {
		for range 100 {
			c := s.Accept(Peer{Address: "192.0.2.1:9"}, func() {})
			c.round.tick(now)
			c.header([]byte("GET / HTTP/1.1"))
		}
		now = now.Add(time.Second)
	}
	if n := strings.Count(log.String(), "wrong protocol header"); n != 2 || !strings.Contains(log.String(), "not_told=99") {
		t.Errorf("%d lines: %s", n, log.String())
	}
}
