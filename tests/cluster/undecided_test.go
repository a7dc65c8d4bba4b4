package cluster

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/tests/process"
)

// A policy traps on one message, and its owner ends before it has asked again about that one and those behind it. The next owner
// does, at once.
func TestATakeOverAsksAgain(t *testing.T) {
	t.Parallel()
	c := Start(t, "")
	c.Nodes[0].Ask(t, http.StatusCreated, http.MethodPut, "wasm/policies/x", map[string]any{"module": wt.Picky(), "on_error": "keep"})
	owner := c.Owner("/")
	for _, n := range c.Nodes {
		n.Excuse("a policy failed; its on-error decides about its messages")
	}
	ch := open(t, owner)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	const others = 10
	for name, args := range map[string]amqp091.Table{
		"dead": nil,
		"jobs": {"x-expiry-strategy": "wasm/x", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
	} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
	}
	send(t, ch, "", "jobs", amqp091.Publishing{Body: []byte("trap")})
	for range others {
		send(t, ch, "", "jobs", amqp091.Publishing{})
	}
	owner.Kill()

	next := c.Owner("/")
	after := open(t, next)
	var dead amqp091.Queue
	if !process.Poll(func() bool {
		var err error
		if dead, err = after.QueueDeclarePassive("dead", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		return dead.Messages == others
	}) {
		t.Errorf("%d of %d messages have expired", dead.Messages, others)
	}
	var info struct {
		Breaker    string
		Undecided  int
		AskedAgain int `json:"asked_again"`
	}
	if err := json.Unmarshal(next.Get("wasm/policies/x"), &info); err != nil {
		t.Fatal(err)
	}
	if info.Undecided != 1 || info.AskedAgain == 0 || info.Breaker != "closed" {
		t.Errorf("%+v; want one undecided message, asked about again, and a closed breaker", info)
	}
}
