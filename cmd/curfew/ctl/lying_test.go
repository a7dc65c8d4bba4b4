package ctl

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A proxy between the tool and the broker may answer in its place, cut answers, or speak another protocol. The error says so.
func TestLyingServers(t *testing.T) {
	page := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>Log in!</html>")
	}
	cut := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `[{"name":"q"}`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	status := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, code) }
	}
	empty := func(http.ResponseWriter, *http.Request) {}
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		command string
		status  int
		stderr  string
	}{
		{"page for a list", page, "list_queues", unavailable, "answers with text/html and not with a list"},
		{"page for an object", page, "status", unavailable, "answers with text/html and not with JSON"},
		{"page for events", page, "events", unavailable, "answers with text/html and not with events"},
		{"nothing for a list", empty, "list_queues", unavailable, "answers with nothing and not with a list"},
		{"nothing for an object", empty, "status", unavailable, "answers with nothing and not with JSON"},
		{"list that is cut", cut, "list_queues", unavailable, "broke off: the connection was cut, by the broker or by a proxy in between"},
		{"object that is cut", cut, "list_users", unavailable, "broke off: the connection was cut, by the broker or by a proxy in between"},
		{"events that are cut", cut, "events --no-reconnect", unavailable, "the stream of events was cut, by the broker or by a proxy in between"},
		{"proxy without a broker", status(502, "<html>Bad Gateway</html>"), "list_queues", unavailable, "502 Bad Gateway"},
		{"TLS, as Go refuses HTTP", status(400, "Client sent an HTTP request to an HTTPS server.\n"), "list_queues", unavailable, "speaks TLS, but the address begins with http://"},
		{"TLS, as nginx refuses HTTP", status(400, "<html>The plain HTTP request was sent to HTTPS port</html>"), "events", unavailable, "speaks TLS, but the address begins with http://"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(tt.handler)
			server.Start()
			t.Cleanup(server.Close)
			code, _, stderr := run(nil, append(strings.Fields(tt.command), "-q", "--url", server.URL)...)
			if code != tt.status || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit status %d, %s, want %q in it", code, stderr, tt.stderr)
			}
		})
	}
}

// speaking listens, and sends a text on every connection.
func speaking(t *testing.T, text string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-ended })
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1024)) // the request, which it does not understand
			_, _ = io.WriteString(c, text)
			c.Close()
		}
	}()
	return l.Addr().String()
}

// Errors for an address with the wrong scheme, or of another port of the broker, once had only Go's own text.
func TestOtherProtocols(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = nil
	t.Cleanup(secure.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	amqp := speaking(t, "AMQP\x00\x00\x09\x01")
	alert := speaking(t, "\x15\x03\x01\x00\x02\x02\x46")
	for _, tt := range []struct{ url, want string }{
		{"http" + strings.TrimPrefix(secure.URL, "https"), "Use " + secure.URL + ", with --cacert or --insecure"},
		{"https" + strings.TrimPrefix(plain.URL, "http"), "speaks HTTP without TLS: use " + plain.URL},
		{"http://" + amqp, "The address speaks AMQP: the management API has another port, 15672"},
		{"https://" + amqp, "The address does not speak TLS."},
		{"http://" + alert, "The address speaks TLS: use https://" + alert},
	} {
		if status, _, stderr := run(nil, "list_queues", "-q", "--url", tt.url); status != unavailable || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit status %d, %s, want %q in it", tt.url, status, stderr, tt.want)
		}
	}
}

// restarting is a broker that is restarted: its streams of events end, it is unreachable for a while, and then it continues after the
// last event that the client received.
type restarting struct {
	asked []string
	parts []string // of the stream, one for each connection; "-" is nobody, "…" at the end keeps the stream open
}

func (b *restarting) answer(r *http.Request) (*http.Response, error) {
	b.asked = append(b.asked, r.Header.Get("Last-Event-ID"))
	part := b.parts[0]
	b.parts = b.parts[1:]
	if part == "-" {
		return nil, io.ErrUnexpectedEOF
	}
	from, to := io.Pipe()
	go func() {
		text, open := strings.CutSuffix(part, "…")
		_, _ = io.WriteString(to, text)
		if open {
			<-r.Context().Done()
		}
		_ = to.CloseWithError(io.ErrUnexpectedEOF)
	}()
	header := http.Header{"Content-Type": {"application/x-ndjson"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: from, Request: r}, nil
}

func event(id int) string {
	return fmt.Sprintf("{\"id\":%d,\"kind\":\"alarm_raised\",\"time\":%d}\n", id, id)
}

// A restart of the broker, or a proxy that cut the connection, once ended the command.
func TestEventsReconnect(t *testing.T) {
	const missed = "{\"id\":7,\"kind\":\"missed\",\"time\":7,\"count\":0,\"restarted\":true}\n"
	for _, tt := range []struct {
		name, args string
		parts      []string
		asked      string // Last-Event-ID of each connection
		status     int
		events     int
		stderr     string
		took       time.Duration
	}{
		{
			"restart", "--count 4",
			[]string{event(1) + event(2), "-", "-", missed + event(8) + event(9) + event(10)},
			",2,2,2", 0, 5,
			"the stream of events was cut, by the broker or by a proxy in between: connecting again\nconnected again\n", 3500 * time.Millisecond,
		},
		{"restart, quietly", "-q --count 2", []string{event(1), event(2) + "…"}, ",1", 0, 2, "", 500 * time.Millisecond},
		{"line that breaks off", "--count 2", []string{event(1) + `{"id":2,"ki`, event(2)}, ",1", 0, 2, "connecting again\nconnected again\n", 500 * time.Millisecond},
		{"silence", "--count 2", []string{event(1) + "…", event(2)}, ",1", 0, 2, "nothing arrived for 45s", 45500 * time.Millisecond},
		{"nothing to continue from", "--count 1", []string{"\n", event(5)}, ",", 0, 1, "connected again: events that happened meanwhile are not shown\n", 500 * time.Millisecond},
		{"not wanted", "--no-reconnect", []string{event(1)}, "", unavailable, 1, "Error:\nthe stream of events was cut", 0},
		{"nobody at first", "", []string{"-"}, "", unavailable, 0, "unable to reach the management API", 0},
		{"no events", "--count 2", []string{event(1) + "nonsense\n"}, "", unavailable, 1, `sent something other than an event: "nonsense"`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &restarting{parts: tt.parts}
				var stdout, stderr strings.Builder
				p := &Program{Name: "curfew ctl", Stdout: &stdout, Stderr: &stderr, transport: transport(b.answer)}
				ctx, interrupt := context.WithTimeout(t.Context(), time.Hour)
				defer interrupt()
				began := time.Now()
				status := p.report(p.run(ctx, append([]string{"events", "--json"}, strings.Fields(tt.args)...)))
				took := time.Since(began)
				interrupt()
				synctest.Wait()
				if status != tt.status || strings.Count(stdout.String(), "\n") != tt.events || took != tt.took || strings.Join(b.asked, ",") != tt.asked {
					t.Errorf("exit status %d after %v, asked %q, printed %s%s", status, took, b.asked, &stdout, &stderr)
				}
				if !strings.Contains(stderr.String(), tt.stderr) || tt.stderr == "" && stderr.Len() > 0 {
					t.Errorf("got %q, want %q in it", &stderr, tt.stderr)
				}
			})
		})
	}
}
