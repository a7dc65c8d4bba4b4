package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// A message that was confirmed through one node is there through another, when the one that had it is killed.
func TestClusterSurvivesKill(t *testing.T) {
	t.Parallel()
	c := Start(t, "")
	publish(t, c.Nodes[0], "q", 10)
	owner := c.Owner("/")
	t.Logf("the owner is node %d", owner.Number)
	owner.Kill()
	other := c.Nodes[(owner.Number+1)%size]
	if got := count(t, other, "q"); got != 10 {
		t.Errorf("%d messages of 10 are left", got)
	}
	owner.Launch()
	owner.AwaitReady()
	owner.Ask(t, http.StatusOK, http.MethodGet, "queues/%2F/q", nil)
}

// What the logs of stopped nodes hold can be read, and is the same. A dump had each entry as one that is not understood.
func TestLogsOfNodesAreTheSame(t *testing.T) {
	t.Parallel()
	c := Start(t, "")
	publish(t, c.Nodes[0], "q", 10)
	for _, n := range c.Nodes {
		n.Stop()
	}
	if n := c.Compare(); n < 10 {
		t.Errorf("%d entries are compared, of 10 at least", n)
	}
	said, err := exec.CommandContext(t.Context(), c.program, "log", "dump", filepath.Join(c.Nodes[0].Data, "cluster")).CombinedOutput()
	if err != nil || bytes.Contains(said, []byte("NOT UNDERSTOOD")) || !bytes.Contains(said, []byte(`queue.declare vhost="/" name="q"`)) {
		t.Errorf("%v\n%s", err, said)
	}
}

// Logs that differ are found.
func TestCompareFindsWhatDiffers(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"  entry 3, term 1, of the shard, 5 bytes, digest 2", "entry 3, term 1, of the shard, 5 bytes, digest 2"},
		{"  entry 2, term 2, of an election, 0 bytes, digest 3", ""},
		{"  begins behind entry 3, term 1, voters [1 2 3], learners [], former voters []", "entry 3, term 1, of the shard, 5 bytes, digest 1"},
		{"  begins anew behind entry 3, term 1, voters [1 2 3], learners [], former voters []", ""},
	} {
		c := &copied{entries: map[uint64]string{}}
		for _, line := range []string{
			"  begins anew behind entry 1, term 1, voters [1 2 3], learners [], former voters []", "  entry 2, term 1, of the shard, 5 bytes, digest 1",
			"  entry 3, term 1, of the shard, 5 bytes, digest 1", "  term 1, vote for 2, committed through 2", tt.line,
		} {
			c.read(line)
		}
		if c.entries[3] != tt.want {
			t.Errorf("%s: entry 3 is %q, want %q", tt.line, c.entries[3], tt.want)
		}
		if c.commit < 2 {
			t.Errorf("%s: committed through %d, want 2", tt.line, c.commit)
		}
	}
}

// A node that is told to end gives its vhosts to others at once. What had been acknowledged just before was delivered again.
func TestStopKeepsAcknowledgements(t *testing.T) {
	t.Parallel()
	c := Start(t, "")
	const queues, messages = 20, 20
	for i := range queues {
		publish(t, c.Nodes[0], fmt.Sprintf("q%d", i), messages)
	}
	for range 2 * size {
		owner := c.Owner("/")
		ch := open(t, owner)
		if err := ch.Confirm(false); err != nil {
			t.Fatal(err)
		}
		acked := map[string]bool{}
		for i := range queues {
			name := fmt.Sprintf("q%d", i)
			m, ok, err := ch.Get(name, false)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			if err := m.Ack(false); err != nil {
				t.Fatal(err)
			}
			acked[name+string(m.Body)] = true
		}
		if err := ch.Close(); err != nil {
			t.Fatal(err)
		}
		owner.Stop()
		ch = open(t, c.Nodes[(owner.Number+1)%size])
		for i := range queues {
			name := fmt.Sprintf("q%d", i)
			m, ok, err := ch.Get(name, true)
			if !ok || err != nil || acked[name+string(m.Body)] {
				t.Fatalf("queue %s: message %s, %v, %v: the one before it was acknowledged", name, m.Body, ok, err)
			}
		}
		owner.Launch()
		owner.AwaitReady()
	}
}

// A node says how many connections it relays.
func TestRelayedConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	c := Start(t, "")
	other := c.Nodes[(c.Owner("/").Number+1)%size]
	publish(t, other, "q", 10)
	var got struct {
		Nodes []struct {
			Address string
			Open    int `json:"relayed_connections"`
			Total   int `json:"relayed_connections_total"`
			In      int `json:"relayed_bytes_in"`
			Out     int `json:"relayed_bytes_out"`
		}
	}
	if err := json.Unmarshal(other.Get("cluster"), &got); err != nil {
		t.Fatal(err)
	}
	for _, n := range got.Nodes {
		switch relays := n.Address == other.Address; {
		case relays && (n.Open != 1 || n.Total != 1 || n.In == 0 || n.Out == 0):
			t.Errorf("the node that relays a connection has %+v", n)
		case !relays && n.Total != 0:
			t.Errorf("a node that relays none has %+v", n)
		}
	}
}

func open(t *testing.T, n *Node) *amqp091.Channel {
	t.Helper()
	conn, err := process.Dial(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the node may be gone
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func publish(t *testing.T, n *Node, queue string, messages int) {
	t.Helper()
	ch := open(t, n)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		m := amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: fmt.Append(nil, i)}
		sent, err := ch.PublishWithDeferredConfirm("", queue, true, false, m)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := sent.WaitContext(t.Context()); !ok || err != nil {
			t.Fatalf("message %d is not confirmed: %v", i, err)
		}
	}
}

func count(t *testing.T, n *Node, queue string) int {
	t.Helper()
	q, err := open(t, n).QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q.Messages
}
