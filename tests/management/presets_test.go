package management

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// preset loads one of the ready-made definitions files into a virtual host, and opens a channel there.
func (b broker) preset(t *testing.T, file, vhost string) *amqp091.Channel {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(process.Root(t), "policies", "presets", file))
	if err != nil {
		t.Fatal(err)
	}
	ch := b.newVHost(t, vhost)
	elsewhere := strings.ReplaceAll(string(text), `"vhost": "/"`, `"vhost": "`+vhost+`"`)
	if status, stdout, stderr := b.tool(t, elsewhere, "import_definitions"); status != 0 {
		t.Fatalf("%s: exit status %d\n%s%s", file, status, stdout, stderr)
	}
	return ch
}

// sooner sets a policy of a preset again, with other times, because a test has no day to wait.
func (b broker) sooner(t *testing.T, vhost, name, pattern, definition string, args ...string) {
	t.Helper()
	b.ctl(t, append([]string{"set_policy", "-p", vhost, "--apply-to", "queues", name, pattern, definition}, args...)...)
}

func TestPresetTTLForAllQueues(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			ch := b.preset(t, "ttl-for-all-queues.json", "preset-ttl")
			declare(t, ch, nil, "any", "other")
			b.wantListed(t, "preset-ttl", "name,policy", "any\tdefault-ttl", "other\tdefault-ttl")
			b.sooner(t, "preset-ttl", "default-ttl", "", `{"message-ttl":100}`, "--priority", "-100")
			b.ctl(t, "set_policy", "-p", "preset-ttl", "own", "^other$", `{"max-length":10}`)
			send(t, ch, "any", "x")
			send(t, ch, "other", "x")
			emptied(t, ch, "any")
			tick(t, ch)
			wantDepth(t, ch, "other", 1)
		})
	}
}

func TestPresetRetryWithBackOff(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			ch := b.preset(t, "retry-with-back-off.json", "preset-retry")
			for name, next := range map[string]string{"10s": "retry-2", "1m": "retry-3", "10m": "retry-4"} {
				b.sooner(t, "preset-retry", "retry-"+name, `^retry\.`+name+`$`,
					`{"dead-letter-exchange":"work","dead-letter-routing-key":"`+next+`","message-ttl":50}`, "--priority", "10")
			}
			deliveries, err := ch.Consume("work", "", false, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			m := amqp091.Publishing{Body: []byte("work"), DeliveryMode: amqp091.Persistent}
			if err := ch.PublishWithContext(t.Context(), "work", "order.7", false, false, m); err != nil {
				t.Fatal(err)
			}
			for range 4 {
				d := <-deliveries
				if err := d.Reject(false); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "the message is kept", func() bool { return depth(t, ch, "retry.failed") == 1 })
			d, _, err := ch.Get("retry.failed", true)
			if err != nil {
				t.Fatal(err)
			}
			deaths, _ := d.Headers["x-death"].([]any)
			if !slices.ContainsFunc(deaths, failedFourTimes) {
				t.Errorf("x-death does not tell how often it failed: %v", deaths)
			}
		})
	}
}

// failedFourTimes is what an entry of x-death says of the work queue, and of the message's own routing key.
func failedFourTimes(death any) bool {
	entry, _ := death.(amqp091.Table)
	keys, _ := entry["routing-keys"].([]any)
	return entry["queue"] == "work" && entry["reason"] == "rejected" && entry["count"] == int64(4) && len(keys) == 1 && keys[0] == "order.7"
}

func TestPresetReplyQueueExpiry(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			ch := b.preset(t, "reply-queue-expiry.json", "preset-reply")
			declare(t, ch, nil, "reply.1", "rpc.reply-2", "replies")
			b.wantListed(t, "preset-reply", "name,policy", "reply.1\treply-queues", "rpc.reply-2\treply-queues", "replies\t")
			b.sooner(t, "preset-reply", "reply-queues", `^amq\.gen-|^(reply|rpc\.reply)[.-]`, `{"expires":100,"message-ttl":50}`, "--priority", "10")
			eventually(t, "unused reply queues are gone", func() bool {
				return b.ctl(t, "list_queues", "-p", "preset-reply", "-s", "name") == "replies\n"
			})
		})
	}
}

func TestPresetOperatorCeilings(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			ch := b.preset(t, "operator-ceilings.json", "preset-ceilings")
			declare(t, ch, amqp091.Table{"x-max-length": 5_000_000}, "long")
			b.wantListed(t, "preset-ceilings", "name,operator_policy", "long\tceilings")
			b.ctl(t, "set_operator_policy", "-p", "preset-ceilings", "--apply-to", "queues", "ceilings", "", `{"max-length":3,"message-ttl":604800000}`)
			send(t, ch, "long", "1", "2", "3", "4", "5")
			wantDepth(t, ch, "long", 3)
			d, _, err := ch.Get("long", true)
			if err != nil || string(d.Body) != "3" {
				t.Errorf("the oldest should go: got %s, %v", d.Body, err)
			}
		})
	}
}
