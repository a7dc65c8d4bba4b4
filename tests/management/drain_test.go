package management

import (
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// load publishes to a broker with confirms, as fast as these come, until its connection ends.
type load struct {
	sent, confirmed atomic.Int64
	blocked         chan amqp091.Blocking
	ended           chan struct{}
}

func publishing(t *testing.T, b broker, queues ...string) *load {
	t.Helper()
	conn, err := b.connect("guest", "guest", "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		if _, err := ch.QueueDeclare(q, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	l := &load{blocked: conn.NotifyBlocked(make(chan amqp091.Blocking, 10)), ended: make(chan struct{})}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(l.ended)
		for i := int64(0); ; i++ {
			body := amqp091.Publishing{DeliveryMode: amqp091.Persistent, MessageId: strconv.FormatInt(i, 10)}
			d, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", queues[i%int64(len(queues))], false, false, body)
			if err != nil {
				return
			}
			l.sent.Add(1)
			if acked, err := d.WaitContext(t.Context()); err != nil || !acked {
				return
			}
			l.confirmed.Add(1)
		}
	}()
	return l
}

// working consumes a queue and acknowledges every message, until its connection ends.
func working(t *testing.T, b broker, queue string) (settled *atomic.Int64, ended chan struct{}) {
	t.Helper()
	ch := b.dial(t, "guest", "guest", "/")
	if err := ch.Qos(10, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	settled, ended = new(atomic.Int64), make(chan struct{})
	go func() {
		defer close(ended)
		for d := range deliveries {
			if d.Ack(false) == nil {
				settled.Add(1)
			}
		}
	}()
	return settled, ended
}

// A drained broker loses nothing that it has confirmed: what had a consumer was consumed, and the rest is there after a restart.
func TestDrain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := process.Start(t, patient, "--data", dir)
	b := of(t, p)
	l := publishing(t, b, "consumed", "kept")
	settled, ended := working(t, b, "consumed")
	if !process.Poll(func() bool { return l.confirmed.Load() > 100 && settled.Load() > 0 }) {
		t.Fatal("nothing is published or consumed")
	}
	ch := b.dial(t, "guest", "guest", "/")
	for name, durable := range map[string]bool{"transient": false, "mixed": true} {
		if _, err := ch.QueueDeclare(name, durable, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := ch.PublishWithContext(t.Context(), "", name, false, false, amqp091.Publishing{}); err != nil { // not persistent
			t.Fatal(err)
		}
	}
	process.Poll(func() bool {
		listed := b.ctl(t, "-q", "list_queues", "name", "messages")
		return strings.Contains(listed, "transient\t1") && strings.Contains(listed, "mixed\t1")
	})

	status, stdout, stderr := b.tool(t, "", "drain", "--timeout", "2m")
	if status != 0 {
		t.Fatalf("exit status %d: %s%s", status, stdout, stderr)
	}
	for _, part := range []string{"Consumers have 2m0s", "queue kept in vhost /: ", "queue transient in vhost /: 1 ready", "queue mixed in vhost /: 1 ready", "; kept: ", "lost, because they were in memory only: 2 messages in ", ". The broker has stopped"} {
		if !strings.Contains(stdout, part) {
			t.Errorf("there is no %q in\n%s", part, stdout)
		}
	}
	if code := p.Exit(); code != 0 {
		t.Errorf("the broker ended with status %d", code)
	}
	// A publisher that got no time to publish while others emptied the queue was closed without having been held.
	if got, open, _ := process.Receive(l.blocked); open && (!got.Active || got.Reason != "the broker is being drained") {
		t.Errorf("the publisher got %+v", got)
	}
	<-l.ended
	<-ended
	again := of(t, process.Start(t, patient, "--data", dir))
	var queues []struct {
		Name     string
		Messages int64
	}
	if err := json.Unmarshal([]byte(again.ctl(t, "--json", "list_queues", "name", "messages")), &queues); err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		if q.Name == "consumed" && q.Messages != 0 {
			t.Errorf("%d messages were left that had a consumer", q.Messages)
		}
		if got := q.Messages + settled.Load(); q.Name == "kept" && (got < l.confirmed.Load() || got > l.sent.Load()) {
			t.Errorf("%d messages were consumed or kept: %d were confirmed, %d published", got, l.confirmed.Load(), l.sent.Load())
		}
	}
}

// A consumer that does not settle holds a drain up until time is over. Then revive lets all go on, as if nothing had been.
func TestReviveAfterTimeout(t *testing.T) {
	t.Parallel()
	b := curfew(t)
	l := publishing(t, b, "q")
	hung, err := b.dial(t, "guest", "guest", "/").Consume("q", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	process.Receive(hung)
	status, stdout, stderr := b.tool(t, "", "drain", "--no-stop", "--timeout", "1")
	if status != 75 || !strings.Contains(stdout, "Left, with a consumer: ") || !strings.Contains(stderr, "The time ran out after ") || !strings.Contains(stderr, ": consumers left ") {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	if code, body := b.readiness(t); code != 503 || !strings.Contains(body, `"reasons":["draining"]`) {
		t.Errorf("/readyz: got %d %s", code, body)
	}
	if socket, err := net.Dial("tcp", b.amqp); err == nil {
		socket.Close()
		t.Error("a drained broker accepts connections")
	}
	if code, body := b.http(t, "guest", "POST", "/exchanges/%2F/amq.default/publish", `{"properties":{},"routing_key":"q","payload":"","payload_encoding":"string"}`); code != 503 || !strings.Contains(body, "the broker is being drained") {
		t.Errorf("a message over HTTP: got %d %s", code, body)
	}
	if got, open, _ := process.Receive(l.blocked); !open || !got.Active {
		t.Errorf("the publisher got %+v", got)
	}
	confirmed := l.confirmed.Load()
	b.ctl(t, "revive")
	if got, open, _ := process.Receive(l.blocked); !open || got.Active {
		t.Errorf("the publisher got %+v", got)
	}
	if !process.Poll(func() bool { return l.confirmed.Load() > confirmed+10 }) {
		t.Error("the publisher does not go on")
	}
	b.dial(t, "guest", "guest", "/")
	if code, body := b.readiness(t); code != 200 {
		t.Errorf("/readyz: got %d %s", code, body)
	}
	b.ctl(t, "revive") // which is none any more
}

// readiness asks whether clients may connect.
func (b broker) readiness(t *testing.T) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+b.api+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if status, body, err = process.Do(r); err != nil {
		t.Fatal(err)
	}
	return status, body
}

// A broker that is stopped while it is being drained ends as it always does, and the command says that it was not drained.
func TestSignalWhileDraining(t *testing.T) {
	t.Parallel()
	p := process.Start(t, patient)
	b := of(t, p)
	ch := b.dial(t, "guest", "guest", "/")
	if _, err := ch.QueueDeclare("q", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.PublishWithContext(t.Context(), "", "q", false, false, amqp091.Publishing{}); err != nil {
		t.Fatal(err)
	}
	hung, err := b.dial(t, "guest", "guest", "/").Consume("q", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	process.Receive(hung)
	type result struct {
		status int
		text   string
	}
	ended := make(chan result, 1)
	go func() {
		status, stdout, stderr := b.tool(t, "", "drain", "--timeout", "1h")
		ended <- result{status, stdout + stderr}
	}()
	p.Await("draining: publishers wait")
	p.Signal(syscall.SIGTERM)
	if code := p.Exit(); code != 0 {
		t.Errorf("the broker ended with status %d", code)
	}
	if got, _, _ := process.Receive(ended); got.status != 69 || !strings.Contains(got.text, "the broker ended before it was drained, with 1 message left") {
		t.Errorf("exit status %d: %s", got.status, got.text)
	}
}

func TestDrainIsRefused(t *testing.T) {
	t.Parallel()
	b := curfew(t)
	b.newUser(t, "m", "monitoring")
	for _, tt := range []struct {
		args   string
		status int
		stderr string
	}{
		{"drain --timeout 0", 64, "--timeout 0: accepted are 1s to 7d"},
		{"drain --timeout 8d", 64, "--timeout 8d: accepted are 1s to 7d"},
		{"drain --timeout soon", 64, "--timeout soon: accepted are 1s to 7d"},
		{"drain -u m --password m", 77, "Not administrator user"},
		{"revive -u m --password m", 77, "Not administrator user"},
	} {
		if status, stdout, stderr := b.tool(t, "", strings.Fields(tt.args)...); status != tt.status || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%s: exit status %d: %s%s", tt.args, status, stdout, stderr)
		}
	}
	var nodes []struct {
		Name         string
		BeingDrained bool `json:"being_drained"`
	}
	b.get(t, "/nodes", &nodes)
	for body, want := range map[string]string{
		`{"timeout_ms":999}`:       "timeout_ms is 999: whole numbers from 1000 to 604800000 are allowed",
		`{"timeout_ms":604800001}`: "timeout_ms is 604800001: whole numbers from 1000 to 604800000 are allowed",
		`{"timeout":1000}`:         "timeout",
		`{"stop":"no"}`:            "not_boolean",
		`[]`:                       "",
	} {
		if code, text := b.http(t, "guest", "PUT", "/nodes/"+nodes[0].Name+"/drain", body); code != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: got %d %s", body, code, text)
		}
	}
	if nodes[0].BeingDrained {
		t.Error("a broker that nobody drains says that it is drained")
	}
}
