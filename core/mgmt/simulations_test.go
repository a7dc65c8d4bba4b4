package mgmt

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/simulation"
	"github.com/curfewmq/curfew/sdk/hook"
)

// rehearsing is a lab whose plugin drops messages that are due after a second.
type rehearsing struct {
	bench
	chain     *chain.Chain
	candidate *Module
	refusal   error
	began     func()
	closed    int
}

// Rehearse implements [Lab].
func (l *rehearsing) Rehearse(m *Module) (Rehearsal, error) {
	l.candidate = m
	if l.began != nil {
		l.began()
	}
	return l, l.refusal
}

func (l *rehearsing) Stage() *simulation.Stage {
	return &simulation.Stage{Chain: l.chain.Rehearse(chain.Rehearsal{}), Opinions: func() []simulation.Opinion {
		return []simulation.Opinion{{Policy: "shade", Digest: "abc", Differs: true, Verdict: hook.Verdict{Action: hook.Refuse}}}
	}}
}

func (l *rehearsing) Candidate() json.RawMessage {
	if l.candidate == nil {
		return nil
	}
	return json.RawMessage(`{"name":"` + l.candidate.Name + `"}`)
}
func (*rehearsing) Strategy() string { return "" }
func (l *rehearsing) Close()         { l.closed++ }

// seconds is a strategy that dead-letters to the key late after a second.
type seconds struct{ hook.NoHooks }

func (seconds) Strategies() []string    { return []string{"seconds"} }
func (seconds) DefaultStrategy() string { return "seconds" }
func (seconds) Attach(hook.Queue) hook.Hooks {
	return hook.Hooks{
		Strategy:  true,
		OnEnqueue: func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) { vs[0].Deadline = now.AddMillis(1000) },
		OnHead: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
			vs[0].Action, vs[0].Reason, vs[0].Target = hook.Route, hook.ReasonExpired, &hook.Target{Key: "late", HasKey: true}
		},
	}
}

func newRehearsing(t *testing.T) (*rig, *rehearsing) {
	t.Helper()
	c, err := chain.New([]chain.Named{{Name: "seconds", Plugin: seconds{}}, {Name: "expirations", Plugin: expirations{}}}, chain.Options{})
	must(t, err)
	l := &rehearsing{chain: c}
	return newRig(t, func(o *Options) { o.Lab = l }), l
}

func TestSimulation(t *testing.T) {
	r, l := newRehearsing(t)
	r.do(201, "PUT", "/api/queues/%2F/q", "{}")
	r.do(201, "PUT", "/api/queues/%2F/late", "{}")
	var got struct {
		Queue    struct{ Name, VHost, Strategy string }
		Timeline []struct {
			AfterMS int `json:"after_ms"`
			Hook    *string
			Text    string
			Verdict *struct{ Action string }
			To      *struct{ Queues []string }
			Shadow  *struct {
				Policy, Text string
				Differs      bool
			}
		}
		End struct {
			State string
			To    struct{ Queues []string }
		}
		Complete bool
		Module   any
	}
	body := r.do(200, "POST", "/api/simulations", `{"queue":{"name":"q"},"strategy":"seconds","at":5000,"message":{"payload_bytes":7}}`)
	must(t, json.Unmarshal([]byte(body), &got))
	if len(got.Timeline) != 2 || !got.Complete || got.End.State != "dead_lettered" || len(got.End.To.Queues) != 1 || got.End.To.Queues[0] != "late" || got.Module != nil {
		t.Fatalf("got %s", body)
	}
	first, last := &got.Timeline[0], &got.Timeline[1]
	if first.AfterMS != 0 || *first.Hook != "on_enqueue" || first.Text != "keep until +1s" || first.Verdict.Action != "keep" || !first.Shadow.Differs ||
		first.Shadow.Text != "refuse: the publisher gets basic.nack" {
		t.Errorf("got %+v", first)
	}
	if last.AfterMS != 1000 || *last.Hook != "on_deadline" || last.To.Queues[0] != "late" {
		t.Errorf("got %+v", last)
	}
	if l.closed != 1 {
		t.Errorf("closed %d times", l.closed)
	}
	if got := r.do(200, "GET", "/api/queues/%2F/q?columns=messages", ""); got != `{"messages":0}` {
		t.Errorf("the queue has %s", got)
	}
	body = r.do(200, "POST", "/api/simulations", `{"settings":{"arguments":{"x-max-priority":3}},"strategy":"seconds","module":{"name":"m","shadow":"seconds"}}`)
	if !strings.Contains(body, `"name":"simulated"`) || !strings.Contains(body, `"x-max-priority":3`) || !strings.Contains(body, `"module":{"name":"m"}`) {
		t.Errorf("got %s", body)
	}
}

