package mgmt

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/sdk/hook"
)

// clockwork is a clock that a test moves.
type clockwork struct{ now hook.Instant }

func (c *clockwork) clock() hook.Instant { return c.now }

func (c *clockwork) pass(d time.Duration) { c.now = c.now.Add(d) }

func TestRates(t *testing.T) {
	c := &clockwork{now: 1}
	ms := newMeters(c.clock, 5*time.Second)
	for _, step := range []struct {
		name  string
		after time.Duration
		count int64
		want  float64
	}{
		{"nothing is known at first", 0, 100, 0},
		{"too early for a rate", time.Second, 200, 0},
		{"over the time since the first", 4 * time.Second, 600, 100},
		{"the same rate for a while", 4 * time.Second, 10_000, 100},
		{"the next one", 6 * time.Second, 600, 0},
		{"what has become less", 10 * time.Second, 100, -50},
		{"forgotten", time.Hour, 5000, 0},
		{"known again", 5 * time.Second, 5005, 1},
	} {
		c.pass(step.after)
		if step.name == "forgotten" {
			ms.rates("other", []int64{0})
		}
		if got := ms.rates("key", []int64{step.count}); got[0] != step.want {
			t.Errorf("%s: got %v, want %v", step.name, got[0], step.want)
		}
	}
}

// A rate is unknown before the second sample, and after a pause without requests.
func TestRatesThatAreKnown(t *testing.T) {
	c := &clockwork{now: 1}
	ms := newMeters(c.clock, 5*time.Second)
	for _, step := range []struct {
		after time.Duration
		known bool
	}{
		{0, false},
		{time.Second, false},
		{4 * time.Second, true},
		{4 * time.Second, true},
		{current, false}, // since the sample before, more has passed
		{5 * time.Second, true},
		{time.Minute, false},
		{time.Second, false},
		{4 * time.Second, true},
	} {
		c.pass(step.after)
		if _, known := ms.measure("key", []int64{1}); known != step.known {
			t.Errorf("after %v, at %v: known %v, want %v", step.after, c.now, known, step.known)
		}
	}
	slow := newMeters(c.clock, time.Minute)
	slow.measure("key", []int64{1})
	c.pass(time.Minute)
	if _, known := slow.measure("key", []int64{1}); !known {
		t.Error("with an interval of a minute, no rate is ever known")
	}
}

// RabbitMQ's clients always get numbers; the page gets null for unknown rates, and views leave them out.
func TestUnknownRatesAreNull(t *testing.T) {
	r := newRigWith(t, []chain.Named{{Name: "lettering", Plugin: lettering{}}})
	r.do(201, "PUT", "/api/queues/%2F/q", `{"arguments":{"x-to":"/q"}}`)
	c := r.client(t, guest)
	c.channel()
	connection := url.PathEscape(c.LocalAddr().String() + " -> " + r.api.AMQP.Addresses()[0].String())
	for path, want := range map[string]string{
		"queues?columns=message_stats.publish_details.rate":                    `[{"message_stats":{"publish_details":{"rate":0.0}}}]`,
		"queues?columns=message_stats.publish_details.rate&unknown_rates=true": `[{"message_stats":{"publish_details":{"rate":null}}}]`,
		"queues/%2F/q?columns=messages_details,message_stats.ack_details":      `{"messages_details":{"rate":0.0},"message_stats":{"ack_details":{"rate":0.0}}}`,

		"dead-letters/flow?columns=cycles.rate,edges.rate":              `{"edges":[{"rate":null}],"cycles":[{"rate":null}]}`,
		"connections?columns=recv_oct_details":                          `[{"recv_oct_details":{"rate":0.0}}]`,
		"connections?columns=recv_oct_details&unknown_rates=true":       `[{"recv_oct_details":{"rate":null}}]`,
		"channels?columns=message_stats.ack_details":                    `[{"message_stats":{"ack_details":{"rate":0.0}}}]`,
		"channels?columns=message_stats.ack_details&unknown_rates=true": `[{"message_stats":{"ack_details":{"rate":null}}}]`,

		"connections/" + connection + "?columns=send_oct_details&unknown_rates=true":                                `{"send_oct_details":{"rate":null}}`,
		"connections/" + connection + "/channels?columns=message_stats.ack_details&unknown_rates=true":              `[{"message_stats":{"ack_details":{"rate":null}}}]`,
		"channels/" + connection + url.PathEscape(" (1)") + "?columns=message_stats.ack_details&unknown_rates=true": `{"message_stats":{"ack_details":{"rate":null}}}`,
	} {
		if got := r.do(200, "GET", "/api/"+path, ""); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	for _, view := range []string{"queues", "queue&vhost=%2F&queue=q"} {
		if got := r.do(200, "GET", "/api/live?view="+view, ""); !strings.Contains(got, `"publish_details":{}`) || strings.Contains(got, `"rate":0`) {
			t.Errorf("%s: got %s", view, got)
		}
	}
}

// Returned rates do not change later.
func TestRatesAreValues(t *testing.T) {
	c := &clockwork{now: 1}
	ms := newMeters(c.clock, time.Second)
	ms.rates("key", []int64{0})
	c.pass(time.Second)
	first := ms.rates("key", []int64{1})
	c.pass(time.Second)
	if second := ms.rates("key", []int64{11}); first[0] != 1 || second[0] != 10 {
		t.Errorf("got %v, then %v", first, second)
	}
}

func TestMetersAreBounded(t *testing.T) {
	c := &clockwork{now: 1}
	ms := newMeters(c.clock, time.Second)
	for i := range maxMeters + 10 {
		ms.rates(i, []int64{1})
	}
	if len(ms.all) != maxMeters {
		t.Errorf("got %d meters, want %d", len(ms.all), maxMeters)
	}
	c.pass(time.Hour)
	ms.rates("last", []int64{1})
	if len(ms.all) != 1 {
		t.Errorf("got %d meters after an hour, want one", len(ms.all))
	}
}

func (ms *meters) rates(key any, counts []int64) []float64 {
	rates, _ := ms.measure(key, counts)
	return rates
}
