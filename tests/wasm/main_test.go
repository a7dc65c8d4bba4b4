// Package wasm tests expiry policies in WebAssembly as their users meet them: the real binary, its management API, a client library,
// and modules that mean it harm.
package wasm

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/tests/process"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // the default, which -parallel overrides: these tests wait more than they compute
	goleak.VerifyTestMain(m, process.Cleanup())
}

// broker is a broker with an open channel that is in confirm mode.
type broker struct {
	*process.Process
	t  *testing.T
	ch *amqp091.Channel
}

func start(t *testing.T, yaml string, args ...string) *broker {
	t.Helper()
	return attach(t, process.Start(t, yaml, args...))
}

func attach(t *testing.T, p *process.Process) *broker {
	t.Helper()
	conn, err := process.Dial(p.URL())
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() }) // the broker may have gone before
	b := &broker{Process: p, t: t}
	b.ch, err = conn.Channel()
	must(t, err)
	must(t, b.ch.Confirm(false))
	return b
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// ask makes a request to the management API and wants a status.
func (b *broker) ask(status int, method, path string, body any) []byte {
	b.t.Helper()
	return b.Ask(b.t, status, method, path, body)
}

// fields is JSON that tests write.
type fields map[string]any

// info is what the API tells of a policy, as far as tests look at it.
type info struct {
	UnreadConfig []string `json:"unread_config"`
	Warnings     []string `json:"warnings"`

	Messages   uint64
	Errors     map[string]uint64
	Breaker    string
	RolledBack string `json:"rolled_back"`
	Undecided  int
	AskedAgain int `json:"asked_again"`
	Origin     string
	Loaded     bool
	LastError  string `json:"last_error"`
	Shadow     struct{ Compared, Differing uint64 }
}

func (b *broker) info(name string) (i info) {
	b.t.Helper()
	must(b.t, json.Unmarshal(b.ask(200, "GET", "wasm/policies/"+name, nil), &i))
	return i
}

// declare declares a durable queue whose messages expire into the queue dead.
func (b *broker) declare(name string, args amqp091.Table) {
	b.t.Helper()
	all := amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
	maps.Copy(all, args)
	for _, q := range []struct {
		name string
		args amqp091.Table
	}{{"dead", nil}, {name, all}} {
		_, err := b.ch.QueueDeclare(q.name, true, false, false, false, q.args)
		must(b.t, err)
	}
}

// publish sends messages that carry their number and when they were sent, and waits until the broker has them.
func (b *broker) publish(queue string, from, to int) {
	b.t.Helper()
	var confirms []*amqp091.DeferredConfirmation
	for i := from; i < to; i++ {
		c, err := b.ch.PublishWithDeferredConfirm("", queue, false, false, amqp091.Publishing{
			DeliveryMode: amqp091.Persistent, MessageId: strconv.Itoa(i), AppId: strconv.FormatInt(time.Now().UnixNano(), 10),
		})
		must(b.t, err)
		confirms = append(confirms, c)
	}
	for i, c := range confirms {
		if acked, err := c.WaitContext(b.t.Context()); err != nil || !acked {
			b.t.Fatalf("message %d was not taken: %v", from+i, err)
		}
	}
}

// letter is a message that has expired.
type letter struct {
	number int
	queue  string
	lived  time.Duration
}

// clockSlack is how far the clocks of two processes on a machine may be apart, and what is lost in between.
const clockSlack = 2 * time.Millisecond

// expired waits for so many messages in the queue dead.
func (b *broker) expired(n int) []letter {
	b.t.Helper()
	tag := "reader"
	deliveries, err := b.ch.Consume("dead", tag, true, false, false, false, nil)
	must(b.t, err)
	var all []letter
	for range n {
		d, open, inTime := process.Receive(deliveries)
		if !open || !inTime {
			b.t.Fatalf("%d messages have expired, want %d", len(all), n)
		}
		all = append(all, b.open(d))
	}
	must(b.t, b.ch.Cancel(tag, false))
	for d := range deliveries {
		b.t.Errorf("one too many has expired: %v", b.open(d))
	}
	slices.SortFunc(all, func(x, y letter) int { return x.number - y.number })
	return all
}

func (b *broker) open(d amqp091.Delivery) letter {
	b.t.Helper()
	number, err := strconv.Atoi(d.MessageId)
	must(b.t, err)
	sent, err := strconv.ParseInt(d.AppId, 10, 64)
	must(b.t, err)
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) != 1 {
		b.t.Fatalf("message %d has died %d times", number, len(deaths))
	}
	death, _ := deaths[0].(amqp091.Table)
	if death["reason"] != "expired" {
		b.t.Errorf("message %d has died of %v", number, death["reason"])
	}
	return letter{number, fmt.Sprint(death["queue"]), time.Since(time.Unix(0, sent))}
}

// checkLetters wants the messages from one number to another, each once, and none of them early.
func (b *broker) checkLetters(all []letter, from, to int, ttl time.Duration) {
	b.t.Helper()
	for i, l := range all {
		if l.number != from+i {
			b.t.Fatalf("got message %d, want %d to %d, each once: %v", l.number, from, to-1, all)
		}
		if l.lived < ttl-clockSlack {
			b.t.Errorf("message %d lived for %s, want %s", l.number, l.lived, ttl)
		}
	}
	if len(all) != to-from {
		b.t.Errorf("got %d messages, want %d", len(all), to-from)
	}
}

// waiting is how many messages a queue has.
func (b *broker) waiting(name string) int {
	b.t.Helper()
	q, err := b.ch.QueueDeclarePassive(name, true, false, false, false, nil)
	must(b.t, err)
	return q.Messages
}

// ttl is a module that keeps messages for as long as ttl-ms of its configuration says, in milliseconds.
func ttl() []byte {
	b := wt.New()
	get := b.Host("config_i64")
	wait := b.Global()
	b.Batch(64)
	b.Has(abi.ExportConfigure, b.Text(16, "ttl-ms"), wt.I64(1000), wt.Call(get), wt.GlobalSet(wait), wt.I32(0))
	b.Each(abi.OnEnqueue, wt.Keep(wt.LocalGet(wt.Record), wt.I64Load(abi.RecordEnqueued), wt.GlobalGet(wait), wt.I64Add))
	return b.Bytes()
}
