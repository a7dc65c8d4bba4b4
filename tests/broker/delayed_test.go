package broker

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// later is a connection to a broker with a delayed exchange that leads to the queue "q".
type later struct {
	t    *testing.T
	conn *amqp091.Connection
	ch   *amqp091.Channel
}

func newLater(t *testing.T, url string) *later {
	t.Helper()
	conn, err := process.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	l := &later{t: t, conn: conn}
	l.reopen()
	args := amqp091.Table{"x-delayed-type": "direct"}
	if err := l.ch.ExchangeDeclare("later", "x-delayed-message", true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	if _, err := l.ch.QueueDeclare("q", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.ch.QueueBind("q", "k", "later", false, nil); err != nil {
		t.Fatal(err)
	}
	return l
}

// reopen makes a channel in confirm mode.
func (l *later) reopen() {
	l.t.Helper()
	ch, err := l.conn.Channel()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		l.t.Fatal(err)
	}
	l.ch = ch
}

// publish publishes a message and waits for its confirm.
func (l *later) publish(body string, headers amqp091.Table) {
	l.t.Helper()
	c, err := l.ch.PublishWithDeferredConfirm("later", "k", false, false, amqp091.Publishing{Headers: headers, Body: []byte(body), DeliveryMode: amqp091.Persistent})
	if err != nil {
		l.t.Fatal(err)
	}
	if acked, err := c.WaitContext(l.t.Context()); err != nil || !acked {
		l.t.Fatalf("%s: not confirmed, error %v", body, err)
	}
}

// discard removes so many messages from the queue, and waits for those that are still held.
func (l *later) discard(messages int) {
	l.t.Helper()
	if !process.Poll(func() bool {
		n, err := l.ch.QueuePurge("q", false)
		if err != nil {
			l.t.Fatal(err)
		}
		messages -= n
		return messages <= 0
	}) {
		l.t.Fatalf("%d messages did not come", messages)
	}
}

// The delays come in the order of their ends, and none early.
func TestDelaysAreSorted(t *testing.T) {
	t.Parallel()
	l := newLater(t, process.Start(t, "").URL())
	delays := []int32{500, 100, 300, 200, 100, 400}
	const brief = 90 * time.Millisecond // less than any two delays are apart
	var published time.Time
	publish := func() {
		published = time.Now()
		for _, d := range delays {
			l.publish("m", amqp091.Table{"x-delay": d})
		}
	}
	for publish(); time.Since(published) > brief; publish() { // or the order is uncertain
		l.discard(len(delays))
	}
	ds, err := l.ch.Consume("q", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(delays)
	for _, want := range delays {
		d := await(t, ds, "a delayed message")
		if waited := time.Since(published); d.Headers["x-delay"] != -want || waited < time.Duration(want)*time.Millisecond {
			t.Errorf("after %v came a message with delay %v, want %d", waited, d.Headers["x-delay"], -want)
		}
	}
}

// What the header says in each type, and what it says when the message arrives.
func TestDelayHeaders(t *testing.T) {
	t.Parallel()
	l := newLater(t, process.Start(t, "").URL())
	for _, tc := range []struct {
		value, arrives any
		delay          time.Duration
	}{
		{int32(1000), int32(-1000), time.Second},
		{int16(300), int16(-300), 300 * time.Millisecond},
		{int64(300), int64(-300), 300 * time.Millisecond},
		{"300", int64(-300), 300 * time.Millisecond},
		{300.9, int64(-300), 300 * time.Millisecond},
		{float32(300.5), int64(-300), 300 * time.Millisecond},
		{true, true, 0},
		{nil, nil, 0},
		{int32(0), int32(0), 0},
		{int32(-5), int32(-5), 0},
		{time.Unix(200, 0), time.Unix(200, 0), 0},
	} {
		published := time.Now()
		l.publish("m", amqp091.Table{"x-delay": tc.value})
		get := func() (amqp091.Delivery, bool) {
			d, ok, err := l.ch.Get("q", true)
			if err != nil {
				t.Fatal(err)
			}
			return d, ok
		}
		got, came := get()
		if tc.delay == 0 && !came {
			t.Errorf("%v (%T): not there at once", tc.value, tc.value)
		}
		if !came {
			came = process.Poll(func() (ok bool) { got, ok = get(); return ok })
		}
		if waited := time.Since(published); !came || got.Headers["x-delay"] != tc.arrives || waited < tc.delay {
			t.Errorf("%v (%T): arrives %t after %v as %v (%T), want %v (%T) after %v", tc.value, tc.value, came, waited,
				got.Headers["x-delay"], got.Headers["x-delay"], tc.arrives, tc.arrives, tc.delay)
		}
	}
	for _, value := range []any{"abc", int64(math.MaxInt64), "", math.NaN()} {
		closed := l.ch.NotifyClose(make(chan *amqp091.Error, 1))
		if err := l.ch.PublishWithContext(t.Context(), "later", "k", false, false, amqp091.Publishing{Headers: amqp091.Table{"x-delay": value}}); err != nil {
			t.Fatal(err)
		}
		if err := await(t, closed, "the end of the channel"); err == nil || err.Code != 406 {
			t.Errorf("%v: the channel was closed with %v, want 406", value, err)
		}
		l.reopen()
	}
	// 2^32 ms is held: it can be cancelled, once.
	l.publish("m", amqp091.Table{"x-delay": int64(1) << 32, "x-schedule-id": "a"})
	returns := l.ch.NotifyReturn(make(chan amqp091.Return, 2))
	for _, name := range []string{"cancel", "cancel nothing"} {
		cancel := amqp091.Publishing{Headers: amqp091.Table{"x-schedule-id": "a", "x-schedule-cancel": true}, Body: []byte(name)}
		if err := l.ch.PublishWithContext(t.Context(), "later", "k", true, false, cancel); err != nil {
			t.Fatal(err)
		}
	}
	if r := await(t, returns, "a return"); string(r.Body) != "cancel nothing" || r.ReplyCode != 312 {
		t.Errorf("returned: %d %s", r.ReplyCode, r.Body)
	}
}

// Points in time do not move by a restart, and each has one release.
func TestRecurrenceThroughARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := process.Start(t, "", "--data", dir)
	l := newLater(t, b.URL())
	const every, count = 1000, 5
	published := time.Now()
	l.publish("m", amqp091.Table{"x-schedule-id": "a", "x-schedule-every": int32(every), "x-schedule-count": int32(count)})
	var arrivals []time.Time
	read := func(n int) {
		t.Helper()
		ds, err := l.ch.Consume("q", "", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			d := await(t, ds, "a release")
			if arrivals = append(arrivals, time.Now()); d.Headers["x-schedule-id"] != "a" {
				t.Errorf("released with headers %v", d.Headers)
			}
		}
	}
	read(2)
	if err := l.conn.Close(); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	l = newLater(t, process.Start(t, "", "--data", dir).URL())
	read(3)
	for i, at := range arrivals {
		if early := published.Add(time.Duration(i+1) * every * time.Millisecond); at.Before(early) {
			t.Errorf("release %d came %v early", i, early.Sub(at))
		}
	}
	cancel := amqp091.Publishing{Headers: amqp091.Table{"x-schedule-id": "a", "x-schedule-cancel": true}}
	returns := l.ch.NotifyReturn(make(chan amqp091.Return, 1))
	if err := l.ch.PublishWithContext(t.Context(), "later", "k", true, false, cancel); err != nil {
		t.Fatal(err)
	}
	await(t, returns, "a return, because nothing waits any more")
}

// Definitions of a RabbitMQ with the plugin load, and are exported as they were, so that they load there.
func TestDelayedDefinitions(t *testing.T) {
	t.Parallel()
	definitions := func(kind string) []byte {
		return fmt.Appendf(nil, `{"rabbit_version": "3.10.8", "policies": [], "parameters": [],
			"queues": [{"arguments": {}, "auto_delete": false, "durable": true, "name": "q"}],
			"exchanges": [{"arguments": {"x-delayed-type": "direct"}, "auto_delete": false, "durable": true, "internal": false, "name": "later", "type": %q}],
			"bindings": [{"arguments": {}, "destination": "q", "destination_type": "queue", "routing_key": "k", "source": "later"}]}`, kind)
	}
	want := definitions("x-delayed-message")
	for _, kind := range []string{"x-delayed-message", "x-delayed-exchange"} {
		b := process.Start(t, "")
		b.Ask(t, 204, "POST", "definitions/%2F", json.RawMessage(definitions(kind)))
		sameDefinitions(t, want, b.Ask(t, 200, "GET", "definitions/%2F", nil))
		b.Ask(t, 204, "POST", "definitions/%2F", json.RawMessage(want)) // what is there already stays
		l := newLater(t, b.URL())
		l.publish("m", amqp091.Table{"x-delay": int32(20)})
		ds, err := l.ch.Consume("q", "", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		await(t, ds, "the message")
	}
}

// Policies give an exchange a delay and limits, and take them away again, for what is published from then on.
func TestDelayPolicies(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	l := newLater(t, b.URL())
	set := func(status int, definition string) []byte {
		t.Helper()
		return b.Ask(t, status, "PUT", "policies/%2F/p", json.RawMessage(`{"pattern": "^later$", "apply-to": "exchanges", "definition": `+definition+`}`))
	}
	there := func() bool {
		t.Helper()
		_, ok, err := l.ch.Get("q", true)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	set(201, `{"delay": 700, "max-delay": 3600000, "max-held": 2}`)
	l.publish("m", nil)
	if there() {
		t.Error("not delayed by the policy")
	}
	l.publish("m", amqp091.Table{"x-delay": int32(3_600_000)})
	c, err := l.ch.PublishWithDeferredConfirm("later", "k", false, false, amqp091.Publishing{Headers: amqp091.Table{"x-delay": int32(5)}})
	if err != nil {
		t.Fatal(err)
	}
	if acked, err := c.WaitContext(t.Context()); acked || err != nil {
		t.Errorf("a message more than may be held: confirmed %t, %v, want nack", acked, err)
	}
	if !process.Poll(there) {
		t.Error("the message that was delayed by the policy did not come")
	}
	closed := l.ch.NotifyClose(make(chan *amqp091.Error, 1))
	if err := l.ch.PublishWithContext(t.Context(), "later", "k", false, false, amqp091.Publishing{Headers: amqp091.Table{"x-delay": int32(3_600_001)}}); err != nil {
		t.Fatal(err)
	}
	if err := await(t, closed, "the end of the channel"); err == nil || err.Reason != "PRECONDITION_FAILED - invalid header 'x-delay': {value_too_large,3600001}" {
		t.Errorf("beyond the policy's limit: %v", err)
	}
	l.reopen()
	for definition, want := range map[string]string{
		`{"delay": -1}`:         "-1 is not a valid delay, expected 0 to 315360000000 milliseconds",
		`{"max-delay": 0}`:      "0 is not a valid max-delay, expected 1 to 315360000000 milliseconds",
		`{"max-held": "many"}`:  `is not a valid max-held, expected 1 to 9223372036854775807 messages`,
		`{"delayed-type": "x"}`: "are not recognised policy settings",
	} {
		if got := string(set(400, definition)); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", definition, got, want)
		}
	}
	b.Ask(t, 204, "DELETE", "policies/%2F/p", nil)
	l.publish("m", nil)
	if !there() {
		t.Error("delayed without a policy")
	}
}
