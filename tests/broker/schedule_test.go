package broker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// planner is a client of a delayed exchange. Its methods end the test when anything fails.
type planner struct {
	*testing.T
	broker  *process.Process
	conn    *amqp091.Connection
	ch      *amqp091.Channel
	returns chan amqp091.Return
}

func openPlanner(t *testing.T, b *process.Process) *planner {
	t.Helper()
	conn, err := process.Dial(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the broker may be gone
	c := &planner{T: t, broker: b, conn: conn}
	c.ch, err = conn.Channel()
	c.must(err)
	c.returns = c.ch.NotifyReturn(make(chan amqp091.Return, 100))
	c.must(c.ch.Confirm(false))
	return c
}

func (c *planner) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// exchange declares a durable delayed exchange.
func (c *planner) exchange(name, inner string, more ...any) {
	c.Helper()
	args := amqp091.Table{"x-delayed-type": inner}
	for i := 0; i < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	c.must(c.ch.ExchangeDeclare(name, "x-delayed-message", true, false, false, false, args))
}

func (c *planner) queue(name string, args amqp091.Table) {
	c.Helper()
	_, err := c.ch.QueueDeclare(name, true, false, false, false, args)
	c.must(err)
}

func (c *planner) bind(queue, key, exchange string) {
	c.Helper()
	c.must(c.ch.QueueBind(queue, key, exchange, false, nil))
}

// send publishes a persistent message, mandatory or not, and waits for its confirm. It reports whether it was returned.
func (c *planner) send(exchange, key, text string, mandatory bool, headers amqp091.Table) (returned bool) {
	c.Helper()
	sent := c.publish(exchange, key, text, mandatory, headers)
	if ok, err := sent.WaitContext(context.Background()); !ok || err != nil {
		c.Fatalf("%q: confirmed %v, %v", text, ok, err)
	}
	if len(c.returns) == 0 {
		return false
	}
	if r := <-c.returns; r.ReplyCode != amqp091.NoRoute {
		c.Errorf("%q is returned with %d %s", text, r.ReplyCode, r.ReplyText)
	}
	return true
}

// publish is send without waiting.
func (c *planner) publish(exchange, key, text string, mandatory bool, headers amqp091.Table) *amqp091.DeferredConfirmation {
	c.Helper()
	m := amqp091.Publishing{Body: []byte(text), Headers: headers, DeliveryMode: amqp091.Persistent}
	sent, err := c.ch.PublishWithDeferredConfirm(exchange, key, mandatory, false, m)
	c.must(err)
	return sent
}

// next waits for a message in a queue, and takes it.
func (c *planner) next(queue string) amqp091.Delivery {
	c.Helper()
	return c.get(queue, true)
}

func (c *planner) get(queue string, autoAck bool) (got amqp091.Delivery) {
	c.Helper()
	found := process.Poll(func() (ok bool) {
		var err error
		got, ok, err = c.ch.Get(queue, autoAck)
		c.must(err)
		return ok
	})
	if !found {
		c.Fatalf("nothing came to %s", queue)
	}
	return got
}

// kill kills the broker when what was taken from a queue is settled on the disk: a message that is confirmed behind it stays in its
// place. An exchange notes that a released message has arrived once the message is durable in its queue, and a crash in between releases it
// again. So kill has one more message confirmed, which lies behind that note in the log.
func (c *planner) kill(queue string) {
	c.Helper()
	c.send("", queue, "behind", false, nil)
	c.queue("later on the disk", nil)
	c.send("", "later on the disk", "behind", false, nil)
	c.broker.Kill()
}

// behind takes what kill left.
func (c *planner) behind(queue string) {
	c.Helper()
	if got := c.next(queue); string(got.Body) != "behind" {
		c.Errorf("%q came first", got.Body)
	}
}

// empty requires that a queue has nothing for anybody.
func (c *planner) empty(queue string) {
	c.Helper()
	got, ok, err := c.ch.Get(queue, true)
	c.must(err)
	if ok {
		c.Errorf("%q is in %s", got.Body, queue)
	}
}

func delayBy(d time.Duration, more ...any) amqp091.Table {
	headers := amqp091.Table{"x-delay": d.Milliseconds()}
	for i := 0; i < len(more); i += 2 {
		headers[more[i].(string)] = more[i+1]
	}
	return headers
}

// A message is routed when it is released, by the bindings of then; whether it may be held at all is checked when it is published.
func TestDelayedRouting(t *testing.T) {
	t.Parallel()
	c := openPlanner(t, process.Start(t, ""))
	c.must(c.ch.ExchangeDeclare("strays", "fanout", true, false, false, false, nil))
	c.queue("stray", nil)
	c.bind("stray", "", "strays")
	c.queue("work", nil)
	c.exchange("later", "direct")
	c.exchange("guarded", "direct", "alternate-exchange", "strays")

	began := time.Now()
	c.send("later", "key", "bound after it was published", false, delayBy(300*time.Millisecond))
	c.bind("work", "key", "later")
	if got := c.next("work"); string(got.Body) != "bound after it was published" || time.Since(began) < 300*time.Millisecond {
		t.Errorf("%q came after %v", got.Body, time.Since(began))
	}

	c.send("guarded", "key", "for the alternate exchange", false, delayBy(300*time.Millisecond))
	c.empty("stray")
	if got := c.next("stray"); string(got.Body) != "for the alternate exchange" {
		t.Errorf("%q came", got.Body)
	}
	c.empty("stray")

	if !c.send("later", "nobody", "unbound", true, delayBy(time.Hour)) {
		t.Error("a mandatory message that leads nowhere is not returned")
	}
	if c.send("later", "key", "bound", true, delayBy(200*time.Millisecond)) {
		t.Error("a mandatory message is returned though its queue is bound")
	}
	if got := c.next("work"); string(got.Body) != "bound" {
		t.Errorf("%q came", got.Body)
	}
}

// What an exchange holds goes with it, though another of the name is declared at once; also when the broker is killed afterwards.
func TestDeletedSchedulesDoNotComeBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openPlanner(t, process.Start(t, "", "--data", dir))
	c.queue("work", nil)
	open := func() {
		c.exchange("later", "direct")
		c.bind("work", "key", "later")
	}
	open()
	const wait = time.Second
	var sent time.Time
	for again := true; again; again = time.Since(sent) > wait { // or some were released
		sent = time.Now()
		for n := range 100 {
			c.publish("later", "key", strconv.Itoa(n), false, delayBy(wait))
		}
		c.send("later", "key", "the last", false, delayBy(wait))
		c.must(c.ch.ExchangeDelete("later", false, false))
		open()
		_, err := c.ch.QueuePurge("work", false)
		c.must(err)
	}
	c.send("later", "key", "of the new one", false, delayBy(time.Millisecond))
	if got := c.next("work"); string(got.Body) != "of the new one" {
		t.Errorf("%q came", got.Body)
	}
	c.kill("work")
	c = openPlanner(t, process.Start(t, "", "--data", dir))
	time.Sleep(time.Until(sent.Add(wait + 300*time.Millisecond)))
	c.behind("work")
	c.empty("work")
}

