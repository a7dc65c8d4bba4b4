package mgmt

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// bench is a lab that remembers the questions.
type bench struct {
	all          Differences
	after        uint64
	count        int
	name         string
	differsError error
}

func (b *bench) Differences(name string, after uint64, count int) (Differences, error) {
	b.name, b.after, b.count = name, after, count
	return b.all, b.differsError
}

// Rehearse implements [Lab].
func (b *bench) Rehearse(*Module) (Rehearsal, error) { return nil, b.differsError }

// Activate implements [Lab].
func (b *bench) Activate(name string, recompute bool) ([]string, error) {
	b.name = fmt.Sprint("activate ", name, recompute)
	return nil, b.differsError
}

// Back implements [Lab].
func (b *bench) Back(name string, recompute bool) ([]string, error) {
	b.name = fmt.Sprint("back ", name, recompute)
	return []string{"old"}, b.differsError
}

// Strategies implements [Lab].
func (*bench) Strategies() ([]string, string) { return []string{"seconds", "deadline"}, "deadline" }

func TestStrategies(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Lab = &bench{} })
	if got, want := r.do(200, "GET", "/api/expiry-strategies", ""), `[{"name":"deadline","default":true,"queues":0,"some":[]},{"name":"seconds","default":false,"queues":0,"some":[]}]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	r, _ = newRehearsing(t) // whose queues have no differences
	r.do(201, "PUT", "/api/queues/%2F/q", "{}")
	if got, want := r.do(200, "GET", "/api/expiry-strategies?columns=name,queues", ""), `[{"name":"deadline","queues":0},{"name":"seconds","queues":0}]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestChangesOfVersions(t *testing.T) {
	b := &bench{}
	r := newRig(t, func(o *Options) { o.Lab, o.Modules = b, &shelf{} })
	r.do(204, "POST", "/api/wasm/policies/p/activate", `{"recompute":true}`)
	if b.name != "activate ptrue" {
		t.Errorf("got %s", b.name)
	}
	if got := r.do(200, "POST", "/api/wasm/policies/p/back", ""); got != `{"warnings":["old"]}` || b.name != "back pfalse" {
		t.Errorf("got %s, %s", got, b.name)
	}
	b.differsError = &ModuleError{Text: "there is no version before"}
	if got := r.do(400, "POST", "/api/wasm/policies/p/back", ""); !strings.Contains(got, "there is no version before") {
		t.Errorf("got %s", got)
	}
}

func TestDifferences(t *testing.T) {
	headers := amqp.AppendTable(nil, amqp.Table{{Key: "<b>", Value: "x"}, {Key: "long", Value: strings.Repeat("y", 2000)}})[4:]
	b := &bench{all: Differences{Compared: 10, Differing: 2, PerSecond: 64, Latest: []Difference{
		{
			ID: 7, At: 5_000_000, VHost: "/", Queue: "q", Strategy: "deadline", Hook: "on_enqueue", RoutingKey: "k",
			Properties: []DifferenceProperty{{"message_id", "m-1"}, {"priority", 3}}, Headers: headers, HeadersSize: len(headers), Size: 13, Enqueued: 4_000_000,
			Active: hook.Verdict{Deadline: 6_000_000}, Shadow: hook.Verdict{Action: hook.Route, Reason: hook.ReasonExpired, Target: &hook.Target{Exchange: "x"}},
			ShadowDigest: "abc",
		},
		{ID: 9, Shadow: hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired, Final: true, Deadline: 3}, ActiveDigest: "def"},
	}}}
	r := newRig(t, func(o *Options) { o.Lab, o.Modules = b, &shelf{} })
	path := "/api/wasm/policies/p/differences"
	want := `{"compared":10,"differing":2,"kept_per_second":64,"kept":256,"next":"9","differences":[` +
		`{"id":"7","at":5,"vhost":"/","queue":"q","strategy":"deadline","hook":"on_enqueue","message":{"exchange":"","routing_key":"k",` +
		`"properties":{"message_id":"m-1","priority":3,"headers":{"<b>":"x"}},"payload_bytes":13,"enqueued":4,"deadline":null,"deliveries":0,"redelivered":false},` +
		`"cut":["headers"],` +
		`"active":{"action":"keep","deadline":6,"hold":null,"reason":null,"final":false,"nack":false,"exchange":null,"routing_key":null,"ask_at_head":false,"ask_again":false},` +
		`"shadow":{"action":"route","deadline":null,"hold":null,"reason":"expired","final":false,"nack":false,"exchange":"x","routing_key":null,"ask_at_head":false,"ask_again":false},` +
		`"active_digest":null,"shadow_digest":"abc"},` +
		`{"id":"9","at":null,"vhost":"","queue":"","strategy":"","hook":"","message":{"exchange":"","routing_key":"",` +
		`"properties":{},"payload_bytes":0,"enqueued":null,"deadline":null,"deliveries":0,"redelivered":false},"cut":[],` +
		`"active":{"action":"keep","deadline":null,"hold":null,"reason":null,"final":false,"nack":false,"exchange":null,"routing_key":null,"ask_at_head":false,"ask_again":false},` +
		`"shadow":{"action":"drop","deadline":null,"hold":null,"reason":"expired","final":true,"nack":false,"exchange":null,"routing_key":null,"ask_at_head":false,"ask_again":false},` +
		`"active_digest":"def","shadow_digest":null}]}`
	if got := r.do(200, "GET", path+"?after=6&count=2", ""); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if b.name != "p" || b.after != 6 || b.count != 2 {
		t.Errorf("asked for %+v", b)
	}
	b.all.Latest = nil
	if got, want := r.do(200, "GET", path+"?after=9&columns=next,differences", ""), `{"next":"9","differences":[]}`; got != want {
		t.Errorf("got %s, want %s: a reader goes on where it was", got, want)
	}
	for query, want := range map[string]string{
		"?after=x":   `after is \"x\": the id of a difference is expected`,
		"?count=257": `count is \"257\": whole numbers from 1 to 256 are allowed`,
		"?befor=1":   `unknown parameter \"befor\"; accepted are after, count, columns`,
	} {
		if got := r.do(400, "GET", path+query, ""); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
	b.differsError = &ModuleError{Kind: NoModule, Text: "there is no such policy"}
	if got := r.do(404, "GET", path, ""); !strings.Contains(got, "there is no such policy") {
		t.Errorf("got %s", got)
	}
}

