package ctl

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// transport is a network whose round trips are a function.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// silence is a broker that takes a request and does not answer.
func silence(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: io.NopCloser(strings.NewReader(body))}
}

// timed calls the tool over t. It returns the time taken and the results.
func timed(t transport, args ...string) (took time.Duration, status int, stdout, stderr string) {
	var out, errs strings.Builder
	p := &Program{Name: "curfew ctl", Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, transport: t}
	began := time.Now()
	status = p.report(p.run(context.Background(), args))
	return time.Since(began), status, out.String(), errs.String()
}

func TestTimeout(t *testing.T) {
	for _, tt := range []struct {
		args string
		took time.Duration
	}{
		{"list_queues", time.Minute},
		{"list_queues --timeout 5", 5 * time.Second},
		{"list_users -t 7", 7 * time.Second},
		{"ping", time.Minute},
		{"await_startup", startup},
		{"await_startup -t 3", 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			took, status, _, stderr := timed(silence, strings.Fields(tt.args)...)
			if took != tt.took || status != temporaryFailure || stderr == "" {
				t.Errorf("%s: exit status %d after %v, want %d after %v: %s", tt.args, status, took, temporaryFailure, tt.took, stderr)
			}
		})
	}
}

func TestTimeoutText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, _, stderr := timed(silence, "list_users", "-t", "5")
		if want := "Error: operation list_users on http://localhost:15672 timed out. Timeout value used: 5000\n"; stderr != want {
			t.Errorf("got %q, want %q", stderr, want)
		}
	})
}

func TestAwaitStartup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		starting := func(*http.Request) (*http.Response, error) {
			switch calls++; calls {
			case 1:
				return nil, errors.New("connection refused")
			case 2:
				return answer(http.StatusServiceUnavailable, "{}"), nil
			}
			return answer(http.StatusOK, "{}"), nil
		}
		took, status, stdout, stderr := timed(starting, "await_startup")
		if took != 2*pollEvery || status != 0 || stdout+stderr != "" {
			t.Errorf("exit status %d after %v: %s%s", status, took, stdout, stderr)
		}
	})
}

func TestDelayBetweenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		three := func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodDelete {
				return answer(http.StatusNoContent, ""), nil
			}
			return answer(http.StatusOK, `[{"name":"a","vhost":"/"},{"name":"b","vhost":"/"},{"name":"c","vhost":"/"}]`), nil
		}
		took, status, stdout, _ := timed(three, "close_all_connections", "--per-connection-delay", "1000", "-q", "bye")
		if took != 3*time.Second || status != 0 || stdout != "Closed 3 connections\n" {
			t.Errorf("exit status %d after %v: %s", status, took, stdout)
		}
	})
}

// A replacement takes as long as copying the logs. Its progress is printed to standard error, in text formats only; it once printed none.
func TestReplacementIsFollowed(t *testing.T) {
	for _, tt := range []struct{ args, stderr string }{
		{"cluster replace c:5680", "shard 1: curfew@c: learner, catches up: it lacks 7 entries, and has no vote yet\n"},
		{"-q cluster replace c:5680", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			took, status, stdout, stderr := timed(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodGet {
					return answer(200, `{"nodes":[{"name":"curfew@b","address":"b:5680"},{"name":"curfew@c","address":"c:5680"}],"shards":[`+
						`{"shard":0,"replicas":[{"node":"curfew@c","role":"follower","voter":true,"active":true,"caught_up":true,"lag":0}]},`+
						`{"shard":1,"replicas":[{"node":"curfew@b","role":"follower","voter":true,"active":true,"caught_up":false,"lag":3},`+
						`{"node":"curfew@c","role":"learner","voter":false,"active":true,"caught_up":false,"lag":7}]}]}`), nil
				}
				time.Sleep(12 * time.Second)
				return answer(200, `{"address":"c:5680","number":"9","shards":[0,1]}`), nil
			}, strings.Fields(tt.args)...)
			if took != 12*time.Second || status != 0 || !strings.Contains(stdout, "9") || stderr != tt.stderr {
				t.Errorf("%s: after %v, status %d: %s\nstandard error: %q, want %q", tt.args, took, status, stdout, stderr, tt.stderr)
			}
		})
	}
}