func TestSimulationErrors(t *testing.T) {
	r, l := newRehearsing(t)
	r.do(201, "PUT", "/api/queues/%2F/q", "{}")
	for _, tc := range []struct {
		body, want string
		status     int
	}{
		{`[]`, "not_json", 400},
		{`{}`, "one of queue", 400},
		{`{"queue":{"name":"q"},"settings":{}}`, "one of queue", 400},
		{`{"queue":{}}`, "[{key_missing,name}]", 400},
		{`{"queue":{"name":"none"}}`, "no queue 'none' in vhost '/'", 404},
		{`{"queue":{"name":"q","vhost":"none"}}`, "User not authorised to access virtual host", 401},
		{`{"queue":{"name":"q"},"strateg":"x"}`, `unknown member \"strateg\"`, 400},
		{`{"queue":{"name":"q"},"strategy":"x"}`, "unknown expiry strategy 'x', expected one of seconds", 400},
		{`{"settings":{"arguments":{"x-max-priority":-1}}}`, "x-max-priority", 400},
		{`{"queue":{"name":"q"},"module":{}}`, "module needs the member module, in base64, or name", 400},
		{`{"queue":{"name":"q"},"module":{"module":"*"}}`, "module is not base64", 400},
		{`{"queue":{"name":"q"},"module":{"module":""}}`, "module.module is empty", 400},
		{`{"queue":{"name":"q"},"module":{"name":"m","fuel":"large"}}`, "module.fuel is for modules that are not loaded", 400},
		{`{"queue":{"name":"q"},"module":{"name":"m"},"strategy":"seconds"}`, "strategy and module", 400},
		{`{"queue":{"name":"q"},"message":{"payload":"abc","payload_bytes":2}}`, "payload_bytes is 2: the payload has 3", 400},
		{`{"queue":{"name":"q"},"message":{"properties":{"headers":1}}}`, "headers", 400},
		{`{"queue":{"name":"q"},"at":-1}`, "at is -1", 400},
		{`{"queue":{"name":"q"},"for_ms":999999999999999}`, "for_ms is 999999999999999: 0 to 315360000000 are allowed", 400},
		{`{"queue":{"name":"q"},"steps":1}`, "steps is no list", 400},
		{`{"queue":{"name":"q"},"steps":[1]}`, "step 1 is no object", 400},
		{`{"queue":{"name":"q"},"steps":[{"after_ms":1,"do":"x"}]}`, "deliver, ack, reject, requeue, fail are known", 400},
		{`{"queue":{"name":"q"},"steps":[{"after_ms":2,"do":"ack"},{"after_ms":1,"do":"ack"}]}`, "step 2 comes before", 400},
		{`{"queue":{"name":"q"},"steps":[` + strings.Repeat(`{},`, 100) + `{}]}`, "steps has 101: at most 100", 400},
	} {
		if got := r.do(tc.status, "POST", "/api/simulations", tc.body); !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %s, want %s", tc.body, got, tc.want)
		}
	}
	l.refusal = &ModuleError{Text: "no memory"}
	if got := r.do(400, "POST", "/api/simulations", `{"queue":{"name":"q"}}`); !strings.Contains(got, "no memory") {
		t.Errorf("got %s", got)
	}
}

// A user without permission to read a queue does not learn the fate of its messages, and only administrators run modules of their own.
func TestSimulationAccess(t *testing.T) {
	r, _ := newRehearsing(t)
	r.do(201, "PUT", "/api/queues/%2F/q", "{}")
	r.do(201, "PUT", "/api/users/m", `{"password":"m","tags":"monitoring"}`)
	r.do(201, "PUT", "/api/permissions/%2F/m", `{"configure":"","write":"","read":"^q$"}`)
	r.do(201, "PUT", "/api/queues/%2F/secret", "{}")
	for body, want := range map[string]int{
		`{"queue":{"name":"q"},"strategy":"seconds"}`:                                               200,
		`{"queue":{"name":"q"},"strategy":"seconds","module":{"name":"loaded","shadow":"seconds"}}`: 200,
		`{"queue":{"name":"secret"}}`:                                                               401,
		`{"queue":{"name":"q"},"module":{"module":"AGFzbQ=="}}`:                                     401,
	} {
		if w := r.serve(r.request("m:m", "POST", "/api/simulations", body)); w.Code != want {
			t.Errorf("%s: got %d %s, want %d", body, w.Code, w.Body, want)
		}
	}
}

