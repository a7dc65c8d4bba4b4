package mgmt

import (
	"errors"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/sdk/hook"
)

// lottery is a plugin with an exchange type.
type lottery struct{ hook.NoHooks }

func (lottery) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{
		Name: "x-lottery", Description: "Leads some messages somewhere",
		Arguments: []hook.ExchangeArgument{{Name: "x-odds", Check: func(_ *hook.Exchange, v any) error {
			if n, ok := hook.Int(v); !ok || n < 1 {
				return errors.New("x-odds: expected a positive integer")
			}
			return nil
		}}},
		CheckBinding: func(_ *hook.Exchange, key string, _ hook.Args) error {
			if key == "" {
				return errors.New("x-lottery: expected a key")
			}
			return nil
		},
		New: func(*hook.Exchange) hook.Router { return nobody{} },
	}}
}

// nobody is a router that finds no destinations.
type nobody struct{}

func (nobody) Bind(*hook.Binding)                                                  {}
func (nobody) Unbind(*hook.Binding)                                                {}
func (nobody) Route(_ *hook.Publishing, dst []hook.Destination) []hook.Destination { return dst }

func TestExchangeTypes(t *testing.T) {
	r := newRigWith(t, []chain.Named{{Name: "lottery", Plugin: lottery{}}})
	for _, path := range []string{"/api/overview", "/api/nodes"} {
		got := r.do(200, "GET", path, "")
		for _, want := range []string{
			`{"name":"direct","description":"AMQP direct exchange, as per the AMQP specification","enabled":true}`,
			`{"name":"x-lottery","description":"Leads some messages somewhere","enabled":true}`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s does not have %s:\n%s", path, want, got)
			}
		}
	}
	const x = `{"type":"x-lottery","durable":true,"arguments":{"x-odds":7,"alternate-exchange":"amq.fanout"}}`
	r.do(201, "PUT", "/api/exchanges/%2F/x", x)
	r.do(204, "PUT", "/api/exchanges/%2F/x", x)
	r.do(201, "PUT", "/api/queues/%2F/q", `{"durable":true}`)
	r.do(201, "POST", "/api/bindings/%2F/e/x/q/q", `{"routing_key":"k","arguments":{"weight":2}}`)
	for _, tt := range []struct{ path, body, want string }{
		{"/api/exchanges/%2F/y", `{"type":"x-lottery","arguments":{"x-odds":0}}`, "x-odds: expected a positive integer"},
		{"/api/exchanges/%2F/y", `{"type":"x-none"}`, "unknown exchange type 'x-none'"},
	} {
		if got := r.do(400, "PUT", tt.path, tt.body); !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: got %s, want %s", tt.path, tt.body, got, tt.want)
		}
	}
	if got := r.do(400, "POST", "/api/bindings/%2F/e/x/q/q", `{"routing_key":""}`); !strings.Contains(got, "x-lottery: expected a key") {
		t.Errorf("a refused binding: got %s", got)
	}

	exported := r.do(200, "GET", "/api/definitions", "")
	other := newRigWith(t, []chain.Named{{Name: "lottery", Plugin: lottery{}}})
	other.do(204, "POST", "/api/definitions", exported)
	other.do(204, "POST", "/api/definitions", exported)
	for _, path := range []string{"/api/exchanges/%2F/x", "/api/bindings"} {
		if got, want := other.do(200, "GET", path, ""), r.do(200, "GET", path, ""); got != want {
			t.Errorf("%s after the import: got\n%s\nwant\n%s", path, got, want)
		}
	}
	for _, tt := range []struct{ section, item, want string }{
		{"exchanges", `{"vhost":"/","name":"y","type":"x-lottery","durable":true,"arguments":{"x-odds":0}}`, "x-odds: expected a positive integer"},
		{"bindings", `{"vhost":"/","source":"x","destination":"q","destination_type":"queue","routing_key":""}`, "x-lottery: expected a key"},
	} {
		got := other.do(400, "POST", "/api/definitions", definitionsOf(map[string][]string{tt.section: {tt.item}}))
		if !strings.Contains(got, tt.want) {
			t.Errorf("import of %s: got %s", tt.item, got)
		}
	}
	bare := newRig(t)
	if got := bare.do(400, "POST", "/api/definitions", exported); !strings.Contains(got, "unknown exchange type 'x-lottery'") {
		t.Errorf("import without the plugin: got %s", got)
	}
}
