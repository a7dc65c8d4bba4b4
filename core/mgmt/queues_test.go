package mgmt

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/sdk/hook"
)

// keeper is a plugin that tells times to live, leases and dead letters, for queue objects to show.
type keeper struct{}

func (keeper) Arguments() []hook.Argument {
	anything := func(any, hook.Args) error { return nil }
	limit := &hook.PolicyKey{Operator: true, Merge: hook.TakeLower, Argument: hook.TakeLower}
	return []hook.Argument{{Name: "x-message-ttl", Check: anything, Policy: limit}, {Name: "x-expires", Check: anything, Policy: limit}, {Name: "x-dead-letter-exchange", Check: anything}}
}

func (keeper) Strategies() []string    { return []string{"keeper"} }
func (keeper) DefaultStrategy() string { return "keeper" }

func (keeper) Attach(q hook.Queue) hook.Hooks {
	ttl, lease := hook.IntSetting(q, "message-ttl"), hook.IntSetting(q, "expires")
	exchange, dead := hook.StringSetting(q, "dead-letter-exchange")
	leave := func(v *hook.Verdict) {
		if v.Action == hook.Drop && dead {
			v.Action, v.Target = hook.Route, &hook.Target{Exchange: exchange, Key: "dead", HasKey: true, AtLeastOnce: q.Type() == "quorum"}
		}
	}
	return hook.Hooks{
		Strategy: true,
		OnEnqueue: func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) {
			for i := range vs {
				if ttl.Set() {
					vs[i].Deadline = now.AddMillis(ttl.N())
				}
				if ttl.Set() && ttl.N() == 0 {
					vs[i].Action, vs[i].Reason = hook.Drop, hook.ReasonExpired
				}
				leave(&vs[i])
			}
		},
		OnHead: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
			for i := range vs {
				leave(&vs[i])
			}
		},
		OnIdle: func(now hook.Instant, idle time.Duration, v *hook.Verdict) {
			if lease.Set() {
				v.Deadline = now.AddMillis(lease.N()).Add(-idle)
			}
		},
	}
}

