package mgmt

import (
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// released tells of messages that were held in a queue and in an exchange of one name, and then ends the stream.
func released(tb testing.TB) *rig {
	tb.Helper()
	recorder := told(100)
	r := newRig(tb, func(o *Options) { o.Events = recorder.Events() })
	at := hook.Instant(5_000_000_000)
	dlx := &hook.Target{Exchange: "dlx", Key: "dead", HasKey: true}
	recorder.Removed(&telemetry.QueueRef{VHost: "/", Queue: "later", Strategy: "deadline"}, at, []telemetry.Removal{
		{Reason: hook.ReasonReleased, Outcome: telemetry.Ready, Key: []byte("orders"), Enqueued: at - 2_000_000_000, Held: at - 1_500_000},
		{Reason: hook.ReasonRedriven, Outcome: telemetry.DeadLettered, Target: dlx},
		{Reason: hook.ReasonReleased, Outcome: telemetry.Ready},
	})
	recorder.Removed(&telemetry.QueueRef{VHost: "/", Queue: "later", Schedule: true}, at, []telemetry.Removal{
		{Reason: hook.ReasonReleased, Outcome: telemetry.DeadLettered, Target: dlx, Exchange: []byte("later"), Key: []byte("new"), Held: at - 1_000_000},
		{Reason: hook.ReasonReleased, Outcome: telemetry.Unroutable, Target: dlx, Exchange: []byte("later"), Held: at},
		{Reason: hook.ReasonCancelled, Exchange: []byte("later"), Props: propertiesWith("id-2"), Held: at + 3_000_000_000},
	})
	r.api.EndStreams()
	return r
}

// A released, cancelled or redriven message is shown as that, and not as expired or dead-lettered.
func TestEventsOfHeldMessages(t *testing.T) {
	want := []string{
		`{"id":1001,"kind":"message_released","time":5000,"vhost":"/","queue":"later","strategy":"deadline","reason":"released","outcome":"ready","exchange":"","routing_key":"orders","message_id":null,"body_bytes":0,"enqueued":3000,"deadline":null,"lateness_ms":1.5,"held_until":4998,"queues":null,"trace_id":null}`,
		`{"id":1002,"kind":"message_redriven","time":5000,"vhost":"/","queue":"later","strategy":"deadline","reason":"redriven","outcome":"routed","exchange":"","routing_key":"","message_id":null,"body_bytes":0,"enqueued":null,"deadline":null,"lateness_ms":null,"target_exchange":"dlx","target_routing_key":"dead","queues":null,"trace_id":null}`,
		`{"id":1003,"kind":"message_released","time":5000,"vhost":"/","queue":"later","strategy":"deadline","reason":"released","outcome":"ready","exchange":"","routing_key":"","message_id":null,"body_bytes":0,"enqueued":null,"deadline":null,"lateness_ms":null,"held_until":null,"queues":null,"trace_id":null}`,
		`{"id":1004,"kind":"message_released","time":5000,"vhost":"/","schedule":"later","reason":"released","outcome":"routed","exchange":"later","routing_key":"new","message_id":null,"body_bytes":0,"enqueued":null,"deadline":null,"lateness_ms":1.0,"held_until":4999,"queues":null,"trace_id":null}`,
		`{"id":1005,"kind":"message_dropped","time":5000,"vhost":"/","schedule":"later","reason":"released","outcome":"unroutable","exchange":"later","routing_key":"","message_id":null,"body_bytes":0,"enqueued":null,"deadline":null,"lateness_ms":0.0,"held_until":5000,"queues":null,"trace_id":null}`,
		`{"id":1006,"kind":"schedule_cancelled","time":5000,"vhost":"/","schedule":"later","reason":"cancelled","outcome":"dropped","exchange":"later","routing_key":"","message_id":"id-2","body_bytes":0,"enqueued":null,"deadline":null,"lateness_ms":null,"held_until":8000,"queues":null,"trace_id":null}`,
	}
	compare(t, released(t).do(200, "GET", "/api/events?format=ndjson&history=100", ""), strings.Join(want, "\n")+"\n")
}

// A queue and an exchange may have one name: their messages are told apart.
func TestFiltersOfHeldMessages(t *testing.T) {
	r := released(t)
	for query, want := range map[string]string{
		"queue=later":           "1 2 3",
		"queue_regex=.":         "1 2 3",
		"schedule=later":        "4 5 6",
		"schedule=late":         "",
		"schedule=":             "",
		"kind=message_released": "1 3 4",
		"kind=schedule_cancelled,message_redriven": "2 6",
		"reason=released":                          "1 3 4 5",
		"reason=cancelled":                         "6",
		"outcome=ready,routed":                     "1 2 3 4",
		"outcome=unroutable&schedule=later":        "5",
	} {
		if got := ids(r.do(200, "GET", "/api/events?format=ndjson&history=100&"+query, "")); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
	w := r.serve(r.request(guest, "GET", "/api/events?"+url.Values{"queue": {"a"}, "schedule": {"b"}}.Encode(), ""))
	if w.Code != 400 || !strings.Contains(w.Body.String(), "queue and schedule exclude each other") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// exchange_deleted was an event that no document named.
func TestEventsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("README.md")
	must(t, err)
	for k := range telemetry.Kinds {
		if name := regexp.MustCompile(`\b` + k.String() + `\b`); !name.Match(text) {
			t.Errorf("README.md does not name %s", k)
		}
	}
}
