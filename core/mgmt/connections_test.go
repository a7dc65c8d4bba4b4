package mgmt

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// client is a client of the broker, of any user.
type client struct {
	*amqp.Connection
	t      *testing.T
	closed chan *amqp.Error
}

func (r *rig) client(t *testing.T, user string) *client {
	t.Helper()
	c, err := amqp.DialConfig("amqp://"+user+"@"+r.api.AMQP.Addresses()[0].String(), amqp.Config{
		Properties: amqp.Table{"connection_name": "of " + user, "product": "test"}, Heartbeat: 10 * time.Second, Vhost: "/",
	})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return &client{c, t, c.NotifyClose(make(chan *amqp.Error, 1))}
}

func (c *client) channel() *amqp.Channel {
	c.t.Helper()
	ch, err := c.Channel()
	must(c.t, err)
	return ch
}

// into decodes the answer to a GET.
func (r *rig) into(path string, v any) {
	r.t.Helper()
	d := json.NewDecoder(strings.NewReader(r.do(200, "GET", path, "")))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
}

// one returns the only object of a list.
func (r *rig) one(path string) map[string]any {
	r.t.Helper()
	var all []map[string]any
	r.into(path, &all)
	if len(all) != 1 {
		r.t.Fatalf("%s: got %d objects, want one", path, len(all))
	}
	return all[0]
}

// wantMembers compares members of an object, given as they print.
func wantMembers(t *testing.T, o map[string]any, want map[string]string) {
	t.Helper()
	for name, text := range want {
		if b := jsonobj.Append(nil, jsonobj.FromParsed(o[name])); string(b) != text {
			t.Errorf("%s: got %s, want %s", name, b, text)
		}
	}
}

// count is a number that was decoded; -1 for anything else.
func count(v any) int64 {
	if n, ok := v.(json.Number); ok {
		i, _ := n.Int64()
		return i
	}
	return -1
}

func TestConnections(t *testing.T) {
	r := newRig(t)
	c := r.client(t, guest)
	c.channel()
	local := c.LocalAddr().String()
	name := local + " -> " + r.api.AMQP.Addresses()[0].String()
	o := r.one("/api/connections")
	wantMembers(t, o, map[string]string{
		"name": `"` + name + `"`, "user": `"guest"`, "vhost": `"/"`, "state": `"running"`, "channels": "1", "timeout": "10",
		"user_provided_name": `"of guest:guest"`, "auth_mechanism": `"PLAIN"`, "protocol": `"AMQP 0-9-1"`, "ssl": "false",
		"ssl_protocol": "null", "channel_max": "100", "frame_max": "131072", "peer_host": `"127.0.0.1"`, "send_pend": "0",
	})
	if o["client_properties"].(map[string]any)["product"] != "test" {
		t.Errorf("client properties: got %v", o["client_properties"])
	}
	if count(o["recv_oct"]) < 100 || count(o["send_oct"]) < 100 || count(o["connected_at"]) < 1e12 {
		t.Errorf("counts: got %v in, %v out, connected at %v", o["recv_oct"], o["send_oct"], o["connected_at"])
	}
	path := "/api/connections/" + url.PathEscape(name)
	var same map[string]any
	r.into(path+"?disable_stats=true", &same)
	if same["name"] != name || same["recv_oct"] != nil {
		t.Errorf("one connection without statistics: got %v", same)
	}
	wantMembers(t, r.one(path+"/channels"), map[string]string{"name": `"` + name + ` (1)"`, "number": "1"})
	wantMembers(t, r.one("/api/connections/username/guest"), map[string]string{"name": `"` + name + `"`, "node": `"curfew@test"`})
	wantMembers(t, r.one("/api/vhosts/%2F/connections"), map[string]string{"name": `"` + name + `"`})
	r.do(404, "GET", "/api/connections/none", "")
	r.do(404, "GET", "/api/connections/none/channels", "")
	r.do(404, "DELETE", "/api/connections/none", "")
}

