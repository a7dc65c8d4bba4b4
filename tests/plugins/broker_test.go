package plugins

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// broker is a running broker and a channel in confirm mode.
type broker struct {
	*process.Process
	t  *testing.T
	ch *amqp091.Channel
}

// start runs the program with the plugins, without a night in which nothing expires.
func start(t *testing.T, args ...string) *broker {
	t.Helper()
	b := &broker{Process: process.StartProgram(t, withPlugins(t), "plugins: {nightshift: {from: 0s, to: 0s}}\n", args...), t: t}
	b.ch = b.channel()
	return b
}

func (b *broker) channel() *amqp091.Channel {
	b.t.Helper()
	conn, err := process.Dial(b.URL())
	must(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close() }) // the broker may have gone before
	ch, err := conn.Channel()
	must(b.t, err)
	must(b.t, ch.Confirm(false))
	return ch
}

func (b *broker) declare(name string, args amqp091.Table) {
	b.t.Helper()
	_, err := b.ch.QueueDeclare(name, true, false, false, false, args)
	must(b.t, err)
}

// publish sends a message and waits until the broker has it.
func (b *broker) publish(exchange, key, body string) {
	b.t.Helper()
	c, err := b.ch.PublishWithDeferredConfirm(exchange, key, false, false, amqp091.Publishing{Body: []byte(body), DeliveryMode: amqp091.Persistent})
	must(b.t, err)
	if acked, err := c.WaitContext(b.t.Context()); err != nil || !acked {
		b.t.Fatalf("%s was not taken: %v", body, err)
	}
}

// take gets a message, which may take a while to arrive.
func (b *broker) take(queue string) (d amqp091.Delivery) {
	b.t.Helper()
	if !process.Poll(func() (found bool) {
		var err error
		d, found, err = b.ch.Get(queue, true)
		must(b.t, err)
		return found
	}) {
		b.t.Fatalf("no message comes into %s", queue)
	}
	return d
}

// ctl runs "curfew ctl" of the program with the plugins.
func (b *broker) ctl(args ...string) (status int, said string) {
	b.t.Helper()
	c := exec.Command(withPlugins(b.t), append([]string{"ctl", "--quiet"}, args...)...)
	c.Env = append(c.Environ(), "CURFEW_CTL_URL=http://"+b.Management)
	out, _ := c.CombinedOutput() // the status says it
	return c.ProcessState.ExitCode(), string(out)
}

type fields map[string]any

// The log says which plugins there are, and where those of others came from.
func TestStartNamesPlugins(t *testing.T) {
	t.Parallel()
	b := start(t)
	if chain := fmt.Sprint(b.Await("plugins")["chain"]); !strings.Contains(chain, ", nightshift, carousel, maxlength, ") {
		t.Errorf("got the chain %s", chain)
	}
	if r := b.Await("plugin"); r["name"] != "carousel" || r["package"] != carousel+"/ring" {
		t.Errorf("got %v", r)
	}
}

