package broker

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// A broker that is killed while it moves messages has each of them in one place: removing and arriving are one entry of the log. The
// redrive is forgotten; another one moves the rest.
func TestRedriveIsKilled(t *testing.T) {
	t.Parallel()
	const messages = 20_000
	dir := t.TempDir()
	b := process.Start(t, "", "--data", dir)
	fillDurable(t, b, "from", messages)
	declareDurable(t, b, "to", amqp091.Table{"x-max-length": 9000, "x-overflow": "reject-publish"}) // some are refused
	id := startRedrive(t, b, `{"to":{"queue":"to"},"per_second":20000}`)
	for moved(t, b, id) < 3000 {
		time.Sleep(5 * time.Millisecond)
	}
	b.Kill()

	b = process.Start(t, "", "--data", dir)
	if status, body := manage(t, b, http.MethodGet, "redrives", ""); status != http.StatusOK || body != "[]" {
		t.Errorf("redrives after the restart: %d %s", status, body)
	}
	count := drainAll(t, b, "from", "to")
	if len(count) != messages {
		t.Errorf("%d messages are there, want %d", len(count), messages)
	}
	for id, n := range count {
		if n != 1 {
			t.Fatalf("message %s is there %d times", id, n)
		}
	}
}

// A queue that is being redriven may be so again later: that was 400, as if the request were wrong.
func TestRedriveWhileAnotherRuns(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	fillDurable(t, b, "from", 3)
	declareDurable(t, b, "to", nil)
	id := startRedrive(t, b, `{"to":{"queue":"to"},"per_second":1}`)
	const want = `{"error":"conflict","reason":"queue 'from' in vhost '/' is being redriven: one redrive of a queue is allowed at a time"}`
	status, body := manage(t, b, http.MethodPost, "queues/%2F/from/redrive", `{"to":{"queue":"to"}}`)
	if status != http.StatusConflict || body != want {
		t.Errorf("%d %s, want 409 %s", status, body, want)
	}
	manage(t, b, http.MethodDelete, "redrives/"+id, "")
	ended := func() bool {
		_, body := manage(t, b, http.MethodGet, "redrives/"+id+"?columns=state", "")
		return body == `{"state":"cancelled"}`
	}
	if !process.Poll(ended) {
		t.Fatal("the redrive does not end")
	}
	startRedrive(t, b, `{"to":{"queue":"to"}}`)
}

