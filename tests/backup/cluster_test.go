package backup

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/cluster"
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

// channelOf returns a channel at a node.
func channelOf(t *testing.T, n *cluster.Node) *amqp091.Channel {
	t.Helper()
	conn, err := process.Dial("amqp://guest:guest@" + n.AMQP + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // its node may be gone
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// The backup of a running cluster, which a node makes while another is down, has everything that was confirmed, and becomes a new
// cluster. Without a majority there is none.
func TestBackupOfACluster(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, "")
	ch := channelOf(t, c.Nodes[0])
	if _, err := ch.QueueDeclare("q", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	const messages = 100
	for i := range messages {
		sent, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: fmt.Append(nil, i)})
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := sent.WaitContext(t.Context()); !ok || err != nil {
			t.Fatalf("not confirmed: %v", err)
		}
	}
	c.Nodes[0].Kill()
	file := filepath.Join(t.TempDir(), "cluster.tar")
	if out := run(t, 0, "backup", "--url", "http://"+c.Nodes[1].Management, file); !strings.Contains(out, "backup of curfew@"+c.Nodes[1].Address) {
		t.Errorf("backup prints %s", out)
	}
	c.Nodes[1].Kill()
	if out := run(t, 1, "backup", "--url", "http://"+c.Nodes[2].Management, file+"2"); !strings.Contains(out, "this node cannot back the cluster up") {
		t.Errorf("without a majority: %s", out)
	}
	c.Nodes[2].Kill()
	again := cluster.New(t, "", t.TempDir())
	if out := run(t, 0, "restore", file, "--data", again.Nodes[2].Data); !strings.Contains(out, "start one node with this folder") {
		t.Errorf("restore prints %s", out)
	}
	again.StartAll()
	ch = channelOf(t, again.Nodes[0])
	for i := range messages {
		d, ok, err := ch.Get("q", true)
		if err != nil || !ok || string(d.Body) != strconv.Itoa(i) {
			t.Fatalf("message %d is %q, %t, %v", i, d.Body, ok, err)
		}
	}
	if _, more, err := ch.Get("q", true); more || err != nil {
		t.Errorf("there is another one: %t, %v", more, err)
	}
}
