package management

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"
)

// A clock is a queue whose messages live as long as those that a test waits for: when it is empty, they would be gone, too.
const clock = "clock"

// tick waits as long as messages in the clock live, which begins now.
func tick(t *testing.T, ch *amqp091.Channel) {
	t.Helper()
	declare(t, ch, amqp091.Table{"x-message-ttl": 300}, clock)
	send(t, ch, clock, "tick")
	emptied(t, ch, clock)
}

func TestPolicyOnLiveQueue(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			ch := b.newVHost(t, "live")
			declare(t, ch, nil, "live")
			send(t, ch, "live", "immortal")
			tick(t, ch)
			wantDepth(t, ch, "live", 1)
			if _, err := ch.QueuePurge("live", false); err != nil {
				t.Fatal(err)
			}
			b.ctl(t, "set_policy", "-p", "live", "ttl", "^live$", `{"message-ttl":100}`)
			send(t, ch, "live", "mortal")
			emptied(t, ch, "live")
			b.wantListed(t, "live", "name,policy", "live\tttl", "clock\t")
			b.ctl(t, "set_policy", "-p", "live", "ttl", "^live$", `{"message-ttl":3600000}`)
			send(t, ch, "live", "long-lived")
			tick(t, ch)
			wantDepth(t, ch, "live", 1)
			b.ctl(t, "clear_policy", "-p", "live", "ttl")
			b.wantListed(t, "live", "name,policy,messages", "live\t\t1", "clock\t\t0")
		})
	}
}

func TestOperatorPolicyBelowArgument(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			ch := b.newVHost(t, "operator")
			declare(t, ch, amqp091.Table{"x-message-ttl": 3_600_000}, "q")
			b.ctl(t, "set_policy", "-p", "operator", "user", "^q$", `{"message-ttl":1800000,"max-length":5}`)
			send(t, ch, "q", "a")
			tick(t, ch)
			wantDepth(t, ch, "q", 1)
			b.ctl(t, "set_operator_policy", "-p", "operator", "ceiling", "^q$", `{"message-ttl":100,"max-length":7}`)
			if _, err := ch.QueuePurge("q", false); err != nil {
				t.Fatal(err)
			}
			send(t, ch, "q", "b")
			emptied(t, ch, "q")
			b.wantListed(t, "operator", "name,policy", "q\tuser", "clock\t")
			var q struct {
				Operator  string         `json:"operator_policy"`
				Effective map[string]int `json:"effective_policy_definition"`
			}
			eventually(t, "the API tells the effective definition", func() bool {
				b.get(t, at("queues", "operator", "q"), &q)
				return q.Operator == "ceiling" && q.Effective["message-ttl"] == 100 && q.Effective["max-length"] == 5
			})
			b.ctl(t, "clear_operator_policy", "-p", "operator", "ceiling")
			send(t, ch, "q", "c")
			tick(t, ch)
			wantDepth(t, ch, "q", 1)
		})
	}
}

func TestPoliciesByPriority(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			ch := b.newVHost(t, "priority")
			declare(t, ch, nil, "q")
			b.ctl(t, "set_policy", "-p", "priority", "--priority", "2", "high", "q", `{"message-ttl":100}`)
			b.ctl(t, "set_policy", "-p", "priority", "--priority", "1", "low", "^q", `{"message-ttl":3600000,"max-length":3}`)
			send(t, ch, "q", "1", "2", "3", "4")
			b.wantListed(t, "priority", "name,policy", "q\thigh")
			emptied(t, ch, "q")
			b.ctl(t, "set_policy", "-p", "priority", "--priority", "3", "low", "^q", `{"message-ttl":3600000,"max-length":3}`)
			send(t, ch, "q", "1", "2", "3", "4")
			tick(t, ch)
			wantDepth(t, ch, "q", 3)
			b.wantListed(t, "priority", "name,policy", "q\tlow", "clock\t")
		})
	}
}

// unplaced is what our broker says of JSON that RabbitMQ calls not_json: where it is wrong, and why.
var unplaced = regexp.MustCompile(`not_json: line \d+, column \d+: [^"]+`)

// What is refused, rabbitmqctl and rabbitmqadmin show in the transcripts.
func TestPolicyRefusedOverHTTP(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			b.newVHost(t, "refused")
			for _, tt := range []struct{ body, reason string }{
				{`{"pattern":"","definition":{"message-ttl":-1}}`, `Validation failed\n\n-1 is not a valid message TTL\n`},
				{`{"pattern":"","definition":{}}`, `Validation failed\n\nno policy provided\n`},
				{`{"definition":{"expires":1}}`, `[{key_missing,pattern}]`},
				{`{`, `not_json`},
			} {
				status, text := b.http(t, "guest", http.MethodPut, "/policies/refused/p", tt.body)
				text = unplaced.ReplaceAllString(text, "not_json")
				if want := `{"error":"bad_request","reason":"` + tt.reason + `"}`; status != http.StatusBadRequest || strings.TrimSpace(text) != want {
					t.Errorf("PUT %s: %d %s, want 400 %s", tt.body, status, text, want)
				}
			}
			if status, text := b.http(t, "guest", http.MethodGet, "/policies/refused/p", ""); status != http.StatusNotFound {
				t.Errorf("the refused policy is there: %d %s", status, text)
			}
		})
	}
}

// Exchanges have policies, too.
func TestAlternateExchangeByPolicy(t *testing.T) {
	t.Parallel()
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			ch := b.newVHost(t, "alternate")
			declare(t, ch, nil, "stray")
			for name, kind := range map[string]string{"main": "direct", "other": "fanout"} {
				if err := ch.ExchangeDeclare(name, kind, true, false, false, false, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := ch.QueueBind("stray", "", "other", false, nil); err != nil {
				t.Fatal(err)
			}
			b.ctl(t, "set_policy", "-p", "alternate", "--apply-to", "exchanges", "stray", "^main$", `{"alternate-exchange":"other"}`)
			if err := ch.PublishWithContext(t.Context(), "main", "nowhere", false, false, amqp091.Publishing{Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the message went to the alternate exchange", func() bool { return depth(t, ch, "stray") == 1 })
			b.ctl(t, "clear_policy", "-p", "alternate", "stray")
			if err := ch.PublishWithContext(t.Context(), "main", "nowhere", false, false, amqp091.Publishing{Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			send(t, ch, "stray", "later")
			wantDepth(t, ch, "stray", 2)
		})
	}
}
