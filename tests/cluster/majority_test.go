package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// Two of three nodes are killed. The third one confirms nothing more, whether it owned the vhost or relayed to the owner, ends its clients with
// 320 and refuses others with 541. Its management API changes nothing, and says what its answers lack. With one of the two back everything that
// was confirmed is there, and publishers go on.
func TestTwoOfThreeNodesAreKilled(t *testing.T) {
	t.Parallel()
	c := Start(t, "")
	killed, left := c.Nodes[:2], c.Nodes[2]
	left.Ask(t, http.StatusCreated, http.MethodPut, "vhosts/team", nil)
	left.Ask(t, http.StatusCreated, http.MethodPut, "global-parameters/contact", map[string]string{"value": "ops"})
	c.AwaitSpare()
	c.give("team", killed[0])
	c.give("/", left)
	if c.Owner("team") != killed[0] {
		t.Fatal("both vhosts have one owner")
	}
	witnesses := []*witness{newWitness(t, left, "/"), newWitness(t, left, "team")}
	for _, w := range witnesses {
		w.publish(t, 20)
	}
	publishExpiring(t, left, "due", 4*time.Second) // while nobody serves it
	c.AwaitSpare()
	for _, n := range killed {
		n.Kill()
	}
	for _, w := range witnesses {
		w.publishInVain()
	}
	for _, w := range witnesses {
		w.wantEnd(t)
	}
	if !process.Poll(func() bool {
		return left.Await("this node does not own a shard any more")["reason"] == "this node has not heard from a majority of the nodes for the election timeout"
	}) {
		t.Errorf("why the clients' shard has no owner is not logged: %v", left.Await("this node does not own a shard any more"))
	}
	refusals := make([]chan error, len(witnesses))
	for i, w := range witnesses {
		refusals[i] = make(chan error, 1)
		go func() { refusals[i] <- w.dial() }() // it takes 10 s
	}
	wantNoChanges(t, left)
	wantNoContents(t, left)
	wantCopies(t, left)
	wantHealth(t, left, http.StatusServiceUnavailable)
	if !process.Poll(func() bool {
		status, ok := errors.AsType[*exec.ExitError](c.Ctl(left, "cluster", "status"))
		return ok && status.ExitCode() == 75 // something has no owner
	}) {
		t.Errorf("curfew ctl cluster status: %v", c.Ctl(left, "cluster", "status"))
	}
	for i, w := range witnesses {
		err, _, inTime := process.Receive(refusals[i])
		if refusal, ok := errors.AsType[*amqp091.Error](err); !inTime || !ok || refusal.Code != amqp091.InternalError {
			t.Errorf("a new connection to %s ends with %v, want 541", w.vhost, err)
		}
	}

	killed[1].Launch()
	killed[1].AwaitReady()
	for _, w := range witnesses {
		w.again(t)
		w.publish(t, 5)
	}
	if !process.Poll(func() bool { return left.messages("due") == 0 }) {
		t.Error("what was due while nobody served it does not expire")
	}
	killed[0].Launch()
	killed[0].AwaitReady()
	c.AwaitSpare()
	wantHealth(t, left, http.StatusOK)
	wantWhole(t, left)
	left.Ask(t, http.StatusCreated, http.MethodPut, "vhosts/later", nil)
	for i, w := range witnesses {
		w.node = c.Nodes[i] // what the third node alone had would not be there
		w.wantAll(t)
	}
}

// witness publishes to a vhost, and knows what was confirmed.
type witness struct {
	node      *Node
	vhost     string
	ch        *amqp091.Channel
	closed    chan *amqp091.Error
	confirmed []string
	doubtful  map[string]*amqp091.DeferredConfirmation // what was published without a majority
}

func newWitness(t *testing.T, n *Node, vhost string) *witness {
	t.Helper()
	w := &witness{node: n, vhost: vhost}
	w.again(t)
	if _, err := w.ch.QueueDeclare("q", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *witness) url() string { return w.node.URL() + "/" + strings.ReplaceAll(w.vhost, "/", "%2F") }

// again connects.
func (w *witness) again(t *testing.T) {
	t.Helper()
	w.ch = nil
	if !process.Poll(func() bool { // another node may become the owner meanwhile
		conn, err := process.Dial(w.url())
		if err != nil {
			return false
		}
		t.Cleanup(func() { _ = conn.Close() }) // its node may have ended it
		w.closed = conn.NotifyClose(make(chan *amqp091.Error, 1))
		w.ch, err = conn.Channel()
		return err == nil
	}) {
		t.Fatalf("nobody serves %s", w.vhost)
	}
	if err := w.ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
}

// publish has some messages confirmed. One whose connection ends before that is published again.
func (w *witness) publish(t *testing.T, messages int) {
	t.Helper()
	for range messages {
		body := strconv.Itoa(len(w.confirmed))
		if !process.Poll(func() bool {
			sent, err := w.ch.PublishWithDeferredConfirm("", "q", false, false, amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: []byte(body)})
			if err == nil {
				var acked bool
				if acked, err = sent.WaitContext(t.Context()); acked && err == nil {
					return true
				}
			}
			w.again(t)
			return false
		}) {
			t.Fatalf("%s: message %s is not confirmed", w.vhost, body)
		}
		w.confirmed = append(w.confirmed, body)
	}
}

