package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// run runs "curfew" to its end, and returns what it prints.
func run(t *testing.T, status int, args ...string) string {
	t.Helper()
	cmd := exec.Command(process.Binary(t), args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != status {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// runOfPage runs the command of the page about clusters that has a text, with other folders.
func runOfPage(t *testing.T, with string, folders ...string) string {
	t.Helper()
	command := strings.TrimSpace(strings.NewReplacer(folders...).Replace(process.Block(t, page, "sh", with)))
	return run(t, 0, strings.Fields(strings.TrimPrefix(command, "curfew "))...)
}

// belongings are what a broker has before it becomes, or founds, a cluster.
type belongings struct {
	due      time.Time // of a message in "ttl", and of one that the exchange "later" holds
	messages map[string]int
}

const moduleName = "by-priority"

// fill gives a broker something of each kind.
func fill(t *testing.T, p *process.Process, moduleFile string) (b belongings) {
	t.Helper()
	p.Ask(t, http.StatusCreated, http.MethodPut, "vhosts/team", map[string]any{"description": "of the team", "tags": "production"})
	p.Ask(t, http.StatusCreated, http.MethodPut, "vhosts/third", nil)
	p.Ask(t, http.StatusCreated, http.MethodPut, "users/app", map[string]any{"password": "secret", "tags": "monitoring"})
	p.Ask(t, http.StatusCreated, http.MethodPut, "permissions/team/app", map[string]any{"configure": ".*", "write": ".*", "read": ".*"})
	p.Ask(t, http.StatusNoContent, http.MethodPut, "permissions/team/guest", map[string]any{"configure": ".*", "write": ".*", "read": ".*"})
	p.Ask(t, http.StatusCreated, http.MethodPut, "policies/team/short", map[string]any{"pattern": "^short", "definition": map[string]any{"message-ttl": 77000}})
	p.Ask(t, http.StatusCreated, http.MethodPut, "global-parameters/contact", map[string]any{"value": "ops"})
	module, err := os.ReadFile(filepath.Join(process.Root(t), moduleFile))
	if err != nil {
		t.Fatal(err)
	}
	p.Ask(t, http.StatusCreated, http.MethodPut, "wasm/policies/"+moduleName, map[string]any{"module": module, "config": map[string]any{"default-ms": 3_600_000}})
	ch := channelOf(t, "amqp://app:secret@"+p.AMQP+"/team")
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string]amqp091.Table{
		"plain": nil, "short": nil, "dead": nil, "arrived": nil, "judged": {"x-expiry-strategy": "wasm/" + moduleName},
		"ttl":     {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
		"retried": {"x-queue-type": "quorum"},
	} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.ExchangeDeclare("later", "x-delayed-message", true, false, false, false, amqp091.Table{"x-delayed-type": "fanout"}); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind("arrived", "", "later", false, nil); err != nil {
		t.Fatal(err)
	}
	b.messages = map[string]int{"plain": 200, "short": 3, "judged": 2, "retried": 1}
	for name, n := range b.messages {
		for i := range n {
			send(t, ch, "", name, amqp091.Publishing{Body: fmt.Appendf(nil, "%s %d", name, i)})
		}
	}
	fails := channelOf(t, "amqp://app:secret@"+p.AMQP+"/team")
	if _, ok, err := fails.Get("retried", false); err != nil || !ok {
		t.Fatalf("retried: %t %v", ok, err)
	}
	if err := fails.Close(); err != nil { // which counts as a failure to process the message
		t.Fatal(err)
	}
	const lifetime = 4 * time.Second
	b.due = time.Now().Add(lifetime)
	send(t, ch, "", "ttl", amqp091.Publishing{Body: []byte("expires"), Expiration: strconv.FormatInt(lifetime.Milliseconds(), 10)})
	send(t, ch, "later", "", amqp091.Publishing{Body: []byte("arrives"), Headers: amqp091.Table{"x-delay": int32(lifetime.Milliseconds())}})
	send(t, ch, "", "ttl", amqp091.Publishing{Body: []byte("stays"), Expiration: "3600000"})
	send(t, ch, "", "ttl", amqp091.Publishing{Body: []byte("died before"), Expiration: "1"})
	if !process.Poll(func() bool {
		q, err := ch.QueueDeclarePassive("dead", true, false, false, false, nil)
		return err == nil && q.Messages == 1
	}) {
		t.Fatal("nothing is dead-lettered")
	}
	b.messages["ttl"] = 1
	return b
}

func send(t *testing.T, ch *amqp091.Channel, exchange, key string, m amqp091.Publishing) {
	t.Helper()
	m.DeliveryMode = amqp091.Persistent
	sent, err := ch.PublishWithDeferredConfirm(exchange, key, false, false, m)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := sent.WaitContext(t.Context()); !ok || err != nil {
		t.Fatalf("%s%s: not confirmed: %v", exchange, key, err)
	}
}

func channelOf(t *testing.T, url string) *amqp091.Channel {
	t.Helper()
	conn, err := process.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // its node may be gone
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// want checks that a node of a cluster has all of it, once what is due has come.
func (b *belongings) want(t *testing.T, p *Node) {
	t.Helper()
	for _, path := range []string{"vhosts/team", "vhosts/third", "global-parameters/contact"} {
		if !process.Poll(func() bool { return p.Get(path) != nil }) { // its owner may have been killed just now
			t.Fatalf("node %d does not have %s", p.Number, path)
		}
	}
	var v struct {
		Description string
		Tags        []string
	}
	decode(t, p.Ask(t, http.StatusOK, http.MethodGet, "vhosts/team", nil), &v)
	if v.Description != "of the team" || !slices.Equal(v.Tags, []string{"production"}) {
		t.Errorf("the vhost has %+v", v)
	}
	if got := string(p.Ask(t, http.StatusOK, http.MethodGet, "policies/team/short", nil)); !strings.Contains(got, "77000") {
		t.Errorf("the policy is %s", got)
	}
	if got := string(p.Ask(t, http.StatusOK, http.MethodGet, "global-parameters/contact", nil)); !strings.Contains(got, "ops") {
		t.Errorf("the global parameter is %s", got)
	}
	p.Ask(t, http.StatusOK, http.MethodGet, "wasm/policies/"+moduleName, nil)
	ch := channelOf(t, "amqp://app:secret@"+p.AMQP+"/team")
	counts := func() string {
		got := map[string]int{}
		for name := range b.messages {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			got[name] = q.Messages
		}
		return fmt.Sprint(got)
	}
	b.messages["dead"], b.messages["arrived"] = 2, 1
	want := fmt.Sprint(b.messages)
	if !process.Poll(func() bool { return counts() == want }) {
		t.Errorf("there are %s, want %s", counts(), want)
	}
}

// take checks what the messages of a cluster are like, and takes them.
func (b *belongings) take(t *testing.T, p *process.Process) {
	t.Helper()
	ch := channelOf(t, "amqp://app:secret@"+p.AMQP+"/team")
	get := func(queue string) amqp091.Delivery {
		d, ok, err := ch.Get(queue, true)
		if err != nil || !ok {
			t.Fatalf("%s: %t %v", queue, ok, err)
		}
		return d
	}
	for i := range b.messages["plain"] {
		if d := get("plain"); string(d.Body) != fmt.Sprintf("plain %d", i) || d.Redelivered {
			t.Fatalf("message %d of plain is %q, redelivered %t", i, d.Body, d.Redelivered)
		}
	}
	if d := get("retried"); !d.Redelivered || fmt.Sprint(d.Headers["x-delivery-count"]) != "1" {
		t.Errorf("redelivered %t, headers %v", d.Redelivered, d.Headers)
	}
	for _, body := range []string{"died before", "expires"} {
		d := get("dead")
		deaths, _ := d.Headers["x-death"].([]any)
		if string(d.Body) != body || len(deaths) != 1 {
			t.Fatalf("%q in the place of %q, with %v", d.Body, body, d.Headers)
		}
		death := deaths[0].(amqp091.Table)
		if at, _ := death["time"].(time.Time); death["reason"] != "expired" || death["queue"] != "ttl" || body == "expires" && at.Before(b.due.Add(-time.Second).Truncate(time.Second)) {
			t.Errorf("%q was due %v, and has %v", body, b.due, death)
		}
	}
	if d := get("arrived"); string(d.Body) != "arrives" {
		t.Errorf("%q arrived", d.Body)
	}
}

func decode(t *testing.T, b []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

// awaitAll waits until all nodes vote about all shards.
func (c *Cluster) awaitAll() {
	c.t.Helper()
	whole := func(n *Node) bool {
		var got struct {
			Shards []struct{ Replicas []struct{ Voter bool } }
		}
		if json.Unmarshal(n.Get("cluster"), &got) != nil || len(got.Shards) == 0 {
			return false
		}
		for _, s := range got.Shards {
			for _, r := range s.Replicas {
				if !r.Voter {
					return false
				}
			}
			if len(s.Replicas) != size {
				return false
			}
		}
		return true
	}
	for _, n := range c.Nodes {
		if !process.Poll(func() bool { return whole(n) }) {
			c.t.Fatalf("node %d: not all vote: %s", n.Number, n.Get("cluster"))
		}
	}
}

// What a single broker had is in the cluster that is made of it, at the same deadlines. Its own folder stays as it was.
func TestImport(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	single := process.Start(t, "data: {shards: 3}", "--data", data)
	b := fill(t, single, "wasm-examples/priority-ttl/priority.wasm")
	c := New(t, "", t.TempDir())
	run(t, 1, "ctl", "cluster", "import", "--from", data, "--data", c.Nodes[0].Data)
	if out := run(t, 2, "ctl", "cluster", "import", "--from", data, "--data", "x", "--shards", "256"); !strings.Contains(out, "--shards 256: 1 to 255 are allowed") {
		t.Errorf("with too many shards: %s", out)
	}
	single.Stop()
	before := filesIn(t, data)
	out := runOfPage(t, "cluster import", "./curfew-data", data, "./node-a", c.Nodes[0].Data)
	if !strings.Contains(out, "3 virtual hosts, 7 queues, 1 expiry policies") {
		t.Errorf("it prints %s", out)
	}
	if after := filesIn(t, data); after != before {
		t.Errorf("the folder had %s, and has %s", before, after)
	}
	if out := run(t, 1, "ctl", "cluster", "import", "--from", data, "--data", c.Nodes[0].Data); !strings.Contains(out, "is not empty: there is cluster") {
		t.Errorf("again: %s", out)
	}
	c.StartAll()
	c.awaitAll()
	if got := time.Now(); got.Before(b.due) {
		t.Logf("the cluster began %v before the deadline", b.due.Sub(got))
	}
	b.want(t, c.Nodes[2])
	c.Nodes[0].Kill()
	b.want(t, c.Nodes[1])
	b.take(t, c.Nodes[1].Process)
}

// filesIn lists what is in a folder, with sizes and times.
func filesIn(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && !d.IsDir() && d.Name() != "LOCK" {
			fmt.Fprintf(&b, "%s %d %v\n", path, info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The copy of one node is enough to begin again.
func TestRestoreOfACopy(t *testing.T) {
	t.Parallel()
	c := Start(t, "")
	b := fill(t, c.Nodes[0].Process, "wasm-examples/priority-ttl/priority.wasm")
	node := c.Nodes[1]
	if out := run(t, 1, "ctl", "cluster", "restore", "--from", node.Data, "--data", filepath.Join(t.TempDir(), "x")); !strings.Contains(out, "stop that broker first") {
		t.Errorf("of a node that runs: %s", out)
	}
	for _, n := range c.Nodes {
		n.Stop()
	}
	if out := run(t, 0, "log", "verify", node.Data); !strings.Contains(out, "shard 3: ") {
		t.Errorf("log verify prints %s", out)
	}
	if out := run(t, 0, "log", "dump", node.Data); !strings.Contains(out, "queue.declare") || !strings.Contains(out, `enqueue 199, `) || strings.Contains(out, "NOT UNDERSTOOD") {
		t.Errorf("log dump prints %s", out)
	}
	if out := run(t, 1, "backup", "--data", node.Data, "-"); !strings.Contains(out, "curfew ctl cluster restore makes a new cluster of the copy") {
		t.Errorf("backup prints %s", out)
	}
	if out := run(t, 1, "ctl", "cluster", "import", "--from", node.Data, "--data", filepath.Join(t.TempDir(), "x")); !strings.Contains(out, "is the data folder of a node of a cluster: curfew ctl cluster restore") {
		t.Errorf("import prints %s", out)
	}
	again := New(t, "", t.TempDir())
	before := filesIn(t, node.Data)
	runOfPage(t, "cluster restore", "./copy", node.Data, "./restored", again.Nodes[2].Data)
	if after := filesIn(t, node.Data); after != before {
		t.Errorf("the copy had %s, and has %s", before, after)
	}
	again.StartAll()
	again.awaitAll()
	b.want(t, again.Nodes[0])
	again.Nodes[2].Kill()
	b.want(t, again.Nodes[1])
	b.take(t, again.Nodes[1].Process)
}