// Dead letters that wait for a queue to take them were counted as ready, although no consumer gets them.
func TestDiscardedAreNotReady(t *testing.T) {
	r := newRigWith(t, []chain.Named{{Name: "keeper", Plugin: keeper{}}})
	r.do(201, "PUT", "/api/queues/%2F/q", `{"durable":true,"arguments":{"x-queue-type":"quorum","x-dead-letter-exchange":""}}`)
	r.do(200, "POST", "/api/exchanges/%2F/amq.default/publish", `{"properties":{},"routing_key":"q","payload":"x","payload_encoding":"string"}`)
	r.do(200, "POST", "/api/queues/%2F/q/get", `{"count":1,"ackmode":"reject_requeue_false","encoding":"auto"}`)

	const want = `"messages":1,"messages_ready":0,"messages_unacknowledged":0`
	for path, want := range map[string]string{
		"/api/queues/%2F/q?columns=messages,messages_ready,messages_unacknowledged":                   "{" + want + "}",
		"/api/queues/%2F?disable_stats=true&enable_queue_totals=true&columns=messages,messages_ready": `[{"messages":1,"messages_ready":0}]`,
		"/api/queues?sort=messages_ready&columns=messages_ready":                                      `[{"messages_ready":0}]`,
		"/api/overview?columns=queue_totals.messages,queue_totals.messages_ready":                     `{"queue_totals":{"messages":1,"messages_ready":0}}`,
	} {
		if got := r.do(200, "GET", path, ""); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// A queue object shows the effective settings, the next event, and the ends of messages.
func TestQueueObject(t *testing.T) {
	const late = 90 * time.Second // by which the clock of the API is ahead of the queues'
	r := newRigWith(t, []chain.Named{{Name: "keeper", Plugin: keeper{}}}, func(o *Options) {
		clock := o.Clock
		o.Clock = func() hook.Instant { return clock().Add(late) }
	})
	r.do(201, "PUT", "/api/policies/%2F/p", `{"pattern":"^q","definition":{"message-ttl":3600000,"expires":7200000}}`)
	r.do(201, "PUT", "/api/operator-policies/%2F/o", `{"pattern":"^q","definition":{"message-ttl":1800000}}`)
	since := time.Now()
	for name, args := range map[string]string{
		"q": "", "empty": "", "dead": "", "drops": `"x-message-ttl":0`, "passes": `"x-message-ttl":0,"x-dead-letter-exchange":""`,
		"rejects": `"x-dead-letter-exchange":""`,
	} {
		r.do(201, "PUT", "/api/queues/%2F/"+name, `{"arguments":{`+args+`}}`)
	}
	for _, name := range []string{"q", "drops", "passes", "rejects"} {
		r.do(200, "POST", "/api/exchanges/%2F/amq.default/publish", `{"properties":{"timestamp":7},"routing_key":"`+name+`","payload":"x","payload_encoding":"string"}`)
	}
	r.do(200, "POST", "/api/queues/%2F/rejects/get", `{"count":1,"ackmode":"reject_requeue_false","encoding":"auto"}`)

	const none = `{"expired":0,"rejected":0,"maxlen":0,"delivery_limit":0,"queue_expired":0,"duplicate":0,"too_large":0}`
	const one = `{"expired":1,"rejected":0,"maxlen":0,"delivery_limit":0,"queue_expired":0,"duplicate":0,"too_large":0}`
	for name, want := range map[string]map[string]string{
		"q": {
			"policy": `"p"`, "operator_policy": `"o"`, "effective_policy_definition": `{"expires":7200000,"message-ttl":1800000}`,
			"expiry_strategy": `"keeper"`, "messages_expired": "0", "head_message_timestamp": "7", "messages": "1",
		},
		"empty": {
			"policy": "null", "operator_policy": "null", "effective_policy_definition": "{}", "next_deadline": "null", "lease_expires_at": "null",
			"oldest_message_age": "null", "messages_expired": "0", "messages_dead_lettered": sorted(none), "messages_dropped": sorted(none),
		},
		"drops":   {"messages_expired": "1", "messages_dropped": sorted(one), "messages_dead_lettered": sorted(none), "messages": "0"},
		"passes":  {"messages_expired": "1", "messages_dropped": sorted(none), "messages_dead_lettered": sorted(one), "messages": "0"},
		"rejects": {"messages_expired": "0", "messages_dead_lettered": `{"delivery_limit":0,"duplicate":0,"expired":0,"maxlen":0,"queue_expired":0,"rejected":1,"too_large":0}`},
		"dead":    {"messages": "2", "messages_dead_lettered": sorted(none)},
	} {
		var o map[string]any
		r.into("/api/queues/%2F/"+name, &o)
		wantMembers(t, o, want)
	}
	var q map[string]any
	r.into("/api/queues/%2F/q", &q)
	passed := time.Since(since).Milliseconds() + 1
	for name, after := range map[string]int64{"next_deadline": 1_800_000, "lease_expires_at": 7_200_000} {
		if got := count(q[name]) - since.UnixMilli(); got < after-1 || got > after+passed {
			t.Errorf("%s: got %d ms from the beginning, want %d to %d", name, got, after, after+passed)
		}
	}
	if got := count(q["oldest_message_age"]); got < late.Milliseconds() || got > late.Milliseconds()+passed {
		t.Errorf("oldest_message_age: got %d, want %d to %d", got, late.Milliseconds(), late.Milliseconds()+passed)
	}
}

// sorted is an object as the tests print it.
func sorted(o string) string {
	v, _ := jsonobj.Parse([]byte(o))
	return string(jsonobj.Append(nil, jsonobj.FromParsed(v)))
}

// The names of members were made into values of type any for each object: a list of queues took twice the allocations.
func TestAllocationsForEachQueue(t *testing.T) {
	const queues = 200
	r := newRig(t)
	for i := range queues {
		r.do(201, "PUT", "/api/queues/%2F/q"+strconv.Itoa(i), "")
	}
	for _, tc := range []struct {
		path string
		most float64
	}{
		{"/api/queues", 50},
		{"/api/queues?columns=name,messages", 27},
		{"/api/queues?disable_stats=true&enable_queue_totals=true", 15},
		{"/api/queues?sort=messages&page=1&page_size=1", 4},
		{"/api/queues?sort=next_deadline&page=1&page_size=1", 4},
		{"/api/bindings", 9},
		{"/api/overview", 2},
	} {
		q := r.request(guest, "GET", tc.path, "")
		n := testing.AllocsPerRun(10, func() { r.api.ServeHTTP(discard{}, q) }) / queues
		if n > tc.most {
			t.Errorf("%s: got %.1f allocations for each queue, want %.0f at most", tc.path, n, tc.most)
		}
	}
}

// discard is a [http.ResponseWriter] that keeps nothing.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// The counts of a vhost go with it: a vhost that is created anew begins with none.
func TestDeletedVHostIsForgotten(t *testing.T) {
	r := newRig(t)
	r.do(201, "PUT", "/api/vhosts/v", "")
	c, err := amqp.DialConfig("amqp://"+guest+"@"+r.api.AMQP.Addresses()[0].String(), amqp.Config{Vhost: "v"})
	must(t, err)
	ch, err := c.Channel()
	must(t, err)
	must(t, ch.PublishWithContext(t.Context(), "", "nowhere", false, false, amqp.Publishing{}))
	must(t, ch.Close()) // its counts are added up now
	published := func(want string) {
		t.Helper()
		var v map[string]any
		r.into("/api/vhosts/v", &v)
		wantMembers(t, v["message_stats"].(map[string]any), map[string]string{"publish": want})
	}
	published("1")
	must(t, c.Close())
	r.do(204, "DELETE", "/api/vhosts/v", "")
	r.do(201, "PUT", "/api/vhosts/v", "")
	published("0")
	if got := len(r.api.AMQP.Sessions().ClosedCounters()); got > 1 {
		t.Errorf("%d vhosts are remembered", got)
	}
}