// An identity is of one message at a time: the next one replaces it, and a cancellation that finds none is returned.
func TestScheduleIdentities(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openPlanner(t, process.Start(t, "", "--data", dir))
	c.queue("work", nil)
	c.exchange("later", "direct")
	c.bind("work", "key", "later")
	cancel := func(id string) (returned bool) {
		return c.send("later", "key", "cancel", true, amqp091.Table{"x-schedule-id": id, "x-schedule-cancel": true})
	}
	c.send("later", "key", "replaced", false, delayBy(time.Hour, "x-schedule-id", "a"))
	c.send("later", "key", "cancelled", false, delayBy(time.Hour, "x-schedule-id", "b"))
	c.send("later", "key", "sooner", false, delayBy(time.Hour, "x-schedule-id", "c"))
	c.broker.Kill()

	c = openPlanner(t, process.Start(t, "", "--data", dir)) // which knows the identities
	c.send("later", "key", "replacement", false, delayBy(time.Millisecond, "x-schedule-id", "a"))
	c.send("later", "key", "moved", false, delayBy(2*time.Second, "x-schedule-id", "c"))
	if cancel("b") {
		t.Error("there was nothing to cancel after a restart")
	}
	if !cancel("b") || !cancel("never scheduled") {
		t.Error("a cancellation of nothing is not returned")
	}
	for _, want := range []string{"replacement", "moved"} {
		if got := c.next("work"); string(got.Body) != want {
			t.Errorf("%q came, want %q", got.Body, want)
		}
	}
	if !cancel("a") {
		t.Error("what was released is cancelled")
	}
	c.empty("work")
}

