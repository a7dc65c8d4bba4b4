package mgmt

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/sdk/hook"
)

// reminders is a plugin whose exchanges hold messages for as many hours as their header "hours" says. The header "id" is their identity.
type reminders struct{ hook.NoHooks }

func (reminders) ExchangeTypes() []hook.ExchangeType {
	plan := func(m *hook.Publishing, p *hook.Plan) error {
		if n, ok := m.HeaderInt("hours"); ok {
			p.Hold = m.Now.AddMillis(n * 3_600_000)
		}
		p.ID, _ = m.HeaderText("id")
		return nil
	}
	return []hook.ExchangeType{{Name: "x-reminder", Schedule: func(*hook.Exchange) hook.Schedule { return hook.Schedule{Inner: "topic", Plan: plan} }}}
}

func (reminders) ExchangeArguments() []hook.ExchangeArgument { return nil }

const scheduledPath = "/api/exchanges/%2F/later/scheduled"

// newRemindingRig is a broker with the exchange later, which leads to the queue q for keys that begin with "a".
func newRemindingRig(t *testing.T) *rig {
	t.Helper()
	r := newRigWith(t, []chain.Named{{Name: "reminders", Plugin: reminders{}}})
	r.do(201, "PUT", "/api/exchanges/%2F/later", `{"type":"x-reminder","durable":true}`)
	r.do(201, "PUT", "/api/queues/%2F/q", `{"durable":true}`)
	r.do(201, "POST", "/api/bindings/%2F/e/later/q/q", `{"routing_key":"a.#"}`)
	return r
}

func (r *rig) remind(id string, hours int, key string) {
	r.t.Helper()
	r.do(200, "POST", "/api/exchanges/%2F/later/publish", fmt.Sprintf(
		`{"properties":{"message_id":"m-%s","headers":{"hours":%d,"id":%q}},"routing_key":%q,"payload":"x","payload_encoding":"string"}`, id, hours, id, key))
}

// scheduled returns a list of the messages that the exchange later holds.
func (r *rig) scheduled(query string) (l heldList) {
	r.t.Helper()
	must(r.t, json.Unmarshal([]byte(r.do(200, "GET", scheduledPath+query, "")), &l))
	return l
}

func TestScheduledMessages(t *testing.T) {
	r := newRemindingRig(t)
	for i, hours := range []int{3, 1, 2} {
		r.remind(fmt.Sprintf("id%d", i), hours, "a.b")
	}
	l := r.scheduled("?count=2")
	if l.messages() != "m-id1 m-id2" || l.Total != 3 || r.scheduled("?after="+*l.Next).messages() != "m-id0" {
		t.Errorf("pages: %+v", l)
	}
	if got := r.scheduled("?schedule_id=id0"); got.messages() != "m-id0" || got.Next != nil || !got.Complete {
		t.Errorf("by schedule_id: %+v", got)
	}
	if got := r.scheduled("?schedule_id=id0&message_id=m-id1").messages() + r.scheduled("?schedule_id=none").messages() + r.scheduled("?schedule_id=").messages(); got != "" {
		t.Errorf("by another schedule_id: %s", got)
	}
	first := l.Items[0]
	x := r.do(200, "GET", "/api/exchanges/%2F/later?columns=name,messages_delayed,next_release", "")
	if want := fmt.Sprintf(`{"name":"later","messages_delayed":3,"next_release":%d}`, first.DeliverAt); x != want {
		t.Errorf("got %s, want %s", x, want)
	}
	if got := r.do(200, "GET", "/api/exchanges/%2F?columns=name,messages_delayed", ""); !strings.Contains(got, `{"name":"later","messages_delayed":3}`) || !strings.Contains(got, `{"name":"amq.topic"}`) {
		t.Errorf("got %s", got)
	}
	one := r.do(200, "GET", scheduledPath+"/"+first.ID, "")
	for _, want := range []string{`"exchange":"later"`, `"routing_key":"a.b"`, `"schedule_id":"id1"`, `"headers":{"hours":1,"id":"id1"}`, `"queues":["q"]`} {
		if !strings.Contains(one, want) {
			t.Errorf("got %s, want %s", one, want)
		}
	}
	r.do(204, "DELETE", "/api/bindings/%2F/e/later/q/q/a.%2523", "")
	if one := r.do(200, "GET", scheduledPath+"/"+first.ID+"?columns=queues", ""); one != `{"queues":[]}` {
		t.Errorf("without a binding: %s", one)
	}
	r.do(201, "POST", "/api/bindings/%2F/e/later/q/q", `{"routing_key":"#"}`)

	r.do(204, "PATCH", scheduledPath+"/"+first.ID, fmt.Sprintf(`{"deliver_at":%d}`, first.DeliverAt+10*3_600_000))
	if got := r.scheduled("").messages(); got != "m-id2 m-id0 m-id1" {
		t.Errorf("moved: %s", got)
	}
	r.remind("id1", 9, "a.c") // it has its identity still
	all := r.scheduled("")
	if all.messages() != "m-id2 m-id0 m-id1" || all.Total != 3 {
		t.Errorf("replaced: %+v", all)
	}
	r.do(404, "GET", scheduledPath+"/"+first.ID, "")
	r.do(204, "POST", scheduledPath+"/"+all.Items[0].ID+"/release", "")
	r.do(404, "POST", scheduledPath+"/"+all.Items[0].ID+"/release", "")
	r.do(204, "DELETE", scheduledPath+"/"+all.Items[1].ID, "")
	if got := r.do(200, "DELETE", scheduledPath+"?routing_key=a.b", ""); got != `{"cancelled":0}` {
		t.Errorf("got %s", got)
	}
	if got := r.do(200, "DELETE", scheduledPath+"?routing_key=a.c", ""); got != `{"cancelled":1}` {
		t.Errorf("got %s", got)
	}
	if got := r.scheduled(""); got.Total != 0 || len(got.Items) != 0 {
		t.Errorf("got %+v", got)
	}
	if got := r.do(200, "POST", "/api/queues/%2F/q/get", `{"count":9,"ackmode":"ack_requeue_false","encoding":"auto"}`); !strings.Contains(got, `"m-id2"`) || strings.Contains(got, "m-id0") || strings.Contains(got, "m-id1") {
		t.Errorf("released: %s", got)
	}
}

