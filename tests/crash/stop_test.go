package crash

import (
	"strconv"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// A broker that is told to end loses nothing and repeats nothing: whatever clients were answered for, or settled before they
// closed their channels, is so after the restart.
func TestStop(t *testing.T) {
	l := newLoopOf(t, 1, 4)
	l.begin()
	for range l.cycles {
		l.publishMany(100)
		l.census(30, false)
		l.publishMany(50)
		holder := l.client(6)
		l.hold(holder)
		l.ledger.end()
		l.broker.Stop()
		holder.close()
		l.ledger.ended()
		l.begin()
		l.census(0, false)
	}
	l.drain()
	l.report()
}

func (l *loop) publishMany(bursts int) {
	c := l.client(1)
	defer c.close()
	for range bursts {
		if err := c.burst(l.layout); err != nil {
			l.Fatal(err)
		}
	}
	if err := c.settle(); err != nil {
		l.Fatal(err)
	}
}

// hold fetches a few messages from each place, and keeps them.
func (l *loop) hold(c *client) {
	for _, p := range l.layout.places {
		s := l.ledger.open(p, false, time.Now())
		for range 10 {
			d, ok, err := c.Get(p.name, false)
			if err != nil {
				l.Fatal(err)
			}
			if ok {
				l.ledger.deliver(s, read(&d, p.origin()))
			}
		}
	}
}

// After a proper end exactly those messages are marked as redelivered that somebody had.
func TestStopMarksWhatWasHandedOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := process.Start(t, "", "--data", dir)
	ch := connect(t, b)
	declareQueue(t, ch, "q", nil)
	for n := range 100 {
		publishText(t, ch, "q", strconv.Itoa(n), "")
	}
	got := fetchTexts(t, ch, "q", 30)
	for _, d := range got[:10] {
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range got[10:15] {
		if err := d.Nack(false, true); err != nil {
			t.Fatal(err)
		}
	}
	publishText(t, ch, "q", "100", "") // the broker has seen the answers when it confirms
	b.Stop()

	ch = connect(t, process.Start(t, "", "--data", dir))
	got = fetchTexts(t, ch, "q", 101)
	if len(got) != 91 {
		t.Fatalf("got %d messages, want 91", len(got))
	}
	for i, d := range got {
		if n := i + 10; string(d.Body) != strconv.Itoa(n) || d.Redelivered != (n < 30) {
			t.Errorf("message %d: got %q, redelivered %v", n, d.Body, d.Redelivered)
		}
	}
}

// What falls due while the broker is down is dead-lettered when it starts, without anyone asking for it; what does not keeps its
// deadline.
func TestTimeGoesOnWhileDown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := process.Start(t, "", "--data", dir)
	ch := connect(t, b)
	declareQueue(t, ch, "dead", nil)
	declareQueue(t, ch, "q", amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
	began := time.Now()
	publishText(t, ch, "q", "lives", "3600000")
	publishText(t, ch, "q", "dies later", "4000")
	publishText(t, ch, "q", "dies while down", "200")
	b.Kill()
	time.Sleep(300 * time.Millisecond)

	ch = connect(t, process.Start(t, "", "--data", dir))
	ds, err := ch.Consume("dead", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	age := map[string]time.Duration{} // when each was seen
	for range 2 {
		d, _, inTime := process.Receive(ds)
		if !inTime {
			t.Fatalf("only %v died", age)
		}
		if reason := d.Headers["x-first-death-reason"]; reason != "expired" {
			t.Errorf("%q is dead because %v", d.Body, reason)
		}
		age[string(d.Body)] = time.Since(began)
	}
	if _, dead := age["dies while down"]; !dead || age["dies later"] < 4*time.Second {
		t.Errorf("died: %v, want both, and the latter not before its time", age)
	}
	if got := fetchTexts(t, ch, "q", 2); len(got) != 1 || string(got[0].Body) != "lives" || got[0].Redelivered {
		t.Errorf("what is left: %v", got)
	}
}

// connect opens a channel that confirms.
func connect(t *testing.T, b *process.Process) *amqp091.Channel {
	t.Helper()
	conn, err := process.Dial(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the broker may be gone
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return ch
}

func declareQueue(t *testing.T, ch *amqp091.Channel, name string, args amqp091.Table) {
	t.Helper()
	if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
}

// publishText publishes a message to a queue and waits until it is confirmed.
func publishText(t *testing.T, ch *amqp091.Channel, queue, text, expiration string) {
	t.Helper()
	m := amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: []byte(text), Expiration: expiration}
	sent, err := ch.PublishWithDeferredConfirm("", queue, true, false, m)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := sent.WaitContext(t.Context()); !ok || err != nil {
		t.Fatalf("%q: not confirmed: %v", text, err)
	}
}

// fetchTexts fetches at most n messages.
func fetchTexts(t *testing.T, ch *amqp091.Channel, queue string, n int) (ds []amqp091.Delivery) {
	t.Helper()
	for range n {
		d, ok, err := ch.Get(queue, false)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		ds = append(ds, d)
	}
	return ds
}