// A strategy of others acts by the key of a policy, however the policy comes, and the key is checked as the broker's own are.
func TestPolicyKey(t *testing.T) {
	t.Parallel()
	b := start(t)
	set := func(ttl any) fields {
		return fields{
			"pattern": "^night", "apply-to": "queues",
			"definition": fields{"expiry-strategy": "nightshift", "nightshift-ttl": ttl, "dead-letter-exchange": "", "dead-letter-routing-key": "dead"},
		}
	}
	b.declare("dead", nil)
	for _, tt := range []struct {
		name string
		set  func(b *broker, queue string)
	}{
		{"HTTP", func(b *broker, _ string) { b.Ask(b.t, 201, http.MethodPut, "policies/%2F/http", set(100)) }},
		{"ctl", func(b *broker, _ string) {
			text, err := json.Marshal(set(100)["definition"])
			must(b.t, err)
			if status, said := b.ctl("set_policy", "--apply-to", "queues", "ctl", "^night", string(text)); status != 0 {
				b.t.Fatalf("status %d: %s", status, said)
			}
		}},
		{"definitions", func(b *broker, _ string) {
			p := set(100)
			p["vhost"], p["name"], p["priority"] = "/", "imported", 0
			b.Ask(b.t, 204, http.MethodPost, "definitions", fields{"policies": []fields{p}})
		}},
		{"operator", func(b *broker, queue string) {
			b.Ask(b.t, 201, http.MethodPut, "policies/%2F/http", set(3_600_000))
			b.Ask(b.t, 201, http.MethodPut, "operator-policies/%2F/lower", fields{"pattern": "^" + queue, "apply-to": "queues", "definition": fields{"nightshift-ttl": 100}})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &broker{Process: b.Process, t: t, ch: b.ch}
			queue := "night." + tt.name
			tt.set(b, queue)
			b.declare(queue, nil)
			began := time.Now()
			b.publish("", queue, tt.name)
			d := b.take("dead")
			deaths, _ := d.Headers["x-death"].([]any)
			if string(d.Body) != tt.name || len(deaths) != 1 || fmt.Sprint(deaths[0].(amqp091.Table)["reason"]) != "expired" {
				t.Errorf("got %s with %v", d.Body, deaths)
			}
			const clockSlack = 2 * time.Millisecond
			if lived := time.Since(began); lived < 100*time.Millisecond-clockSlack {
				t.Errorf("the message lived for %s", lived)
			}
			for _, kind := range []string{"policies", "operator-policies"} {
				var all []struct{ Name string }
				decode(t, b.Ask(t, 200, http.MethodGet, kind+"/%2F", nil), &all)
				for _, p := range all {
					b.Ask(t, 204, http.MethodDelete, kind+"/%2F/"+p.Name, nil)
				}
			}
		})
	}
	const refusal = "0 is not a valid nightshift ttl, expected 1 to 315360000000 milliseconds"
	if said := string(b.Ask(t, 400, http.MethodPut, "policies/%2F/x", set(0))); !strings.Contains(said, refusal) {
		t.Errorf("got %s, want in it %s", said, refusal)
	}
	if status, said := b.ctl("set_policy", "x", "^night", `{"nightshift-ttl": 0}`); status == 0 || !strings.Contains(said, refusal) {
		t.Errorf("status %d: %s", status, said)
	}
	// It is the plugin's: the broker alone does not know it.
	plain := process.Start(t, "")
	alone := fields{"pattern": "^night", "definition": fields{"nightshift-ttl": 100}}
	const unknown = "are not recognised policy settings"
	if said := string(plain.Ask(t, 400, http.MethodPut, "policies/%2F/x", alone)); !strings.Contains(said, unknown) {
		t.Errorf("got %s, want in it %s", said, unknown)
	}
}