// publishInVain publishes what must not be confirmed. The connection may end meanwhile.
func (w *witness) publishInVain() {
	w.doubtful = map[string]*amqp091.DeferredConfirmation{}
	for i := range 5 {
		body := fmt.Sprintf("doubtful %d", i)
		sent, err := w.ch.PublishWithDeferredConfirm("", "q", false, false, amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: []byte(body)})
		if w.doubtful[body] = sent; err != nil {
			return // the connection has ended
		}
	}
}

// wantEnd waits until the connection ends, without a confirm.
func (w *witness) wantEnd(t *testing.T) {
	t.Helper()
	why, _, inTime := process.Receive(w.closed)
	if !inTime || why == nil || why.Code != amqp091.ConnectionForced {
		t.Errorf("the connection to %s ends with %v, want 320", w.vhost, why)
	}
	for body, sent := range w.doubtful {
		if sent == nil {
			continue // as good as not published
		}
		if acked, err := sent.WaitContext(t.Context()); acked || err != nil { // it is over with the connection
			t.Errorf("%s, %q: confirmed %t by one of three nodes, %v", w.vhost, body, acked, err)
		}
	}
}

// dial returns why there is no new connection.
func (w *witness) dial() error {
	conn, err := process.Dial(w.url())
	if err == nil {
		_ = conn.Close() // it should not be there
	}
	return err
}

// wantAll looks at the queue's messages: all that were confirmed, in their order, and at most those others that were published.
func (w *witness) wantAll(t *testing.T) {
	t.Helper()
	var got []string
	if !process.Poll(func() bool {
		w.again(t)
		var err error
		got, err = w.bodies()
		return err == nil
	}) {
		t.Fatalf("the messages of %s cannot be read", w.vhost)
	}
	got = slices.DeleteFunc(got, func(body string) bool {
		_, doubtful := w.doubtful[body]
		return doubtful
	})
	if got = slices.Compact(got); !slices.Equal(got, w.confirmed) { // one whose confirm was lost may be there twice
		t.Errorf("%s has %q, and %q were confirmed", w.vhost, got, w.confirmed)
	}
}

// bodies reads all messages, and acknowledges none: if the connection ends before the last one, all of them come again.
func (w *witness) bodies() (all []string, err error) {
	for {
		d, ok, err := w.ch.Get("q", false)
		if err != nil || !ok {
			return all, err
		}
		all = append(all, string(d.Body))
	}
}

// messages returns how many messages a queue of the default vhost has, as the node's management API knows, which renews no lease; -1 = unknown.
func (n *Node) messages(queue string) int {
	var q struct{ Messages *int }
	if json.Unmarshal(n.Get("queues/%2F/"+queue), &q) != nil || q.Messages == nil {
		return -1
	}
	return *q.Messages
}

// reply is an answer of the management API.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r *reply) String() string { return fmt.Sprintf("%d %v %s", r.status, r.header, r.body) }

func request(t *testing.T, n *Node, method, path, body string) *reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.Management+"/api/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("guest", "guest")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: process.Patience}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &reply{answer.StatusCode, answer.Header, string(bytes.TrimSpace(all))}
}

// wantReply asks until an answer is as it should be: a node needs a moment to know that others are gone, or are back.
func wantReply(t *testing.T, n *Node, path string, so func(*reply) bool) {
	t.Helper()
	var got *reply
	if !process.Poll(func() bool {
		got = request(t, n, http.MethodGet, path, "")
		return so(got)
	}) {
		t.Errorf("GET %s: got %v", path, got)
	}
}

// wantNoChanges: what would change something, or needs an owner, is refused in the end, and done at no time.
func wantNoChanges(t *testing.T, n *Node) {
	t.Helper()
	for _, tt := range []struct{ method, path, body, what string }{
		{http.MethodPut, "users/new", `{"password":"secret","tags":""}`, "the registry"},
		{http.MethodPut, "permissions/%2F/guest", `{"configure":"","write":"","read":""}`, "the registry"},
		{http.MethodPut, "vhosts/new", "", "the registry"},
		{http.MethodDelete, "vhosts/team", "", "the registry"},
		{http.MethodPut, "global-parameters/new", `{"value":1}`, "the registry"},
		{http.MethodPut, "queues/%2F/new", "{}", "vhost '/'"},
		{http.MethodDelete, "queues/%2F/q", "", "vhost '/'"},
		{http.MethodPut, "policies/team/new", `{"pattern":"","definition":{"message-ttl":1}}`, "vhost 'team'"},
		{http.MethodPost, "exchanges/team/amq.default/publish", `{"properties":{},"routing_key":"q","payload":"x","payload_encoding":"string"}`, "vhost 'team'"},
		{http.MethodPost, "queues/team/q/get", `{"count":1,"ackmode":"ack_requeue_false","encoding":"auto"}`, "vhost 'team'"},
		{http.MethodGet, "queues/team/q", "", "vhost 'team'"},
	} {
		var got *reply
		if !process.Poll(func() bool {
			got = request(t, n, tt.method, tt.path, tt.body)
			if got.status != http.StatusServiceUnavailable && tt.method != http.MethodGet {
				t.Errorf("%s %s: got %v of one of three nodes", tt.method, tt.path, got)
				return true
			}
			return got.status == http.StatusServiceUnavailable && strings.Contains(got.body, `"error":"no_owner"`) && strings.Contains(got.body, tt.what+" has no owner now") &&
				got.header.Get("Retry-After") != ""
		}) {
			t.Errorf("%s %s: got %v", tt.method, tt.path, got)
		}
	}
}

