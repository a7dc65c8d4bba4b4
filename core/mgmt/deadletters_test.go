package mgmt

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// lettering is a plugin that dead-letters to the exchange, and with the key, in x-to.
type lettering struct{ hook.NoHooks }

func (lettering) Attach(q hook.Queue) hook.Hooks {
	to, ok := hook.StringSetting(q, "to")
	if !ok {
		return hook.Hooks{Shared: true}
	}
	t := &hook.Target{}
	t.Exchange, t.Key, t.HasKey = strings.Cut(to, "/")
	route := func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			if vs[i].Action == hook.Drop {
				vs[i].Action, vs[i].Target = hook.Route, t
			}
		}
	}
	return hook.Hooks{OnHead: route, DeadLetters: t}
}

// ways returns the edges as text: "FROM -REASON COUNT-> EXCHANGE/KEY TO", with a "?" behind uncertain ones.
func ways(t *testing.T, answer string) string {
	t.Helper()
	var flow struct {
		Complete bool
		Edges    []struct {
			VHost, From, Exchange, To, Problem string
			Reason, Key                        *string
			OwnKey                             *string `json:"own_key"`
			Count                              int
			Certain, Recent                    bool
			Outcomes                           map[string]int
		}
	}
	must(t, json.Unmarshal([]byte(answer), &flow))
	var all []string
	for _, e := range flow.Edges {
		s := fmt.Sprintf("%s -%s %d-> %s/", e.From, text(e.Reason), e.Count, e.Exchange)
		switch {
		case e.Key != nil:
			s += *e.Key
		case e.OwnKey != nil:
			s += "(" + *e.OwnKey + ")"
		}
		s += " " + e.To + e.Problem
		if !e.Certain {
			s += "?"
		}
		all = append(all, s)
	}
	if !flow.Complete {
		all = append(all, "incomplete")
	}
	return strings.Join(all, "\n")
}

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// lose publishes messages to a queue and rejects them.
func (r *rig) lose(queue string, times int) {
	r.t.Helper()
	for range times {
		r.do(200, "POST", "/api/exchanges/%2F/amq.default/publish", `{"properties":{},"routing_key":"`+queue+`","payload":"x","payload_encoding":"string"}`)
	}
	r.do(200, "POST", "/api/queues/%2F/"+queue+"/get", fmt.Sprintf(`{"count":%d,"ackmode":"reject_requeue_false","encoding":"auto"}`, times))
}

func TestDeadLetterFlow(t *testing.T) {
	recorder := told(100)
	r := newRigWith(t, []chain.Named{{Name: "lettering", Plugin: lettering{}}}, func(o *Options) {
		o.Events, o.Clock = recorder.Events(), func() hook.Instant { return 1 } // no graph takes any time
	})
	if got := r.do(200, "GET", "/api/dead-letters/flow?columns=complete,nodes,edges,cycles", ""); got != `{"complete":true,"nodes":[],"edges":[],"cycles":[]}` {
		t.Errorf("an empty broker: got %s", got)
	}
	for queue, to := range map[string]string{
		"fixed": "/dead", "nowhere": "none/k", "lost": "amq.direct/k", "own": "amq.topic", "named": "", "back": "/back", "idle": "/dead", "chosing": "/dead",
	} {
		r.do(201, "PUT", "/api/queues/%2F/"+queue, `{"arguments":{"x-to":"`+to+`"}}`)
	}
	for _, queue := range []string{"dead", "chosen", "plain", "t1", "t2"} {
		r.do(201, "PUT", "/api/queues/%2F/"+queue, `{}`)
	}
	r.do(201, "POST", "/api/bindings/%2F/e/amq.topic/q/t1", `{"routing_key":"#"}`)
	r.do(201, "POST", "/api/bindings/%2F/e/amq.topic/q/t2", `{"routing_key":"x.#"}`)
	for _, queue := range []string{"fixed", "nowhere", "lost", "own", "named", "plain", "back", "chosing"} {
		r.lose(queue, 3)
	}
	// The strategy of chosing chose for two messages; the events of the third, and of a message of named, are remembered, too.
	recorder.Removed(&telemetry.QueueRef{VHost: "/", Queue: "chosing"}, 1, []telemetry.Removal{
		{Reason: hook.ReasonRejected, Outcome: telemetry.DeadLettered, Target: &hook.Target{Key: "chosen", HasKey: true}},
		{Reason: hook.ReasonRejected, Outcome: telemetry.DeadLettered, Target: &hook.Target{Key: "chosen", HasKey: true}},
		{Reason: hook.ReasonRejected, Outcome: telemetry.DeadLettered, Target: &hook.Target{Key: "dead", HasKey: true}},
	})
	recorder.Removed(&telemetry.QueueRef{VHost: "/", Queue: "named"}, 1, []telemetry.Removal{
		{Reason: hook.ReasonRejected, Outcome: telemetry.DeadLettered, Target: &hook.Target{}, Key: []byte("t1")},
		{Reason: hook.ReasonRejected, Outcome: telemetry.Unroutable, Target: &hook.Target{}, Key: []byte("gone")},
	})
	if got := r.do(200, "GET", "/api/events/remembered", ""); got != `{"messages":5,"most":100,"since":0}` {
		t.Errorf("remembered: got %s", got)
	}
	got := ways(t, r.do(200, "GET", "/api/dead-letters/flow?vhost=%2F", ""))
	lines := strings.Split(got, "\n")
	slices.Sort(lines)
	got = strings.Join(lines, "\n")
	compare(t, got, strings.TrimSpace(`
back -rejected 3-> /back back
chosing -rejected 2-> /chosen chosen
chosing -rejected 3-> /dead dead?
fixed -rejected 3-> /dead dead
idle -null 0-> /dead dead
lost -rejected 3-> amq.direct/k unroutable
named -rejected 1-> /(gone) unroutable?
named -rejected 1-> /(t1) t1?
nowhere -rejected 3-> none/k no_exchange
own -rejected 3-> amq.topic/ t1
own -rejected 3-> amq.topic/ t2?
plain -rejected 3-> / dropped`))
	if got := ways(t, r.do(200, "GET", "/api/dead-letters/flow?name=OST", "")); got != "lost -rejected 3-> amq.direct/k unroutable" {
		t.Errorf("with a name: got %s", got)
	}
	if got := r.do(200, "GET", "/api/dead-letters/flow?limit=4&columns=edges.from,left_out", ""); got != `{"edges":[{"from":"chosing"},{"from":"chosing"},{"from":"fixed"},{"from":"idle"}],"left_out":{"components":5,"edges":8}}` {
		t.Errorf("with a limit: got %s", got)
	}
	for query, want := range map[string]string{
		"limit=0": `limit is \"0\": whole numbers from 1 to 100000 are allowed`, "x=1": `unknown parameter \"x\"; accepted are vhost, name, limit, columns`,
	} {
		if got := r.do(400, "GET", "/api/dead-letters/flow?"+query, ""); !strings.Contains(got, want) {
			t.Errorf("%s: got %s", query, got)
		}
	}
	r.do(404, "GET", "/api/dead-letters/flow?vhost=none", "")
	cycles := r.do(200, "GET", "/api/dead-letters/flow?columns=cycles", "")
	if want := `{"vhost":"/","queues":["back"],"bound":"rejected","slowed":false,"certain":true`; !strings.Contains(cycles, want) {
		t.Errorf("got %s", cycles)
	}
}