func TestCloseConnection(t *testing.T) {
	for _, tt := range []struct{ name, header, want string }{
		{"without a reason", "", "CONNECTION_FORCED - Closed via management plugin"},
		{"with one", "because", "CONNECTION_FORCED - because"},
		{"not printable", "a\tb", "CONNECTION_FORCED - ab"},
		{"too long", strings.Repeat("x", 300), "CONNECTION_FORCED - " + strings.Repeat("x", 200) + "..."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			c := r.client(t, guest)
			name, _ := r.one("/api/connections")["name"].(string)
			q := r.request(guest, "DELETE", "/api/connections/"+url.PathEscape(name), "")
			q.Header.Set("X-Reason", tt.header)
			if w := r.serve(q); w.Code != 204 {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
			if got := <-c.closed; got.Code != 320 || got.Reason != tt.want {
				t.Errorf("got %v, want %s", got, tt.want)
			}
		})
	}
}

// Users see and close their own connections; with the tag monitoring they see all, with administrator they close all.
func TestConnectionsOfOthers(t *testing.T) {
	r := newRig(t)
	for _, user := range []string{"own", "watcher"} {
		tag := map[string]string{"own": "management", "watcher": "monitoring"}[user]
		r.do(201, "PUT", "/api/users/"+user, `{"password":"p","tags":"`+tag+`"}`)
		r.do(201, "PUT", "/api/permissions/%2F/"+user, `{"configure":".*","write":".*","read":".*"}`)
	}
	mine, theirs := r.client(t, "own:p"), r.client(t, guest)
	nameOf := func(c *client) string {
		return url.PathEscape(c.LocalAddr().String() + " -> " + r.api.AMQP.Addresses()[0].String())
	}
	for _, tt := range []struct {
		user, method, path string
		status             int
	}{
		{"own:p", "GET", "/api/connections/" + nameOf(mine), 200},
		{"own:p", "GET", "/api/connections/" + nameOf(theirs), 401},
		{"own:p", "DELETE", "/api/connections/" + nameOf(theirs), 401},
		{"own:p", "GET", "/api/connections/" + nameOf(theirs) + "/channels", 401},
		{"own:p", "GET", "/api/channels/" + nameOf(theirs) + "%20(1)", 401},
		{"watcher:p", "GET", "/api/connections/" + nameOf(mine), 200},
		{"watcher:p", "DELETE", "/api/connections/" + nameOf(mine), 401},
		{"watcher:p", "DELETE", "/api/connections/username/own", 401},
		{"own:p", "DELETE", "/api/connections/username/own", 204},
		{guest, "DELETE", "/api/connections/username/guest", 204},
	} {
		if w := r.serve(r.request(tt.user, tt.method, tt.path, "")); w.Code != tt.status {
			t.Errorf("%s %s as %s: got %d %s, want %d", tt.method, tt.path, tt.user, w.Code, w.Body, tt.status)
		}
	}
	<-mine.closed
	<-theirs.closed
}

