package telemetry

import (
	"bytes"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/logtest"
	core "github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

const noon = hook.Instant(12 * time.Hour)

// printed returns the output of the exporter called stdout for the spans that tell causes.
func printed(t *testing.T, tell func(r *core.Recorder)) string {
	t.Helper()
	environment(t)
	c := standard()
	c.Traces.Exporter = config.ExportStdout
	var out bytes.Buffer
	o := Options{Config: c, Clock: func() hook.Instant { return noon }, Stdout: &out, Log: slog.New(slog.DiscardHandler), Version: "1", Node: "n"}
	telemetry, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	tell(telemetry.Recorder)
	if err := telemetry.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Clients choose names: characters that a terminal would not merely display are replaced.
func TestPrintable(t *testing.T) {
	const in, want = "é 世 \x1b[2J\r\n\t\u009b1m\u202etxt.exe\u2028\u200d", "é 世 .[2J....1m.txt.exe.."
	if got := printable(in); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The trace of an orphan message from its publishing to its end as a dead letter, as displayed on a terminal.
func TestPrintedTrace(t *testing.T) {
	got := printed(t, func(r *core.Recorder) {
		none := []byte{0, 0}
		x, err := amqp.ScanProps(none)
		if err != nil {
			t.Fatal(err)
		}
		props, _ := r.Spans().Inject(none, x)
		r.Spans().Published(&core.Message{VHost: "/", Key: []byte("jobs\x1b[2J"), Props: props, Size: 3, Injected: true}, "app", 1)
		r.Removed(&core.QueueRef{VHost: "/", Queue: "jobs", Strategy: "deadline"}, noon.Add(2*time.Second), []core.Removal{{
			Key: []byte("jobs"), Props: props, Size: 3, Traced: true, Enqueued: noon, Deadline: noon.Add(time.Second),
			Reason: hook.ReasonExpired, Outcome: core.NoExchange, Target: &hook.Target{Exchange: "dlx"},
		}})
	})
	ids := regexp.MustCompile(`[0-9a-f]{32}|[0-9a-f]{16}`)
	names := map[string]string{}
	got = ids.ReplaceAllStringFunc(got, func(id string) string {
		if names[id] == "" {
			names[id] = string(rune('A' + len(names)))
		}
		return names[id]
	})
	const want = `publish jobs.[2J (0s)
  trace                                       A
  span                                        B
  began                                       1970-01-01T12:00:00Z
  messaging.system                            rabbitmq
  messaging.operation.name                    publish
  messaging.operation.type                    send
  messaging.destination.name                  jobs.[2J
  messaging.rabbitmq.destination.routing_key  jobs.[2J
  curfew.vhost                                /
  curfew.publish.queues                       1
  messaging.client.id                         app
  messaging.message.body.size                 3

dead_letter jobs (0s)
  trace                                       A
  span                                        C, child of D, linked to B
  began                                       1970-01-01T12:00:02Z
  error                                       the message is lost: no_exchange
  messaging.system                            rabbitmq
  messaging.operation.name                    dead_letter
  messaging.destination.name                  jobs
  messaging.message.body.size                 3
  curfew.vhost                                /
  messaging.rabbitmq.destination.routing_key  jobs
  curfew.queue                                jobs
  curfew.dead_letter.reason                   expired
  curfew.dead_letter.outcome                  no_exchange
  messaging.operation.type                    send
  curfew.dead_letter.exchange                 dlx
  error.type                                  no_exchange

expire jobs (2s)
  trace                                       A
  span                                        D, child of B
  began                                       1970-01-01T12:00:00Z
  messaging.system                            rabbitmq
  messaging.operation.name                    expire
  messaging.destination.name                  jobs
  messaging.message.body.size                 3
  curfew.vhost                                /
  messaging.rabbitmq.destination.routing_key  jobs
  curfew.queue                                jobs
  curfew.dead_letter.reason                   expired
  curfew.dead_letter.outcome                  no_exchange
  curfew.expiry.strategy                      deadline
  curfew.expiry.deadline                      1970-01-01T12:00:01Z
  curfew.expiry.lateness_ms                   1000
  +0s                                         enqueue
  +0s                                         deadline_set curfew.expiry.strategy=deadline curfew.expiry.deadline=1970-01-01T12:00:01Z
  +1s                                         due
  +2s                                         decided curfew.dead_letter.outcome=no_exchange

`
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

// Spans that could not be printed count as lost.
func TestClosedOutput(t *testing.T) {
	read, write := io.Pipe()
	_ = read.Close()
	p := newPrinter(write)
	if err := p.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	p.Take(&core.Span{Name: "x"})
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if printed, lost := p.Exported(); printed != 0 || lost != 1 {
		t.Errorf("%d printed, %d lost; want 1 lost", printed, lost)
	}
}

// The child of an unsampled context is recorded nevertheless if that is configured.
func TestContextsThatAreNotSampled(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	p := amqp.Properties{Headers: amqp.Table{{Key: "traceparent", Value: parent}}}
	p.Set(amqp.PropHeaders)
	got := printed(t, func(r *core.Recorder) {
		r.Removed(&core.QueueRef{Queue: "q"}, noon, []core.Removal{{Props: p.Append(nil), Traced: true, Reason: hook.ReasonRejected}})
	})
	if !strings.Contains(got, "0af7651916cd43dd8448eb211c80319c") || !strings.Contains(got, "child of b7ad6b7169203331") {
		t.Errorf("got %q", got)
	}
}

// full is a sink that refuses spans.
type full struct{ printer }

func (*full) Take(*core.Span) bool { return false }

// Spans were dropped by the million without a log line because too many were waiting. The beginning is now logged, and at the end the number.
func TestDroppedSpansAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log // the watching goroutine writes to it
		drop := newTraces(&full{}, core.SpanOptions{}, slog.New(slog.NewTextHandler(&log, nil)))
		go drop.watch()
		for _, n := range []int{92, 100} {
			for range n {
				drop.spans.Recovered(&core.Recovery{})
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "spans are dropped") || !strings.Contains(text, "dropped=92") {
				t.Errorf("it was logged: %s", text)
			}
		}
		time.Sleep(calm)
		synctest.Wait()
		if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "spans are not dropped any more\" dropped=192") {
			t.Errorf("it was logged: %s", text)
		}
		drop.spans.Recovered(&core.Recovery{})
		close(drop.closing)
		<-drop.ended
		if text := log.String(); strings.Count(text, "\n") != 4 || !strings.Contains(text, "dropped=1 dropped_ever=193") {
			t.Errorf("it was logged: %s", text)
		}
	})
}