// The headers of a remembered message may be cut off anywhere.
func TestHeadersThatAreCutOff(t *testing.T) {
	raw := amqp.AppendTable(nil, amqp.Table{{Key: "a", Value: "1"}, {Key: "b", Value: amqp.Table{{Key: "c", Value: "2"}}}})[4:]
	for n := range raw {
		if o, _ := rememberedHeaders(raw[:n]); len(o) > 1 {
			t.Errorf("%d bytes: got %v", n, o)
		}
	}
	if o, whole := rememberedHeaders(raw); len(o) != 2 || !whole {
		t.Errorf("got %v, %t", o, whole)
	}
}

// Only users that may read a queue see the properties of its messages: the tag monitoring is not enough.
func TestDifferencesAccess(t *testing.T) {
	headers := amqp.AppendTable(nil, amqp.Table{{Key: "token", Value: "hidden"}})[4:]
	of := func(vhost, queue string) Difference {
		return Difference{
			VHost: vhost, Queue: queue, RoutingKey: "k", Properties: []DifferenceProperty{{"message_id", "m-1"}, {"correlation_id", "hidden"}},
			Headers: headers, HeadersSize: len(headers),
		}
	}
	b := &bench{all: Differences{Latest: []Difference{of("/", "q"), of("/", "secret"), of("other", "q"), of("/", "q")}}}
	r := newRig(t, func(o *Options) { o.Lab, o.Modules = b, &shelf{} })
	r.do(201, "PUT", "/api/vhosts/other", "")
	r.do(201, "PUT", "/api/users/m", `{"password":"m","tags":"monitoring"}`)
	r.do(201, "PUT", "/api/permissions/%2F/m", `{"configure":"","write":"","read":"^q$"}`)
	w := r.serve(r.request("m:m", "GET", "/api/wasm/policies/p/differences", ""))
	var got struct {
		Differences []struct {
			Cut     []string
			Message struct{ Properties map[string]any }
		}
	}
	must(t, json.Unmarshal(w.Body.Bytes(), &got))
	for i, whole := range []bool{true, false, false, true} {
		d := &got.Differences[i]
		shown, cut := d.Message.Properties["headers"] != nil && d.Message.Properties["correlation_id"] == "hidden", len(d.Cut) == 1 && d.Cut[0] == "properties"
		if shown != whole || cut == whole || d.Message.Properties["message_id"] != "m-1" {
			t.Errorf("difference %d: got %+v", i+1, d)
		}
	}
	if n := strings.Count(w.Body.String(), "hidden"); n != 2*2 {
		t.Errorf("what is hidden stands in the answer %d times: %s", n, w.Body)
	}
}
