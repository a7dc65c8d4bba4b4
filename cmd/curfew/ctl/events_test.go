package ctl

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// streaming is a broker that sends one event a second until the request ends.
func streaming(r *http.Request) (*http.Response, error) {
	from, to := io.Pipe()
	go func() {
		for i := 0; ; i++ {
			select {
			case <-r.Context().Done():
				_ = to.CloseWithError(r.Context().Err())
				return
			case <-time.After(time.Second):
				fmt.Fprintf(to, "\n{\"id\":%d,\"kind\":\"alarm_raised\",\"time\":%d,\"alarm\":\"a%d\"}\n", i, i*1000, i)
			}
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Body: from}, nil
}

// After --count events the command ends with status 0.
func TestEventsEnd(t *testing.T) {
	for _, tt := range []struct {
		args  string
		stop  time.Duration // Ctrl-C
		took  time.Duration
		lines int
	}{
		{"events -q --count 3", time.Hour, 3 * time.Second, 3},
		{"events -q --timeout 5", time.Hour, 5 * time.Second, 4},
		{"events -q", 2500 * time.Millisecond, 2500 * time.Millisecond, 2},
		{"events --json", 2500 * time.Millisecond, 2500 * time.Millisecond, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			var stdout, stderr strings.Builder
			p := &Program{Name: "curfew ctl", Stdout: &stdout, Stderr: &stderr, transport: transport(streaming)}
			ctx, interrupt := context.WithTimeout(t.Context(), tt.stop)
			defer interrupt()
			began := time.Now()
			status := p.report(p.run(ctx, strings.Fields(tt.args)))
			took := time.Since(began)
			interrupt()
			synctest.Wait()
			if n := strings.Count(stdout.String(), "\n"); status != 0 || stderr.Len() > 0 || took.Round(time.Second/2) != tt.took || n < tt.lines || n > tt.lines+1 {
				t.Errorf("%s: exit status %d after %v: %s%s", tt.args, status, took, &stdout, &stderr)
			}
		})
	}
}

func TestEventLine(t *testing.T) {
	for in, want := range map[string]string{
		`{"kind": "k\u001b[2J", "n\u001b[2J": "\u202ev\u001b[2J"}`:                                                     ` "k\x1b[2J" "n\x1b[2J"="\u202ev\x1b[2J"`,
		`{"kind":"x","time":0,"a":"","b":"b c","c":1.5,"d":true,"e":null,"f":["g","h"],"i":{"j":1},"deadline":"soon"}`: `1970-01-01T00:00:00.000Z x a="" b="b c" c=1.5 d=true f=g,h i="{\"j\":1}" deadline=soon`,
		`{"kind":"x","time":1,"a":"\u202e=","b":"é"}`:                                                                  `1970-01-01T00:00:00.001Z x a="\u202e=" b=é`,
		`{"kind":"x"}`: " x",
		`{"time":1}`:   "",
		`{"kind":`:     "",
		`nonsense`:     "",
	} {
		got, err := eventLine([]byte(in))
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %s, %v, want %s", in, got, err, want)
		}
	}
}
