package crash

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/tests/process"
)

// Whatever is held when the broker is killed, while it is published and while it is released, comes, not before its time, and once. With
// several logs, a crash may repeat what an exchange had just released. What an exchange held that was deleted does not come, though the
// exchange is declared again.
func TestCampaignCrashHeld(t *testing.T) {
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint("shards=", shards), func(t *testing.T) {
			t.Parallel()
			h := &hoard{T: t, dir: t.TempDir(), shards: shards, number: 10_000, wait: 3 * time.Second}
			if campaign.Size(t, cyclesVariable, 0, 1) > 1 {
				h.number, h.wait = 100_000, 15*time.Second
			}
			h.run()
		})
	}
}

// hoard is many messages that are held, half of them by an exchange, the others in their queue.
type hoard struct {
	*testing.T
	dir    string
	shards int
	number int
	wait   time.Duration // until the first may come; the last may come half as much later
	broker *process.Process
	ch     *amqp091.Channel

	due       []time.Time // by number: not before
	confirmed []*amqp091.DeferredConfirmation
	seen      []int
	came      int // different ones
	began     time.Time
}

func (h *hoard) run() {
	h.start()
	h.declare()
	h.discard()
	h.publish()
	h.broker.Kill()
	h.start()
	time.Sleep(time.Until(h.began.Add(h.wait + h.wait/4))) // about the middle of all releases
	h.broker.Kill()
	killed := time.Now()
	h.start()
	h.collect()
	h.judge(killed)
}

func (h *hoard) start() {
	h.broker = process.Start(h.T, fmt.Sprintf("data: {shards: %d}\nlimits: {heartbeat: 0s}\n", h.shards), "--data", h.dir)
	h.ch = connect(h.T, h.broker)
}

func (h *hoard) declare() {
	for _, name := range []string{later, "gone"} {
		declareQueue(h.T, h.ch, name, nil)
		if err := declareDelayed(h.ch, name); err != nil {
			h.Fatal(err)
		}
		if err := h.ch.QueueBind(name, name, name, false, nil); err != nil {
			h.Fatal(err)
		}
	}
	declareQueue(h.T, h.ch, "held", nil)
}

// send publishes a message that is held for a while.
func (h *hoard) send(exchange, key, header string, wait time.Duration, body []byte) *amqp091.DeferredConfirmation {
	m := amqp091.Publishing{DeliveryMode: amqp091.Persistent, Headers: amqp091.Table{header: wait.Milliseconds()}, Body: body}
	sent, err := h.ch.PublishWithDeferredConfirm(exchange, key, false, false, m)
	if err != nil {
		h.Fatal(err)
	}
	return sent
}

// discard deletes an exchange with all it holds, and declares it again.
func (h *hoard) discard() {
	var last *amqp091.DeferredConfirmation
	for range h.number / 20 {
		last = h.send("gone", "gone", "x-delay", h.wait, []byte("to be discarded"))
	}
	if ok, err := last.WaitContext(h.Context()); !ok || err != nil {
		h.Fatal("not confirmed", err)
	}
	if err := h.ch.ExchangeDelete("gone", false, false); err != nil {
		h.Fatal(err)
	}
	h.declare()
}

// publish publishes all. It does not wait for the last confirms.
func (h *hoard) publish() {
	h.seen, h.began = make([]int, h.number), time.Now()
	for n := range h.number {
		wait := h.wait + rand.N(h.wait/2)
		h.due = append(h.due, time.Now().Add(wait.Truncate(time.Millisecond)))
		body := binary.BigEndian.AppendUint64(nil, uint64(n))
		var sent *amqp091.DeferredConfirmation
		if n%2 == 0 {
			sent = h.send(later, later, "x-delay", wait, body)
		} else {
			sent = h.send("", "held", "x-deliver-after", wait, body)
		}
		h.confirmed = append(h.confirmed, sent)
		if n >= 1000 && n%1000 == 0 { // or all lie in sockets
			if _, err := h.confirmed[n-1000].WaitContext(h.Context()); err != nil {
				h.Fatal(err)
			}
		}
	}
}

// collect takes all that comes until nothing is missing, and what comes soon after the last may come.
func (h *hoard) collect() {
	scheduled, held := h.consume(later), h.consume("held")
	last := h.began.Add(2 * h.wait)
	for {
		select {
		case d := <-scheduled:
			h.note(&d)
		case d := <-held:
			h.note(&d)
		case <-time.After(100 * time.Millisecond):
			if over := time.Since(last); over > 0 && h.missing() == 0 || over > process.Patience {
				return
			}
		}
	}
}

func (h *hoard) consume(queue string) <-chan amqp091.Delivery {
	ds, err := h.ch.Consume(queue, "", true, false, false, false, nil)
	if err != nil {
		h.Fatal(err)
	}
	return ds
}

func (h *hoard) note(d *amqp091.Delivery) {
	n := binary.BigEndian.Uint64(d.Body)
	if early := time.Until(h.due[n]); early > 20*time.Millisecond { // clocks of two processes
		h.Errorf("message %d came %v too early", n, early)
	}
	if h.seen[n] == 0 {
		h.came++
	}
	h.seen[n]++
}

// missing is how many confirmed messages have not come.
func (h *hoard) missing() (n int) {
	for i, c := range h.confirmed {
		if h.seen[i] == 0 && c.Acked() {
			n++
		}
	}
	return n
}

func (h *hoard) judge(killed time.Time) {
	if n := h.missing(); n > 0 {
		h.Errorf("%d confirmed messages are lost", n)
	}
	twice := 0
	for n, seen := range h.seen {
		repeated := h.shards > 1 && n%2 == 0 && h.due[n].Before(killed) // that may be
		if seen > 1 && repeated {
			twice++
		} else if seen > 1 {
			h.Errorf("message %d came %d times", n, seen)
		}
	}
	if got := fetchTexts(h.T, h.ch, "gone", 1); len(got) > 0 {
		h.Errorf("%q came from an exchange that was deleted", got[0].Body)
	}
	h.Logf("%d of %d messages came, %d of them twice", h.came, h.number, twice)
}