func TestOffIsNothing(t *testing.T) {
	environment(t)
	telemetry, err := Open(t.Context(), Options{Config: standard(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if telemetry.Recorder.Spans() != nil {
		t.Error("there are spans")
	}
	if taken, lost := telemetry.Exported(); taken != 0 || lost != 0 {
		t.Errorf("%d taken, %d lost", taken, lost)
	}
	if err := telemetry.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestResource(t *testing.T) {
	for _, tc := range []struct{ name, environ, service, want string }{
		{"nothing is said", "", "", "curfew"},
		{"attributes of the environment", "service.name=orders,a=b", "", "orders"},
		{"the configuration", "service.name=orders", "bills", "bills"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			environment(t, "OTEL_RESOURCE_ATTRIBUTES="+tc.environ)
			r, err := describe(t.Context(), tc.service, Options{Version: "1.2", Node: "curfew@here"})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, a := range r.Attributes() {
				got[string(a.Key)] = a.Value.String()
			}
			if got["service.name"] != tc.want || got["service.version"] != "1.2" || got["service.instance.id"] != "curfew@here" || got["host.name"] == "" {
				t.Errorf("got %v", got)
			}
		})
	}
	environment(t, "OTEL_RESOURCE_ATTRIBUTES=nonsense")
	if _, err := Open(t.Context(), Options{Config: standard(), Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.HasPrefix(err.Error(), "OTEL_RESOURCE_ATTRIBUTES: ") {
		t.Errorf("got %v", err)
	}
}

func TestSeldom(t *testing.T) {
	var log bytes.Buffer
	s := &rateLimitedHandler{Handler: slog.NewTextHandler(&log, nil), limit: new(limit)}
	at := time.Unix(0, 0)
	for range 25 {
		r := slog.NewRecord(at, slog.LevelWarn, "again", 0)
		if err := s.WithAttrs([]slog.Attr{slog.Int("a", 1)}).WithGroup("g").Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Second)
	}
	if n := strings.Count(log.String(), "again"); n != 3 {
		t.Errorf("%d lines in 25 seconds, want 3", n)
	}
	if s.Enabled(t.Context(), slog.LevelInfo) || !s.Enabled(t.Context(), slog.LevelWarn) {
		t.Error("it logs a line that is not a warning, or drops a warning")
	}
}
