package mgmt

import (
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Events have the first 64 bytes of an id: one that is longer finds messages that can be meant, and no shorter ones.
func TestEventsOfLongIDs(t *testing.T) {
	recorder := told(10)
	r := newRig(t, func(o *Options) { o.Events = recorder.Events() })
	long := strings.Repeat("i", 70)
	for _, id := range []string{long[:63], long[:64], long, long[:64] + "other", ""} {
		recorder.Removed(&telemetry.QueueRef{VHost: "/", Queue: "q"}, 1, []telemetry.Removal{{Reason: hook.ReasonExpired, Props: propertiesWith(id)}})
	}
	r.api.EndStreams()
	for id, want := range map[string]string{long[:63]: "1", long[:64]: "2", long: "3 4", long[:62]: "", long + "x": "3 4", strings.Repeat("j", 70): ""} {
		if got := ids(r.do(200, "GET", "/api/events?format=ndjson&history=9&message_id="+id, "")); got != want {
			t.Errorf("%s: got %s, want %s", id, got, want)
		}
	}
}

// An event leads to the trace of a message that was sampled. If a message was not sampled, its publisher's context is not shown, because
// there is no such trace.
func TestEventsHaveTheTrace(t *testing.T) {
	const parent, id = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "0af7651916cd43dd8448eb211c80319c"
	for _, tt := range []struct {
		name, header, value string
		traced              bool
		want                string
	}{
		{"sampled", "traceparent", parent, true, `"` + id + `"`},
		{"not sampled", "traceparent", parent, false, "null"},
		{"no context", "x", parent, true, "null"},
		{"no trace", "traceparent", strings.Replace(parent, id, strings.Repeat("0", 32), 1), true, "null"},
		{"markup", "traceparent", "<img src=x onerror=alert(1)>", true, "null"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			recorder := told(10)
			r := newRig(t, func(o *Options) { o.Events = recorder.Events() })
			props := amqp.Properties{Flags: 1 << (15 - amqp.PropHeaders), Headers: amqp.Table{{Key: tt.header, Value: tt.value}}}.Append(nil)
			recorder.Removed(&telemetry.QueueRef{VHost: "/", Queue: "q"}, 1, []telemetry.Removal{{Reason: hook.ReasonExpired, Props: props, Traced: tt.traced}})
			recorder.Removed(&telemetry.QueueRef{VHost: "/", Queue: "q"}, 1, []telemetry.Removal{{Reason: hook.ReasonExpired}})
			r.api.EndStreams()
			want := `{"trace_id":` + tt.want + "}\n" + `{"trace_id":null}` + "\n"
			if got := r.do(200, "GET", "/api/events?format=ndjson&history=9&columns=trace_id", ""); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}