func TestScheduledMessagesRefused(t *testing.T) {
	r := newRemindingRig(t)
	for _, tt := range []struct {
		status       int
		method, path string
		want         string
	}{
		{404, "GET", "/api/exchanges/%2F/none/scheduled", "no exchange 'none' in vhost '/'"},
		{400, "GET", "/api/exchanges/%2F/amq.topic/scheduled", "exchange 'amq.topic' in vhost '/' of type 'topic' holds no messages"},
		{400, "GET", "/api/exchanges/%2F/amq.default/scheduled", "holds no messages"},
		{400, "GET", "/api/queues/%2F/q/held?schedule_id=x", "schedule_id: messages that a queue holds have none; message_id selects them"},
		{400, "GET", scheduledPath + "?routing_key=a", `unknown parameter \"routing_key\"; accepted are order, after, count, message_id, schedule_id, columns`},
		{400, "DELETE", scheduledPath + "?routing_kye=a", `unknown parameter \"routing_kye\"; accepted are before, routing_key`},
		{400, "DELETE", scheduledPath + "?schedule_id=a", `unknown parameter \"schedule_id\"; accepted are before, routing_key`},
		{404, "GET", scheduledPath + "/7", "Not Found"},
		{400, "GET", scheduledPath + "/x", "a number from 0 to"},
		{405, "PUT", scheduledPath + "/7", ""},
	} {
		if got := r.do(tt.status, tt.method, tt.path, ""); !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: got %s, want %s", tt.method, tt.path, got, tt.want)
		}
	}
	r.do(201, "PUT", "/api/users/u", `{"password":"u","tags":"administrator"}`)
	r.do(201, "PUT", "/api/permissions/%2F/u", `{"configure":".*","write":"","read":"^later$"}`)
	for method, want := range map[string]int{"GET": 200, "DELETE": 401} {
		if w := r.serve(r.request("u:u", method, scheduledPath, "")); w.Code != want {
			t.Errorf("%s: got %d %s", method, w.Code, w.Body)
		}
	}
}

// Definitions have exchanges, not the messages that they hold.
func TestDefinitionsOfExchangesThatHold(t *testing.T) {
	r := newRemindingRig(t)
	r.remind("id", 1, "a")
	if got := r.do(200, "GET", "/api/definitions/%2F", ""); strings.Contains(got, "messages_delayed") || strings.Contains(got, "next_release") || !strings.Contains(got, `"later"`) {
		t.Errorf("got %s", got)
	}
}
