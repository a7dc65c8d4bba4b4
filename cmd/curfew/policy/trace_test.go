package policy

import (
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

func TestTracesThatMakeNoSense(t *testing.T) {
	for _, tc := range []struct{ name, trace, want string }{
		{"empty", "", "0: the trace has no events"},
		{"only a queue", `{"event":"queue"}`, "1: the trace has no events"},
		{"no JSON", "# fine\npublish", "2: is not a JSON object: invalid character 'p' looking for beginning of value"},
		{"no event", `{}`, "1: has no event"},
		{"unknown event", `{"event":"nack"}`, `1: there is no event "nack"; there are queue, publish, deliver, ack, requeue and idle`},
		{"unknown member", `{"event":"publish","ttl":1}`, `1: unknown field "ttl"`},
		{"member of another type", `{"event":"publish","at":"1"}`, "1: cannot unmarshal string into Go struct field event.at of type int64"},
		{"backwards", `{"event":"publish","at":2}` + "\n" + `{"event":"publish","at":1}`, "2: at 1 lies before the event above, 2"},
		{"negative", `{"event":"publish","at":-1}`, "1: at -1 lies before the event above, 0"},
		{"far away", `{"event":"publish","at":3153600000001}`, "1: at 3153600000001 is out of range; accepted are up to 3153600000000, a century"},
		{"negative size", `{"event":"publish","size":-1}`, "1: size, deaths, idle and consumers cannot be negative"},
		{"large priority", `{"event":"publish","priority":256}`, "1: cannot unmarshal number 256 into Go struct field event.priority of type uint8"},
		{"ack of nothing", `{"event":"ack"}`, "1: ack needs the id of a message"},
		{"late queue", `{"event":"publish"}` + "\n" + `{"event":"queue"}`, "2: queue has to be the first event"},
		{"two queues", `{"event":"queue"}` + "\n" + `{"event":"queue"}`, "2: queue has to be the first event"},
		{"before 1975", `{"event":"queue","start":"1970-01-01T00:00:00Z"}`, "1: start: the year 1970 is out of range; accepted are 1975 to 9000"},
		{"long line", `{"event":"publish","body":"` + strings.Repeat("a", maxLine) + `"}`, "1: the line is too long; accepted are up to 1048576 bytes"},
	} {
		if _, err := parseTrace(strings.NewReader(tc.trace)); err == nil || err.Error() != tc.want {
			t.Errorf("%s: got %v, want %s", tc.name, err, tc.want)
		}
	}
}

func TestMessagesOfATrace(t *testing.T) {
	tr, err := parseTrace(strings.NewReader(
		`{"event":"queue","settings":{"x-message-ttl":5,"dead-letter-exchange":"dlx"}}` + "\n" +
			`{"event":"publish","expiration":7,"priority":3,"persistent":true,"deaths":2,"exchange":"e","routing_key":"k","type":"t","body":"abc",` +
			`"headers":{"n":12,"f":1.5,"s":"34","b":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := tr.queue.Settings["message-ttl"]; got != int64(5) {
		t.Errorf("message-ttl: got %v, a %T", got, got)
	}
	e := &tr.events[0]
	m := e.message()
	m.Bind(contents{e}, 0)
	if m.Expiration != hook.LimitOf(7) || m.Priority != 3 || !m.Persistent || m.Size != 3 || m.Deaths() != 2 {
		t.Errorf("got %+v", m)
	}
	for p, want := range map[hook.Part]string{
		hook.PartExchange: "e", hook.PartRoutingKey: "k", hook.PartType: "t", hook.PartExpiration: "7", hook.PartBody: "abc",
	} {
		if got := string(m.Part(p)); got != want {
			t.Errorf("part %d: got %q, want %q", p, got, want)
		}
	}
	for _, p := range []hook.Part{hook.PartMessageID, hook.PartAppID, hook.PartUserID, hook.PartHeaders} {
		if got := m.Part(p); got != nil {
			t.Errorf("part %d: got %q, want none", p, got)
		}
	}
	for name, want := range map[string]int64{"n": 12, "s": 34, "b": 1} {
		if got, ok := m.HeaderInt(name); !ok || got != want {
			t.Errorf("header %s: got %d, %t, want %d", name, got, ok, want)
		}
	}
	if _, ok := m.HeaderInt("f"); ok {
		t.Error("1.5 is taken for a whole number")
	}
	if s, ok := m.HeaderText("s"); !ok || string(s) != "34" {
		t.Errorf("header s: got %q, %t", s, ok)
	}
	if _, ok := m.Header("x"); ok {
		t.Error("there is a header x")
	}
}
