package wasm

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/tests/process"
)

// TestBystander measures what a queue notices of hostile modules that other queues use: how long messages take that are published every
// millisecond, while a module is loaded again and again, and has messages to do harm with. It fails if one is lost; what it measures it
// logs, to be compared with what a module costs that does no harm: BYSTANDER=3000 go test -v -run TestBystander ./tests/wasm.
func TestBystander(t *testing.T) {
	t.Parallel()
	n := 10
	if text := os.Getenv("BYSTANDER"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		must(t, err)
	}
	b := start(t, "")
	for _, c := range complaints {
		b.Excuse(c)
	}
	_, err := b.ch.QueueDeclare("bystander", false, false, false, false, nil)
	must(t, err)
	deliveries, err := b.ch.Consume("bystander", "", true, false, false, false, nil)
	must(t, err)
	b.notice("nobody else", n, deliveries)
	for _, m := range append([]wt.Hostile{{Name: "one that does no harm", Module: ttl()}}, wt.Hostiles()...) {
		stop, stopped := make(chan struct{}), make(chan struct{})
		culprit := attach(t, b.Process)
		go func() {
			defer close(stopped)
			culprit.misbehave(m, stop)
		}()
		b.notice(m.Name, n, deliveries)
		close(stop)
		<-stopped
	}
}

// misbehave loads a module, so that it is asked whatever it has done before, and publishes messages to a queue that uses it.
func (b *broker) misbehave(m wt.Hostile, stop <-chan struct{}) {
	name := strings.NewReplacer(" ", "-", ".", "-", ",", "").Replace(m.Name)
	b.ask(201, "PUT", "wasm/policies/"+name, fields{"module": m.Module})
	b.declare(name, amqp091.Table{"x-expiry-strategy": "wasm/" + name, "x-message-ttl": 1000})
	for n := 0; ; n += 64 {
		b.publish(name, n, n+64)
		select {
		case <-stop:
			return
		default:
			b.ask(204, "PUT", "wasm/policies/"+name, fields{"module": m.Module})
		}
	}
}

// notice publishes messages, one a millisecond, and logs how long they took.
func (b *broker) notice(what string, n int, deliveries <-chan amqp091.Delivery) {
	b.t.Helper()
	sent := make(chan time.Time, n)
	go func() {
		for range n {
			time.Sleep(time.Millisecond)
			sent <- time.Now()
			if err := b.ch.PublishWithContext(b.t.Context(), "", "bystander", false, false, amqp091.Publishing{}); err != nil {
				b.t.Error(err)
			}
		}
	}()
	took := make([]time.Duration, n)
	for i := range took {
		if _, open, inTime := process.Receive(deliveries); !open || !inTime {
			b.t.Fatalf("%s: %d messages of %d arrived", what, i, n)
		}
		took[i] = time.Since(<-sent)
	}
	slices.Sort(took)
	us := time.Microsecond
	b.t.Logf("%-24s p50 %s, p99 %s, at most %s", what, took[n/2].Round(us), took[n*99/100].Round(us), took[n-1].Round(us))
}
