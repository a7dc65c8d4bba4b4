package cluster

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// A node whose machine's clock is 5 s wrong owns nothing, also when another owner is killed, and says why; it does have a vote, without which
// there would be no majority then. (Of two nodes that are left, the slower clock counts as right, because nobody can know.) Messages expire,
// and not early. With its clock set it is as good as the others.
func TestNodeWhoseClockIsWrong(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{5 * time.Second, -5 * time.Second} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			c := New(t, "", t.TempDir())
			wrong := c.Nodes[0]
			wrong.SetClock(ahead)
			c.StartAll()
			for _, n := range c.Nodes { // of two nodes, either may be barred
				n.Excuse("the clock differs too much from those of the other nodes, and this node owns nothing: set the machine's clock, and start the node again")
				n.Excuse("this node still owns shards, although its clock is wrong")
			}
			if !process.Poll(func() bool {
				status, body := wrong.Health()
				return status == http.StatusServiceUnavailable && strings.Contains(body, "clock")
			}) {
				t.Fatal("the node has no alarm about its clock")
			}
			owner := c.Owner("/")
			if owner == wrong {
				owner = c.ownerBesides(wrong)
			}
			const lifetime = 4 * time.Second
			sent := time.Now()
			publishExpiring(t, owner, "q", lifetime)
			c.AwaitSpare()
			owner.Kill()
			if owner = c.Owner("/"); owner == wrong && ahead > 0 {
				t.Error("the node with the wrong clock owns the vhost")
			}
			if !process.Poll(func() bool {
				var q struct{ Messages *int }
				return json.Unmarshal(owner.Get("queues/%2F/q"), &q) == nil && q.Messages != nil && *q.Messages == 0
			}) {
				t.Error("a message does not expire")
			}
			if lived := time.Since(sent); lived < lifetime {
				t.Errorf("a message that may live for %v is gone after %v", lifetime, lived)
			}
			wrong.Stop()
			wrong.SetClock(0)
			wrong.Launch()
			wrong.AwaitReady()
			if !process.Poll(func() bool { status, _ := wrong.Health(); return status == http.StatusOK }) {
				t.Error("the alarm stays although the clock is set")
			}
		})
	}
}

// ownerBesides waits until another node owns the default vhost: the clocks may not have been compared yet when it got its first owner.
func (c *Cluster) ownerBesides(n *Node) (owner *Node) {
	c.t.Helper()
	if !process.Poll(func() bool { owner = c.owner("/"); return owner != nil && owner != n }) {
		c.t.Fatal("the node keeps the vhost")
	}
	return owner
}

// publishExpiring has one message of that lifetime confirmed.
func publishExpiring(t *testing.T, n *Node, queue string, lifetime time.Duration) {
	t.Helper()
	ch := open(t, n)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp091.Table{"x-message-ttl": lifetime.Milliseconds()}); err != nil {
		t.Fatal(err)
	}
	send(t, ch, "", queue, amqp091.Publishing{Body: []byte("expires")})
}