// A cancellation and a release race: exactly one of them wins.
func TestCancelsRaceWithReleases(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	c, other := openPlanner(t, b), openPlanner(t, b)
	c.queue("work", nil)
	c.exchange("later", "direct")
	c.bind("work", "key", "later")
	const rounds = 400 / fewer
	lost := 0 // cancellations
	for n := range rounds {
		id := strconv.Itoa(n)
		c.send("later", "key", id, false, delayBy(time.Duration(1+rand.IntN(3))*time.Millisecond, "x-schedule-id", id))
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		if other.send("later", "key", "", true, amqp091.Table{"x-schedule-id": id, "x-schedule-cancel": true}) {
			lost++
		}
	}
	seen := map[string]bool{}
	for range lost {
		id := string(c.next("work").Body)
		if seen[id] {
			t.Errorf("%s came twice", id)
		}
		seen[id] = true
	}
	time.Sleep(50 * time.Millisecond)
	c.empty("work")
	t.Logf("%d of %d were released before they were cancelled", lost, rounds)
	if lost == 0 || lost == rounds {
		t.Log("there was no race")
	}
}

// A full queue that refuses publishers lost what an exchange released into it. Another queue has each message once, also if the broker
// is killed while the full one has no space.
func TestReleasesWaitForAFullQueue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openPlanner(t, process.Start(t, "", "--data", dir))
	c.queue("full", amqp091.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	c.queue("work", nil)
	c.exchange("later", "fanout")
	c.bind("full", "", "later")
	c.bind("work", "", "later")
	const many = 5
	for i := range many {
		c.send("later", "", strconv.Itoa(i), false, delayBy(50*time.Millisecond))
	}
	for i := range many {
		if got := c.next("work"); string(got.Body) != strconv.Itoa(i) {
			t.Errorf("%q came as number %d", got.Body, i)
		}
	}
	c.kill("work")
	c = openPlanner(t, process.Start(t, "", "--data", dir))
	c.behind("work")
	for i := range many {
		if got := c.next("full"); string(got.Body) != strconv.Itoa(i) {
			t.Errorf("%q came from the full queue as number %d", got.Body, i)
		}
	}
	c.empty("full")
	c.empty("work")
}

// A delayed exchange with an argument x-delay, as a dead-letter exchange, makes every round wait.
func TestDelayedDeadLetters(t *testing.T) {
	t.Parallel()
	for _, retried := range []string{"through an exchange", "in its queue"} {
		t.Run(retried, func(t *testing.T) {
			t.Parallel()
			c := openPlanner(t, process.Start(t, ""))
			const wait = 150 * time.Millisecond
			c.exchange("again", "direct", "x-delay", wait.Milliseconds())
			c.queue("work", amqp091.Table{"x-dead-letter-exchange": "again", "x-dead-letter-routing-key": "work"})
			c.bind("work", "work", "again")
			headers := amqp091.Table{}
			if retried == "through an exchange" { // the first time, too
				c.send("again", "work", "job", false, delayBy(wait))
			} else {
				c.send("", "work", "job", false, headers)
			}
			var before time.Time
			for round := range 4 {
				got := c.take("work")
				if waited := time.Since(before); round > 0 && waited < wait {
					t.Errorf("round %d came after %v", round, waited)
				}
				if deaths, _ := got.Headers["x-death"].([]any); round > 0 && (len(deaths) != 1 || deaths[0].(amqp091.Table)["count"] != int64(round)) {
					t.Errorf("round %d: x-death %v", round, deaths)
				}
				before = time.Now()
				c.must(got.Reject(false))
			}
			c.must(c.take("work").Ack(false))
		})
	}
}