func TestChannelsAndConsumers(t *testing.T) {
	r := newRig(t)
	c := r.client(t, guest)
	ch := c.channel()
	must(t, ch.Confirm(false))
	must(t, ch.Qos(7, 0, false))
	_, err := ch.QueueDeclare("q", false, false, false, false, nil)
	must(t, err)
	acks := ch.NotifyPublish(make(chan amqp.Confirmation, 10))
	for _, key := range []string{"q", "q", "nowhere"} {
		must(t, ch.PublishWithContext(t.Context(), "", key, false, false, amqp.Publishing{Body: []byte("x"), Timestamp: time.Unix(7, 0)}))
		<-acks
	}
	must(t, ch.PublishWithContext(t.Context(), "", "nowhere", true, false, amqp.Publishing{}))
	<-acks
	_, _, err = ch.Get("q", true)
	must(t, err)
	ds, err := ch.Consume("q", "tag", false, false, false, false, amqp.Table{"x-priority": int32(3)})
	must(t, err)
	d := <-ds
	must(t, d.Ack(false))
	_, err = ch.QueueDeclarePassive("q", false, false, false, false, nil) // the ack has been seen when this is answered
	must(t, err)

	o := r.one("/api/channels")
	wantMembers(t, o, map[string]string{
		"confirm": "true", "transactional": "false", "prefetch_count": "7", "global_prefetch_count": "0", "consumer_count": "1",
		"messages_unacknowledged": "0", "messages_unconfirmed": "0", "number": "1", "state": `"running"`,
	})
	counts := o["message_stats"].(map[string]any)
	wantMembers(t, counts, map[string]string{
		"publish": "4", "confirm": "4", "return_unroutable": "1", "drop_unroutable": "1", "get_no_ack": "1", "deliver": "1",
		"deliver_get": "2", "ack": "1", "get": "0", "redeliver": "0", "publish_details": `{"rate":0.0}`,
	})
	var one map[string]any
	r.into("/api/channels/"+url.PathEscape(o["name"].(string)), &one)
	details := one["consumer_details"].([]any)
	if len(details) != 1 || details[0].(map[string]any)["consumer_tag"] != "tag" {
		t.Errorf("consumers of the channel: got %v", details)
	}
	wantMembers(t, r.one("/api/consumers"), map[string]string{
		"consumer_tag": `"tag"`, "ack_required": "true", "arguments": `{"x-priority":3}`, "active": "true", "activity_status": `"up"`,
		"queue": `{"name":"q","vhost":"/"}`, "exclusive": "false", "prefetch_count": "7",
	})
	r.do(404, "GET", "/api/channels/none", "")
	r.do(404, "GET", "/api/channels/"+url.PathEscape(strings.Replace(o["name"].(string), "(1)", "(2)", 1)), "")

	// Counts stay when the channel is gone.
	must(t, ch.Close())
	var overview map[string]any
	r.into("/api/overview", &overview)
	wantMembers(t, overview["message_stats"].(map[string]any), map[string]string{"publish": "4", "ack": "1", "confirm": "4"})
	wantMembers(t, overview["churn_rates"].(map[string]any), map[string]string{
		"channel_created": "1", "channel_closed": "1", "connection_created": "1", "queue_created": "1",
	})
	var v map[string]any
	r.into("/api/vhosts/%2F", &v)
	wantMembers(t, v["message_stats"].(map[string]any), map[string]string{"publish": "4"})
}

func TestSingleActiveConsumer(t *testing.T) {
	r := newRig(t)
	ch := r.client(t, guest).channel()
	_, err := ch.QueueDeclare("q", false, false, true, false, amqp.Table{"x-single-active-consumer": true})
	must(t, err)
	for _, tag := range []string{"first", "second"} {
		_, err := ch.Consume("q", tag, false, false, false, false, nil)
		must(t, err)
	}
	var all []map[string]any
	r.into("/api/consumers", &all)
	wantMembers(t, all[0], map[string]string{"consumer_tag": `"first"`, "active": "true", "activity_status": `"single_active"`})
	wantMembers(t, all[1], map[string]string{"consumer_tag": `"second"`, "active": "false", "activity_status": `"waiting"`})
	var q map[string]any
	r.into("/api/queues/%2F/q", &q)
	wantMembers(t, q, map[string]string{"single_active_consumer_tag": `"first"`, "exclusive_consumer_tag": "null", "consumers": "2", "exclusive": "true"})
	owner, _ := q["owner_pid_details"].(map[string]any)
	if owner["name"] != r.one("/api/connections")["name"] {
		t.Errorf("owner: got %v", owner)
	}
	// The active one need not be the first that came.
	_, err = ch.Consume("q", "urgent", false, false, false, false, amqp.Table{"x-priority": 1})
	must(t, err)
	must(t, ch.Cancel("first", false))
	q = nil
	r.into("/api/queues/%2F/q", &q)
	wantMembers(t, q, map[string]string{"single_active_consumer_tag": `"urgent"`, "consumers": "2"})
	// It is the connection's alone.
	if got := r.do(400, "DELETE", "/api/queues/%2F/q", ""); !strings.Contains(got, "cannot obtain exclusive access to locked queue") {
		t.Errorf("got %s", got)
	}
}