// Ten pages that look at ten thousand queues took a sixth of a processor.
func TestDeadLetterFlowIsMadeSeldom(t *testing.T) {
	var now hook.Instant
	r := newRigWith(t, []chain.Named{{Name: "lettering", Plugin: lettering{}}}, func(o *Options) {
		o.Clock = func() hook.Instant {
			now += hook.Instant(time.Millisecond)
			return now
		}
	})
	edges := func() int { return strings.Count(r.do(200, "GET", "/api/dead-letters/flow", ""), `"from"`) }
	r.do(201, "PUT", "/api/queues/%2F/a", `{"arguments":{"x-to":"/dead"}}`)
	if n := edges(); n != 1 {
		t.Fatalf("%d edges, want 1", n)
	}
	r.do(201, "PUT", "/api/queues/%2F/b", `{"arguments":{"x-to":"/dead"}}`)
	if n := edges(); n != 1 {
		t.Errorf("asked again at once: %d edges, want those of before", n)
	}
	now += hook.Instant(time.Second)
	if n := edges(); n != 2 {
		t.Errorf("asked later: %d edges, want 2", n)
	}
	r.do(201, "PUT", "/api/vhosts/other", "")
	if n := edges(); n != 2 {
		t.Errorf("with another virtual host: %d edges, want 2", n)
	}
}

// Reading a million events takes longer than asking a few queues. It counts, too.
func TestDeadLetterFlowCountsReadingEvents(t *testing.T) {
	var now hook.Instant
	calls := 0
	r := newRigWith(t, []chain.Named{{Name: "lettering", Plugin: lettering{}}}, func(o *Options) {
		o.Clock = func() hook.Instant {
			if calls++; calls == 2 { // after reading
				now += hook.Instant(time.Second)
			}
			return now
		}
	})
	a := r.api
	edges := func() (n int) {
		all, _, _ := a.deadLetters.flows.of(a.deadLetters, a.Store.VHosts())
		for _, c := range all {
			n += len(c.Edges)
		}
		return n
	}
	r.do(201, "PUT", "/api/queues/%2F/a", `{"arguments":{"x-to":"/dead"}}`)
	if calls = 0; edges() != 1 {
		t.Fatal("there is no edge")
	}
	r.do(201, "PUT", "/api/queues/%2F/b", `{"arguments":{"x-to":"/dead"}}`)
	now += hook.Instant(10 * time.Second)
	if n := edges(); n != 1 {
		t.Errorf("ten times as long as reading took: %d edges, want those of before", n)
	}
	now += hook.Instant(flowShare * time.Second)
	if n := edges(); n != 2 {
		t.Errorf("much later: %d edges, want 2", n)
	}
}