// take waits for a message, and does not settle it.
func (c *planner) take(queue string) amqp091.Delivery {
	c.Helper()
	return c.get(queue, false)
}

// A message that comes back waits longer each time, until the delivery limit.
func TestRetriesUntilTheDeliveryLimit(t *testing.T) {
	t.Parallel()
	c := openPlanner(t, process.Start(t, ""))
	c.queue("dead", nil)
	c.queue("work", amqp091.Table{
		"x-queue-type": "quorum", "x-delivery-limit": int32(3), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
		"x-delayed-retry-type": "failed", "x-delayed-retry-min": int32(80), "x-delayed-retry-max": int32(300), "x-delayed-retry-multiplier": int32(2),
	})
	c.send("", "work", "job", false, nil)
	var waits []time.Duration
	before := time.Now()
	for range 4 {
		got := c.take("work")
		waits = append(waits, time.Since(before))
		before = time.Now()
		c.must(got.Reject(true))
	}
	got := c.next("dead")
	if deaths, _ := got.Headers["x-death"].([]any); len(deaths) != 1 || deaths[0].(amqp091.Table)["reason"] != "delivery_limit" {
		t.Errorf("x-death %v", got.Headers["x-death"])
	}
	for i, least := range []time.Duration{0, 80 * time.Millisecond, 160 * time.Millisecond, 300 * time.Millisecond} {
		if waits[i] < least {
			t.Errorf("delivery %d came after %v, want at least %v", i+1, waits[i], least)
		}
	}
	t.Log(waits)
}

// A recurring message comes once for each point in time, also across restarts; what was missed comes once.
func TestRecurringAcrossRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openPlanner(t, process.Start(t, "", "--data", dir))
	c.queue("work", nil)
	c.exchange("later", "direct")
	c.bind("work", "key", "later")
	const every = time.Second
	headers := amqp091.Table{"x-schedule-id": "tick", "x-schedule-every": every.Milliseconds(), "x-schedule-count": int32(5)}
	began := time.Now()
	c.send("later", "key", "tick", false, headers)
	var at []time.Duration
	for range 2 {
		c.next("work")
		at = append(at, time.Since(began))
	}
	c.kill("work")
	time.Sleep(2*every + every/2) // two points in time are missed
	c = openPlanner(t, process.Start(t, "", "--data", dir))
	c.behind("work")
	for range 2 {
		c.next("work")
		at = append(at, time.Since(began))
	}
	t.Log(at)
	if !slices.IsSorted(at) || at[len(at)-1]-at[0] < 4*every-every/2 {
		t.Errorf("came at %v", at)
	}
}

// Errors close the channel, and hold nothing.
func TestDelayedErrors(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	for _, tt := range []struct {
		name    string
		headers amqp091.Table
		want    string
	}{
		{"no number", amqp091.Table{"x-delay": "abc"}, "PRECONDITION_FAILED - invalid header 'x-delay': no_integer"},
		{"too large", amqp091.Table{"x-delay": int64(1<<63 - 1)}, fmt.Sprintf("PRECONDITION_FAILED - invalid header 'x-delay': {value_too_large,%d}", int64(1<<63-1))},
	} {
		c := openPlanner(t, b)
		c.exchange("later", "fanout")
		c.queue("work", nil)
		c.bind("work", "", "later")
		closed := c.ch.NotifyClose(make(chan *amqp091.Error, 1))
		m := amqp091.Publishing{Headers: tt.headers}
		c.must(c.ch.PublishWithContext(t.Context(), "later", "", false, false, m))
		err := await(t, closed, tt.name)
		var e *amqp091.Error
		if !errors.As(err, &e) || e.Code != amqp091.PreconditionFailed || e.Reason != tt.want {
			t.Errorf("%s: closed with %v, want %s", tt.name, err, tt.want)
		}
	}
}