// A queue argument of others works as the broker's own: checked, and lower than the policy if it is lower.
func TestArgument(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.declare("dead", nil)
	b.declare("night", amqp091.Table{
		"x-expiry-strategy": "nightshift", "x-nightshift-ttl": int32(100), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
	})
	b.publish("", "night", "tired")
	if d := b.take("dead"); string(d.Body) != "tired" {
		t.Errorf("got %s", d.Body)
	}
	_, err := b.channel().QueueDeclare("bad", true, false, false, false, amqp091.Table{"x-nightshift-ttl": int32(0)})
	if want := "PRECONDITION_FAILED - invalid arg 'x-nightshift-ttl' for queue 'bad' in vhost '/': {value_zero,0}"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// An exchange type of others routes, is listed, and refuses what it does not take.
func TestExchangeType(t *testing.T) {
	t.Parallel()
	b := start(t)
	must(t, b.ch.ExchangeDeclare("ring", "x-carousel", true, false, false, false, amqp091.Table{"x-repeat": int32(2)}))
	for _, queue := range []string{"b", "a", "c"} {
		b.declare(queue, nil)
		must(t, b.ch.QueueBind(queue, "", "ring", false, nil))
	}
	for i := range 7 {
		b.publish("ring", "anything", strconv.Itoa(i))
	}
	for _, want := range []struct{ queue, bodies string }{{"a", "0 1 6"}, {"b", "2 3"}, {"c", "4 5"}} {
		var got []string
		for range strings.FieldsSeq(want.bodies) {
			got = append(got, string(b.take(want.queue).Body))
		}
		if strings.Join(got, " ") != want.bodies {
			t.Errorf("%s got %v, want %s", want.queue, got, want.bodies)
		}
	}
	var overview struct {
		Types []struct {
			Name, Description string
			Enabled           bool
		} `json:"exchange_types"`
	}
	decode(t, b.Ask(t, 200, http.MethodGet, "overview", nil), &overview)
	if !slices.ContainsFunc(overview.Types, func(x struct {
		Name, Description string
		Enabled           bool
	},
	) bool {
		return x.Name == "x-carousel" && x.Description == "Each message goes to one of the destinations, in turn" && x.Enabled
	}) {
		t.Errorf("got the types %+v", overview.Types)
	}
	err := b.channel().ExchangeDeclare("bad", "x-carousel", true, false, false, false, amqp091.Table{"x-repeat": int32(0)})
	if want := "PRECONDITION_FAILED - x-repeat: accepted are whole numbers from 1"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	// It is the plugin's: the broker alone does not know it.
	conn, err := process.Dial(process.Start(t, "").URL())
	must(t, err)
	defer func() { _ = conn.Close() }() // its channel has been closed by the broker
	ch, err := conn.Channel()
	must(t, err)
	if err := ch.ExchangeDeclare("ring", "x-carousel", true, false, false, false, nil); err == nil {
		t.Error("the broker without the plugin has the type")
	}
}

// What plugins made is there when they are gone, and works when they are back.
func TestWithoutThePlugins(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	b := start(t, "--data", data)
	must(t, b.ch.ExchangeDeclare("ring", "x-carousel", true, false, false, false, nil))
	for _, queue := range []string{"a", "b"} {
		b.declare(queue, nil)
		must(t, b.ch.QueueBind(queue, "", "ring", false, nil))
	}
	b.Ask(t, 201, http.MethodPut, "policies/%2F/night", fields{"pattern": "^a$", "definition": fields{"nightshift-ttl": 3_600_000}})
	b.publish("ring", "", "first")
	b.Stop()

	plain := process.Start(t, "", "--data", data)
	var ring struct{ Type string }
	decode(t, plain.Ask(t, 200, http.MethodGet, "exchanges/%2F/ring", nil), &ring)
	var bindings []struct{ Destination string }
	decode(t, plain.Ask(t, 200, http.MethodGet, "exchanges/%2F/ring/bindings/source", nil), &bindings)
	if ring.Type != "x-carousel" || len(bindings) != 2 {
		t.Errorf("got the exchange %+v with bindings %v", ring, bindings)
	}
	if said := string(plain.Ask(t, 200, http.MethodGet, "policies/%2F/night", nil)); !strings.Contains(said, `"nightshift-ttl":3600000`) {
		t.Errorf("got the policy %s", said)
	}
	without := &broker{Process: plain, t: t}
	ch := without.channel()
	closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
	must(t, ch.Publish("ring", "", false, false, amqp091.Publishing{}))
	const want = "exchange type x-carousel not found"
	if e, _, inTime := process.Receive(closed); !inTime || e == nil || e.Code != amqp091.PreconditionFailed || !strings.Contains(e.Reason, want) {
		t.Errorf("the channel is closed with %v, want %s", e, want)
	}
	plain.Stop()

	again := start(t, "--data", data)
	again.publish("ring", "", "second")
	if first, second := again.take("a"), again.take("a"); string(first.Body) != "first" || string(second.Body) != "second" {
		t.Errorf("got %s and %s", first.Body, second.Body)
	}
}
