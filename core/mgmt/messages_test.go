package mgmt

import (
	"fmt"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// One request could have all messages of a queue in memory if it asked for nothing of their bodies, because only bodies counted. Any user
// with the right to read a queue could use up the memory with it.
func TestFetchIsBounded(t *testing.T) {
	for _, tt := range []struct {
		name  string
		props amqp.Properties
		body  string
		fetch string
	}{
		{"without bodies", amqp.Properties{}, "", `"truncate":0`},
		{"bodies not shown", amqp.Properties{}, strings.Repeat("x", 100), `"truncate":0`},
		{"headers", headersOf(2000), "", `"truncate":0`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := jsonobj.Read(fmt.Appendf(nil, `{"count":100000000,"ackmode":"ack_requeue_true","encoding":"auto",%s}`, tt.fetch), nil)
			got := readFetching(r)
			must(t, r.Err())
			props := tt.props.Append(nil)
			shown, size, n := 0, 0, 0
			for ; shown < maxFetched && n < 1<<17; n++ {
				o, err := got.message(&amqp.BasicGetOK{}, props, []byte(tt.body), &shown)
				must(t, err)
				size += len(o.Append(nil))
			}
			if n == 1<<17 || size > 2*maxFetched {
				t.Errorf("%d messages, which are %d bytes of JSON, are fetched at once", n, size)
			}
		})
	}
}

// headersOf are properties with so many headers.
func headersOf(n int) (p amqp.Properties) {
	for range n {
		p.Headers = append(p.Headers, amqp.Field{})
	}
	p.Set(amqp.PropHeaders)
	return p
}

// Over HTTP messages were taken while publishers waited for memory, or for space on the disk: both could be used up that way.
func TestNoPublishingInAnAlarm(t *testing.T) {
	r := newRig(t)
	const message = `{"properties":{},"routing_key":"q","payload":"x","payload_encoding":"string"}`
	for alarm, want := range map[string]string{
		"memory":  `< 503 [Retry-After: 1] {"error":"resource_alarm","reason":"publishers wait: the broker is low on memory"}`,
		"disk":    `< 503 [Retry-After: 1] {"error":"resource_alarm","reason":"publishers wait: the broker is low on disk"}`,
		"shard 2": `< 200 {"routed":false}`, // other shards do not have it
	} {
		r.alarms = []string{alarm}
		if got := strings.TrimSpace(r.ask("POST /api/exchanges/%2F/amq.default/publish " + message)); got != want {
			t.Errorf("%s: got %s, want %s", alarm, got, want)
		}
	}
}

// Headers that fit no consumer's frames were taken: the channel of each consumer was closed by them, again and again.
func TestPublishingWhatFitsNoFrame(t *testing.T) {
	r := newRig(t)
	message := fmt.Sprintf(`{"properties":{"headers":{"k":%q}},"routing_key":"q","payload":"x","payload_encoding":"string"}`, strings.Repeat("v", 128<<10))
	got := strings.TrimSpace(r.ask("POST /api/exchanges/%2F/amq.default/publish " + message))
	const want = `< 400 {"error":"bad_request","reason":"406 PRECONDITION_FAILED - properties of 131085 bytes fit no frame, the limit is `
	if !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}