// What a consumer has is shown with it, while it has it; looking is no use of the queue.
func TestPeek(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	ch := channelOf(t, b)
	if _, err := ch.QueueDeclare("q", false, false, false, false, amqp091.Table{"x-expires": 60000}); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"first", "second"} {
		if err := ch.Publish("", "q", false, false, amqp091.Publishing{Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	_, lease := manage(t, b, http.MethodGet, "queues/%2F/q?columns=lease_expires_at", "")
	if err := ch.Qos(1, 0, false); err != nil {
		t.Fatal(err)
	}
	got, err := ch.Consume("q", "reader", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := <-got
	const columns = "?columns=messages.state,messages.payload,messages.consumer.consumer_tag,messages.consumer.delivery_tag"
	want := `{"messages":[{"state":"unacked","consumer":{"consumer_tag":"reader","delivery_tag":1},"payload":"first"},` +
		`{"state":"ready","consumer":null,"payload":"second"}]}`
	for range 3 {
		if _, body := manage(t, b, http.MethodGet, "queues/%2F/q/messages"+columns, ""); body != want {
			t.Errorf("got %s\nwant %s", body, want)
		}
	}
	if _, body := manage(t, b, http.MethodGet, "queues/%2F/q/messages?state=unacked&columns=messages.payload", ""); body != `{"messages":[{"payload":"first"}]}` {
		t.Error(body)
	}
	if err := d.Nack(false, true); err != nil {
		t.Fatal(err)
	}
	if d = <-got; !d.Redelivered || string(d.Body) != "first" {
		t.Errorf("%+v", d)
	}
	if err := ch.Cancel("reader", false); err != nil {
		t.Fatal(err)
	}
	_, before := manage(t, b, http.MethodGet, "queues/%2F/q?columns=lease_expires_at", "")
	time.Sleep(10 * time.Millisecond)
	manage(t, b, http.MethodGet, "queues/%2F/q/messages", "")
	if _, after := manage(t, b, http.MethodGet, "queues/%2F/q?columns=lease_expires_at", ""); after != before || after == lease {
		t.Errorf("the lease ends at %s, then %s, then %s", lease, before, after)
	}
}

// Whoever looks needs permission to read; whoever moves needs to write to where messages go, too.
func TestRedrivePermissions(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	fillDurable(t, b, "mine.q", 1)
	fillDurable(t, b, "other.q", 1)
	for _, call := range [][2]string{
		{"users/u", `{"password":"u","tags":"management"}`},
		{"permissions/%2F/u", `{"configure":"","write":"^amq\\.topic$","read":"^mine"}`},
	} {
		if status, body := manage(t, b, http.MethodPut, call[0], call[1]); status/100 != 2 {
			t.Fatal(status, body)
		}
	}
	for _, tc := range []struct {
		method, path, body string
		status             int
		text               string
	}{
		{http.MethodGet, "queues/%2F/mine.q/messages", "", 200, `"payload":"0"`},
		{http.MethodGet, "queues/%2F/other.q/messages", "", 401, "read access to queue 'other.q' in vhost '/' refused for user 'u'"},
		{http.MethodPost, "queues/%2F/other.q/redrive", `{"to":"source"}`, 401, "read access to queue 'other.q'"},
		{http.MethodPost, "queues/%2F/mine.q/redrive", `{"to":{"queue":"other.q"}}`, 401, "write access to exchange 'amq.default' in vhost '/' refused"},
		{http.MethodPost, "queues/%2F/mine.q/redrive", `{"to":"source","dry_run":true}`, 401, "write access to exchange 'amq.default'"},
		{http.MethodPost, "queues/%2F/mine.q/redrive", `{"to":{"exchange":"amq.direct"}}`, 401, "write access to exchange 'amq.direct'"},
		{http.MethodPost, "queues/%2F/mine.q/redrive", `{"to":{"exchange":"amq.topic"},"dry_run":true}`, 200, `"messages":1`},
	} {
		status, body := manageAs(t, b, "u", tc.method, tc.path, tc.body)
		if status != tc.status || !strings.Contains(body, tc.text) {
			t.Errorf("%s %s %s: %d %s", tc.method, tc.path, tc.body, status, body)
		}
	}
}

func channelOf(t *testing.T, b *process.Process) *amqp091.Channel {
	t.Helper()
	conn, err := process.Dial(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the broker may be gone
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func declareDurable(t *testing.T, b *process.Process, queue string, args amqp091.Table) {
	t.Helper()
	if _, err := channelOf(t, b).QueueDeclare(queue, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
}

// fillDurable publishes persistent messages, whose ids count from 0, to a new durable queue.
func fillDurable(t *testing.T, b *process.Process, queue string, messages int) {
	t.Helper()
	declareDurable(t, b, queue, nil)
	ch := channelOf(t, b)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	var last *amqp091.DeferredConfirmation
	for i := range messages {
		id := strconv.Itoa(i)
		var err error
		last, err = ch.PublishWithDeferredConfirm("", queue, false, false, amqp091.Publishing{
			Body: []byte(id), MessageId: id, DeliveryMode: amqp091.Persistent, Headers: amqp091.Table{"n": int64(i % 7)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !last.Wait() {
		t.Fatal("the messages are not confirmed")
	}
}

// drainAll counts the messages of queues by id.
func drainAll(t *testing.T, b *process.Process, queues ...string) map[string]int {
	t.Helper()
	count := map[string]int{}
	ch := channelOf(t, b)
	for _, q := range queues {
		info, err := ch.QueueDeclarePassive(q, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ch.Consume(q, "", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range info.Messages {
			d := <-got
			count[d.MessageId]++
		}
	}
	return count
}

func startRedrive(t *testing.T, b *process.Process, body string) (id string) {
	t.Helper()
	status, answer := manage(t, b, http.MethodPost, "queues/%2F/from/redrive", body)
	var started struct{ ID string }
	if err := json.Unmarshal([]byte(answer), &started); err != nil || status != http.StatusAccepted {
		t.Fatal(status, answer, err)
	}
	return started.ID
}

func moved(t *testing.T, b *process.Process, id string) int {
	t.Helper()
	_, body := manage(t, b, http.MethodGet, "redrives/"+id, "")
	var r struct {
		Moved int
		State string
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil || r.State != "running" {
		t.Fatal(body, err)
	}
	return r.Moved
}

func manage(t *testing.T, b *process.Process, method, path, body string) (int, string) {
	t.Helper()
	return manageAs(t, b, "guest", method, path, body)
}

// manageAs calls the management API for a user whose password is the name.
func manageAs(t *testing.T, b *process.Process, user, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+b.Management+"/api/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(user, user)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}