// wantNoContents: lists of what is in vhosts, of which none is served, are refused as reads of one vhost are. Totals say what is missing.
func wantNoContents(t *testing.T, n *Node) {
	t.Helper()
	var gone []string
	for _, other := range n.c.Nodes[:2] {
		gone = append(gone, "curfew@"+other.Address)
	}
	slices.Sort(gone)
	unreachable := strings.Join(gone, ", ")
	for _, path := range []string{"queues", "queues?page=1", "exchanges", "bindings", "policies", "connections", "channels", "consumers"} {
		wantReply(t, n, path, func(r *reply) bool {
			return r.status == http.StatusServiceUnavailable && strings.Contains(r.body, `"error":"no_owner"`) && r.header.Get("Curfew-Unreachable") == unreachable && r.header.Get("Curfew-Missing-Vhosts") == "%2F, team"
		})
	}
	for _, path := range []string{"overview"} {
		wantReply(t, n, path, func(r *reply) bool {
			var o struct {
				Unreachable []string `json:"unreachable_nodes"`
				Missing     []string `json:"missing_vhosts"`
			}
			return r.status == http.StatusOK && json.Unmarshal([]byte(r.body), &o) == nil && slices.Equal(o.Unreachable, gone) && slices.Equal(o.Missing, []string{"/", "team"})
		})
	}
	wantReply(t, n, "definitions", func(r *reply) bool { return r.status == http.StatusServiceUnavailable }) // whole or not at all
}

// wantCopies: what each node has a copy of is in its answers, which are marked; those about the cluster say who is gone, and that nobody owns
// anything.
func wantCopies(t *testing.T, n *Node) {
	t.Helper()
	for path, has := range map[string]string{"users": `"name":"guest"`, "permissions": `"vhost":"team"`, "global-parameters": `"name":"contact"`, "users/guest": `"name":"guest"`} {
		wantReply(t, n, path, func(r *reply) bool {
			return r.status == http.StatusOK && strings.Contains(r.body, has) && r.header.Get("Curfew-Stale") == "registry"
		})
	}
	wantReply(t, n, "nodes", func(r *reply) bool {
		var all []struct {
			Name    string
			Running bool
		}
		running := map[string]bool{}
		if json.Unmarshal([]byte(r.body), &all) != nil {
			return false
		}
		for _, one := range all {
			running[one.Name] = one.Running
		}
		want := map[string]bool{}
		for _, one := range n.c.Nodes {
			want["curfew@"+one.Address] = one == n
		}
		return maps.Equal(running, want)
	})
	wantReply(t, n, "cluster", func(r *reply) bool {
		var o struct {
			Registrar *string
			Shards    []struct{ Owner *string }
		}
		if json.Unmarshal([]byte(r.body), &o) != nil || o.Registrar != nil || len(o.Shards) == 0 {
			return false
		}
		return !slices.ContainsFunc(o.Shards, func(s struct{ Owner *string }) bool { return s.Owner != nil })
	})
}

// wantHealth waits until the checks that are about a majority have a status.
func wantHealth(t *testing.T, n *Node, status int) {
	t.Helper()
	for _, name := range []string{
		"node-is-quorum-critical", "metadata-store/initialized", "metadata-store/initialized/with-data", "virtual-hosts", "is-in-service", "ready-to-serve-clients",
	} {
		wantReply(t, n, "health/checks/"+name, func(r *reply) bool { return r.status == status })
	}
}

// wantWhole waits until answers lack nothing.
func wantWhole(t *testing.T, n *Node) {
	t.Helper()
	for _, path := range []string{"queues", "vhosts", "users", "overview", "definitions"} {
		wantReply(t, n, path, func(r *reply) bool {
			for _, header := range []string{"Curfew-Stale", "Curfew-Unreachable", "Curfew-Missing-Vhosts"} {
				if r.header.Get(header) != "" {
					return false
				}
			}
			return r.status == http.StatusOK && r.body != "[]"
		})
	}
}