// Only a few simulations run at a time: other clients are asked to come back.
func TestSimulationsAtATime(t *testing.T) {
	r, l := newRehearsing(t)
	depth := 0
	l.began = func() {
		if depth++; depth <= maxSimulations {
			want := 200
			if depth == maxSimulations {
				want = 503
			}
			w := r.serve(r.request(guest, "POST", "/api/simulations", `{"settings":{},"strategy":"seconds"}`))
			if w.Code != want || want == 503 && w.Header().Get("Retry-After") == "" {
				t.Errorf("simulation %d: got %d %s", depth+1, w.Code, w.Body)
			}
		}
	}
	r.do(200, "POST", "/api/simulations", `{"settings":{},"strategy":"seconds"}`)
}

// keeping is a strategy that dead-letters at once, to the default exchange, and leaves messages their key.
type keeping struct{ hook.NoHooks }

func (keeping) Strategies() []string    { return []string{"keeping"} }
func (keeping) DefaultStrategy() string { return "" }
func (keeping) Attach(q hook.Queue) hook.Hooks {
	if q.Strategy() != "keeping" {
		return hook.Hooks{Shared: true}
	}
	return hook.Hooks{Strategy: true, OnEnqueue: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		vs[0].Action, vs[0].Reason, vs[0].Target = hook.Route, hook.ReasonExpired, &hook.Target{}
	}}
}

// Dead letters that keep their key also go where the headers CC and BCC say, as in package vhost.
func TestSimulationOfSelectedKeys(t *testing.T) {
	r, l := newRehearsing(t)
	var err error
	l.chain, err = chain.New([]chain.Named{{Name: "seconds", Plugin: seconds{}}, {Name: "keeping", Plugin: keeping{}}}, chain.Options{})
	must(t, err)
	for _, q := range []string{"q", "copy", "blind", "late"} {
		r.do(201, "PUT", "/api/queues/%2F/"+q, "{}")
	}
	for _, tc := range []struct{ strategy, headers, want string }{
		{"keeping", `{"CC":["copy"],"BCC":["blind"]}`, `"queues":["q","copy","blind"]`},
		{"keeping", `{"CC":["copy"],"x-death":[{"count":1}]}`, `"queues":["q"]`},
		{"keeping", `{"CC":1}`, `"queues":["q"]`},
		{"seconds", `{"CC":["copy"]}`, `"queues":["late"]`}, // the target has a key
	} {
		body := r.do(200, "POST", "/api/simulations", `{"queue":{"name":"q"},"strategy":"`+tc.strategy+`","message":{"properties":{"headers":`+tc.headers+`}}}`)
		if !strings.Contains(body, tc.want) {
			t.Errorf("%s with %s: got %s, want %s", tc.strategy, tc.headers, body, tc.want)
		}
	}
}

// hasty is a strategy with a TTL of 0.
type hasty struct{ seconds }

func (hasty) Attach(hook.Queue) hook.Hooks {
	hs := seconds{}.Attach(nil)
	hs.OnEnqueue = func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) { vs[0].Deadline = now }
	return hs
}

// A message that enters when time began has a deadline like any other.
func TestSimulationAtTheBeginning(t *testing.T) {
	r, l := newRehearsing(t)
	var err error
	l.chain, err = chain.New([]chain.Named{{Name: "hasty", Plugin: hasty{}}}, chain.Options{})
	must(t, err)
	body := r.do(200, "POST", "/api/simulations", `{"settings":{},"strategy":"seconds","at":0}`)
	if !strings.Contains(body, `"state":"dead_lettered"`) || !strings.HasPrefix(body, `{"at":0,`) {
		t.Errorf("got %s", body)
	}
}

// Any node of a cluster has the owner of the vhost play the simulation.
func TestSimulationInClusters(t *testing.T) {
	_, l := newRehearsing(t)
	c := newCluster(t, func(o *Options) { o.Lab = l })
	c.want(0, 201, "PUT", "/api/queues/b/q", "{}")
	for node := range c.rigs {
		for _, body := range []string{`{"queue":{"vhost":"b","name":"q"},"strategy":"seconds"}`, `{"settings":{"vhost":"c"}}`, `{"settings":{}}`} {
			c.want(node, 200, "POST", "/api/simulations", body)
		}
		c.want(node, 404, "POST", "/api/simulations", `{"queue":{"vhost":"b","name":"none"}}`)
		c.want(node, 401, "POST", "/api/simulations", `{"queue":{"vhost":"none","name":"q"}}`)
		c.want(node, 400, "POST", "/api/simulations", `[]`)
	}
}
