package wasm

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/tests/process"
)

// A policy that becomes another all the time, while messages pass through its queue, loses none of them and leaves nothing behind.
func TestCampaignHotReloads(t *testing.T) {
	t.Parallel()
	const life = 50 * time.Millisecond
	n := int(campaign.Size(t, "RELOADS", 10, 100))
	b := start(t, "")
	load := func(status, i int) {
		b.ask(status, "PUT", "wasm/policies/x", fields{"module": ttl(), "config": fields{"ttl-ms": life.Milliseconds() + int64(i%10)}})
	}
	load(201, 0)
	b.declare("jobs", amqp091.Table{"x-expiry-strategy": "wasm/x"})
	publisher := attach(t, b.Process)
	stop, published := make(chan struct{}), make(chan int)
	go publisher.publishUntil(stop, published)
	dead, err := b.ch.Consume("dead", "", true, false, false, false, nil)
	must(t, err)
	counted := make(chan map[int]time.Duration)
	var taken atomic.Int64
	go func() { counted <- b.count(dead, &taken) }()

	var early int64 // memory, after a tenth of the reloads
	for i := range n {
		load(204, i)
		if i == n/10 {
			early = b.Resident()
		}
	}
	grown := b.Resident() - early
	close(stop)
	sent := <-published
	if !process.Poll(func() bool { return taken.Load() >= int64(sent) && b.waiting("jobs") == 0 }) { // what has left the queue has not come yet
		t.Errorf("%d messages of %d have come, and %d wait", taken.Load(), sent, b.waiting("jobs"))
	}
	must(t, b.ch.Close())
	lives := <-counted
	for i := range sent {
		if lived, ok := lives[i]; !ok || lived < life-clockSlack {
			t.Errorf("message %d of %d: lived for %s, expired: %t", i, sent, lived, ok)
		}
	}
	i := attach(t, b.Process).info("x")
	t.Logf("%d reloads, %d messages, memory grew by %d KiB from reload %d on, %+v", n, sent, grown>>10, n/10, i)
	const much = 64 << 20
	if i.Errors["unavailable"]+i.Errors["trap"]+i.Errors["fuel"] > 0 || grown > much {
		t.Errorf("got %v, %d bytes more than after a tenth", i.Errors, grown)
	}
}

// publishUntil publishes messages in small groups, and tells how many.
func (b *broker) publishUntil(stop <-chan struct{}, published chan<- int) {
	n := 0
	for {
		select {
		case <-stop:
			published <- n
			return
		default:
			b.publish("jobs", n, n+20)
			n += 20
		}
	}
}

// count takes messages until there are no more, and tells how long each has lived. taken counts them meanwhile.
func (b *broker) count(dead <-chan amqp091.Delivery, taken *atomic.Int64) map[int]time.Duration {
	lives := map[int]time.Duration{}
	for d := range dead {
		l := b.open(d)
		lives[l.number] = l.lived
		taken.Add(1)
	}
	return lives
}
