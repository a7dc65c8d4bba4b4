package cluster

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// The owner of queues with leases is killed. At the new one their leases begin anew: late, never early, whether a queue had a consumer or not.
func TestALeaseBeginsAnewAtTheNextOwner(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second
	c := Start(t, "")
	c.AwaitSpare()
	owner := c.Owner("/")
	other := c.Nodes[(owner.Number+1)%size]
	ch := open(t, owner)
	queues := []string{"unused", "consumed"}
	var declared time.Time
	declare := func() {
		declared = time.Now()
		for _, q := range queues {
			if _, err := ch.QueueDeclare(q, true, false, false, false, amqp091.Table{"x-expires": lease.Milliseconds()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	declare()
	if _, err := ch.Consume("consumed", "", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for time.Sleep(lease / 2); time.Since(declared) > lease*3/4; time.Sleep(lease / 2) { // the rest of the old lease would be too short
		declare() // the machine stood still, and the old lease may be over before the kill
	}
	killed := time.Now()
	owner.Kill()
	gone := map[string]time.Duration{} // since the kill, at the latest
	if !process.Poll(func() bool {
		for _, q := range queues {
			if request(t, other, http.MethodGet, "queues/%2F/"+q, "").status == http.StatusNotFound && gone[q] == 0 { // to look at it does not renew a lease
				gone[q] = time.Since(killed)
			}
		}
		return len(gone) == len(queues)
	}) {
		t.Fatalf("queues stay although nobody uses them: these are gone: %v", gone)
	}
	t.Logf("with a lease of %v they are gone this long after the kill: %v", lease, gone)
	for q, after := range gone {
		if after < lease {
			t.Errorf("queue %s with a lease of %v is gone %v after its owner", q, lease, after)
		}
	}
}

// Messages with deadlines before, while and after the owner is killed expire all, each once and none early: deadlines are instants, which no
// take-over moves.
func TestDeadlinesWhenTheOwnerIsKilled(t *testing.T) {
	t.Parallel()
	const longest, step = 7 * time.Second, 250 * time.Millisecond
	c := Start(t, "")
	owner := c.Owner("/")
	other := c.Nodes[(owner.Number+1)%size]
	ch := open(t, owner)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	to := amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
	each := amqp091.Table{"x-message-ttl": longest.Milliseconds()}
	maps.Copy(each, to)
	for name, args := range map[string]amqp091.Table{"dead": nil, "mixed": to, "equal": each} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
	}
	c.AwaitSpare()
	due := map[string]time.Time{} // by body: the earliest instant
	for i := range 4 {
		body := fmt.Sprintf("equal %d", i)
		due[body] = time.Now().Add(longest)
		send(t, ch, "", "equal", amqp091.Publishing{Body: []byte(body)})
	}
	for ttl := longest; ttl > 0; ttl -= step { // the first ones behind the others, which they must not wait for
		body := "mixed " + ttl.String()
		due[body] = time.Now().Add(ttl)
		send(t, ch, "", "mixed", amqp091.Publishing{Body: []byte(body), Expiration: strconv.FormatInt(ttl.Milliseconds(), 10)})
	}
	send(t, ch, "", "mixed", amqp091.Publishing{Body: []byte("stays")})
	time.Sleep(longest / 3)
	owner.Kill()

	seen := map[string]int{}
	if !process.Poll(func() bool { return c.readDead(t, other, due, seen) }) {
		t.Errorf("%d of %d messages are dead-lettered", len(seen), len(due))
	}
	if !process.Poll(func() bool { return other.messages("dead") == len(due) }) { // they were not acknowledged
		t.Errorf("%d messages are dead-lettered, of which there were %d: %v", other.messages("dead"), len(due), seen)
	}
	if d, ok, err := channelOf(t, other.URL()).Get("mixed", false); err != nil || !ok || string(d.Body) != "stays" {
		t.Errorf("without a deadline: %q %t %v", d.Body, ok, err)
	}
}

// readDead takes what is dead-lettered, by a new connection, until everything is or the connection ends. None may come before it is due, by the
// clock of this test; what came before this consumer did, by what the broker says, which is a number of seconds of its own clock.
func (c *Cluster) readDead(t *testing.T, n *Node, due map[string]time.Time, seen map[string]int) (all bool) {
	t.Helper()
	conn, err := process.Dial(n.URL())
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // it may have ended
	ch, err := conn.Channel()
	if err != nil {
		return false
	}
	dead, err := ch.Consume("dead", "", false, false, false, false, nil) // not acknowledged: whatever ends the connection, all of them come again
	if err != nil {
		return false
	}
	clear(seen)
	for len(seen) < len(due) {
		d, open, inTime := process.Receive(dead)
		if !open || !inTime {
			return false
		}
		body := string(d.Body)
		seen[body]++
		early := time.Until(due[body])
		deaths, _ := d.Headers["x-death"].([]any)
		if len(deaths) != 1 || due[body].IsZero() {
			t.Fatalf("%q has %v", body, d.Headers)
		}
		death, _ := deaths[0].(amqp091.Table)
		at, _ := death["time"].(time.Time)
		if early > 0 || at.Before(due[body].Add(-time.Second).Truncate(time.Second)) || death["reason"] != "expired" || !strings.HasPrefix(body, death["queue"].(string)) {
			t.Errorf("%q, %v early, due %v: %v", body, early, due[body], death)
		}
	}
	return true
}
