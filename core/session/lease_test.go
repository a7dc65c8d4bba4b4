package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// leaseProbe is a probe that has the queues' clock.
type leaseProbe struct {
	*probe
	clock clock.Clock
}

// withLeases runs a test in a bubble, with channels 1 and 2.
func withLeases(t *testing.T, run func(p *leaseProbe), change ...func(*Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		now := clock.New()
		p := &leaseProbe{newProbe(t, change...).open("consumer_cancel_notify"), now}
		p.now = now()
		p.channel(1).channel(2)
		run(p)
	})
}

// wait lets time pass, and then acts as the owner of the socket does.
func (p *leaseProbe) wait(d time.Duration) {
	p.t.Helper()
	time.Sleep(d)
	p.now = p.clock()
	for at := p.conn.LeaseAt(); at != 0 && at <= p.now; at = p.conn.LeaseAt() {
		p.conn.Tick(p.now)
	}
	synctest.Wait()
	p.feed(nil)
}

// stats returns the counts of a queue.
func (p *leaseProbe) stats(name string) (s queue.Stats) {
	p.t.Helper()
	m, err := p.conn.vhost.Queue(name, p.conn.id)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = m.Look(func(q *queue.Queue) { s = q.Stats() })
	return s
}

// has expects a queue to have the given numbers of ready and unacknowledged messages.
func (p *leaseProbe) has(name string, ready, unacked int) {
	p.t.Helper()
	if s := p.stats(name); s.Ready != ready || s.Unacked != unacked {
		p.t.Errorf("queue %s has %d ready and %d unacknowledged messages, want %d and %d", name, s.Ready, s.Unacked, ready, unacked)
	}
}

// ended expects the given number of ended leases.
func (p *leaseProbe) ended(name string, want uint64) {
	p.t.Helper()
	if got := p.stats(name).LeasesEnded; got != want {
		p.t.Errorf("%d leases have ended, want %d", got, want)
	}
}

func unknown(tag int) string {
	return fmt.Sprintf("PRECONDITION_FAILED - unknown delivery tag %d", tag)
}

func TestDeliveryLease(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q", "x-delivery-lease", int32(1000))
		do[*amqp.BasicQosOK](p.probe, 1, &amqp.BasicQos{PrefetchCount: 3})
		p.consume(1, "q", "c")
		p.publish(2, bodies("q", "1", "2", "3", "4")...)
		p.delivers(1, "c1:1 c2:2 c3:3")
		p.wait(999 * time.Millisecond)
		p.send(1, &amqp.BasicAck{DeliveryTag: 2})
		p.delivers(1, "c4:4")
		p.wait(time.Millisecond)
		p.delivers(1, "c5:1* c6:3*") // 2 was settled, the lease of 4 began later
		p.ended("q", 2)
		p.has("q", 0, 3)

		p.send(1, &amqp.BasicAck{DeliveryTag: 1}, &amqp.BasicNack{DeliveryTag: 3, Requeue: true}) // too late: ignored
		p.silent()
		p.has("q", 0, 3)
		p.send(1, &amqp.BasicAck{DeliveryTag: 5}, &amqp.BasicAck{DeliveryTag: 4})
		p.has("q", 0, 1)
		p.wait(time.Second)
		p.delivers(1, "c7:3*")
		p.send(1, &amqp.BasicAck{DeliveryTag: 7})
		p.wait(time.Hour)
		p.silent()
		p.has("q", 0, 0)
		p.ended("q", 3)
		p.send(1, &amqp.BasicAck{DeliveryTag: 1}) // it was ignored once: a second time is the client's mistake
		p.closed(1, 406, unknown(1))
	})
}

// A message whose lease ends returns to its place, before messages published later, and other consumers get it.
func TestALeaseEndsInTheOldPosition(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q", "x-delivery-lease", int32(1000))
		do[*amqp.BasicQosOK](p.probe, 1, &amqp.BasicQos{PrefetchCount: 2})
		p.consume(1, "q", "c")
		p.publish(2, bodies("q", "1", "2", "3", "4")...)
		p.delivers(1, "c1:1 c2:2")
		do[*amqp.BasicCancelOK](p.probe, 1, &amqp.BasicCancel{ConsumerTag: "c"})
		p.wait(time.Second)
		p.silent()
		p.has("q", 4, 0)
		p.consume(2, "q", "d")
		p.delivers(2, "d1:1* d2:2* d3:3 d4:4")
	})
}

func TestWhoseLeaseCounts(t *testing.T) {
	for _, tt := range []struct {
		name            string
		queue, consumer any
		noAck           bool
		want            time.Duration // 0 = never
	}{
		{name: "none"},
		{name: "queue", queue: int32(1000), want: time.Second},
		{name: "consumer", consumer: int64(500), want: time.Second / 2},
		{name: "shorter consumer", queue: int32(1000), consumer: int32(10), want: 10 * time.Millisecond},
		{name: "longer consumer", queue: int32(1000), consumer: int32(5000), want: 5 * time.Second},
		{name: "consumer without", queue: int32(1000), consumer: int32(0)},
		{name: "no acknowledgements", queue: int32(1000), noAck: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withLeases(t, func(p *leaseProbe) {
				var ofQueue, ofConsumer amqp.Table
				if tt.queue != nil {
					ofQueue = table("x-delivery-lease", tt.queue)
				}
				if tt.consumer != nil {
					ofConsumer = table("x-delivery-lease", tt.consumer)
				}
				do[*amqp.QueueDeclareOK](p.probe, 1, &amqp.QueueDeclare{Queue: "q", Arguments: ofQueue})
				do[*amqp.BasicConsumeOK](p.probe, 1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c", NoAck: tt.noAck, Arguments: ofConsumer})
				p.publish(2, bodies("q", "1")...)
				p.delivers(1, "c1:1")
				if tt.want == 0 {
					p.wait(time.Hour)
					p.silent()
					return
				}
				p.wait(tt.want - 1)
				p.silent()
				p.wait(1)
				p.delivers(1, "c2:1*")
			})
		})
	}
}

func TestLeaseOfGet(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q", "x-delivery-lease", int32(1000))
		p.publish(2, bodies("q", "1")...)
		do[*amqp.BasicGetOK](p.probe, 1, &amqp.BasicGet{Queue: "q"})
		p.content(1)
		p.wait(time.Second - 1)
		p.has("q", 0, 1)
		p.wait(1)
		p.has("q", 1, 0)
		p.send(1, &amqp.BasicAck{DeliveryTag: 1})
		p.silent()
		if got := do[*amqp.BasicGetOK](p.probe, 1, &amqp.BasicGet{Queue: "q"}); !got.Redelivered || got.DeliveryTag != 2 {
			t.Errorf("got %+v", got)
		}
		p.content(1)
		p.send(1, &amqp.BasicAck{DeliveryTag: 2})
		p.wait(time.Hour)
		p.has("q", 0, 0)
	})
}

func TestLeaseArguments(t *testing.T) {
	for _, tt := range []struct {
		value any
		text  string
	}{
		{int32(-1), "{value_negative,-1}"},
		{int64(hook.MaxMillis + 1), "{value_too_large,315360000001}"},
		{"60000", `"expected integer, got longstr"`},
	} {
		p := newProbe(t).open().channel(1).channel(2)
		p.queue(1, "q")
		p.send(1, &amqp.BasicConsume{Queue: "q", Arguments: table("x-delivery-lease", tt.value)})
		p.closed(1, 406, "PRECONDITION_FAILED - invalid arg 'x-delivery-lease' for queue 'q' in vhost '/': "+tt.text)
		p.send(2, &amqp.QueueDeclare{Queue: "r", Arguments: table("x-delivery-lease", tt.value)})
		p.closed(2, 406, "PRECONDITION_FAILED - invalid arg 'x-delivery-lease' for queue 'r' in vhost '/': "+tt.text)
	}
	p := newProbe(t).open().channel(1).channel(2)
	p.send(1, &amqp.QueueDeclare{Queue: "r", Arguments: table("x-delivery-lease", int32(0))})
	p.closed(1, 406, "PRECONDITION_FAILED - invalid arg 'x-delivery-lease' for queue 'r' in vhost '/': {value_zero,0}")
	p.queue(2, "q", "x-delivery-lease", int64(hook.MaxMillis))
	p.send(2, &amqp.QueueDeclare{Queue: "q", Arguments: table("x-delivery-lease", int64(1))})
	p.closed(2, 406, "PRECONDITION_FAILED - inequivalent arg 'x-delivery-lease' for queue 'q' in vhost '/': "+
		"received '1' but current is '315360000000'")
}

// Settling with multiple=true covers deliveries whose lease has ended, at its end as well as below it.
func TestMultipleSettlesAcrossEndedLeases(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q")
		p.queue(1, "leased", "x-delivery-lease", int32(1000))
		do[*amqp.BasicConsumeOK](p.probe, 1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c"})
		get := func(name string) {
			p.publish(2, bodies(name, "x")...)
			if name == "q" {
				p.delivered(1, "x")
				return
			}
			do[*amqp.BasicGetOK](p.probe, 1, &amqp.BasicGet{Queue: name})
			p.content(1)
		}
		for _, name := range []string{"q", "leased", "leased", "q", "leased", "q"} { // tags 1 to 6
			get(name)
		}
		p.wait(time.Second)
		p.has("leased", 3, 0)
		p.has("q", 0, 3)
		p.send(1, &amqp.BasicAck{DeliveryTag: 3, Multiple: true}) // its lease has ended
		p.silent()
		p.has("q", 0, 2)
		p.send(1, &amqp.BasicAck{DeliveryTag: 4, Multiple: true})
		p.has("q", 0, 1)
		p.send(1, &amqp.BasicAck{DeliveryTag: 0, Multiple: true})
		p.silent()
		p.has("q", 0, 0)
		p.has("leased", 3, 0)
		p.send(1, &amqp.BasicAck{DeliveryTag: 5, Multiple: true}) // it was settled with all others
		p.closed(1, 406, unknown(5))
	})
}

func TestUnknownTagsAreUnknownWithLeases(t *testing.T) {
	for _, multiple := range []bool{false, true} {
		withLeases(t, func(p *leaseProbe) {
			p.queue(1, "q", "x-delivery-lease", int32(1000))
			p.consume(1, "q", "c")
			p.publish(2, bodies("q", "1", "2")...)
			p.delivers(1, "c1:1 c2:2")
			do[*amqp.BasicCancelOK](p.probe, 1, &amqp.BasicCancel{ConsumerTag: "c"})
			p.send(1, &amqp.BasicAck{DeliveryTag: 2})
			p.wait(time.Second)
			p.send(1, &amqp.BasicAck{DeliveryTag: 3, Multiple: multiple})
			p.closed(1, 406, unknown(3))
			p.has("q", 1, 0)
		})
	}
}

// The credit of a delivery returns when its lease ends, both a consumer's and a channel's.
func TestALeaseReturnsCredit(t *testing.T) {
	for _, global := range []bool{false, true} {
		withLeases(t, func(p *leaseProbe) {
			p.queue(1, "q", "x-delivery-lease", int32(1000))
			p.queue(1, "other")
			do[*amqp.BasicQosOK](p.probe, 1, &amqp.BasicQos{PrefetchCount: 1, Global: global})
			p.consume(1, "q", "c")
			p.publish(2, bodies("q", "1", "2")...)
			p.delivers(1, "c1:1")
			for tag := 2; tag < 5; tag++ {
				p.wait(time.Second)
				p.delivers(1, fmt.Sprintf("c%d:1*", tag))
			}
			p.send(1, &amqp.BasicAck{DeliveryTag: 4})
			p.delivers(1, "c5:2")
			do[*amqp.BasicCancelOK](p.probe, 1, &amqp.BasicCancel{ConsumerTag: "c"})
			do[*amqp.QueuePurgeOK](p.probe, 2, &amqp.QueuePurge{Queue: "q"})
			p.wait(time.Second)
			p.consume(1, "other", "d")
			p.publish(2, bodies("other", "3")...)
			p.delivers(1, "d6:3")
			if got := p.conn.channels.at(1).deliveries.credit.inFlight; got != 1 {
				t.Errorf("%d deliveries are in flight, want 1", got)
			}
		})
	}
}

// Each delivery whose lease ends counts towards the delivery limit of a quorum queue.
func TestALeaseCountsAsAFailedDelivery(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		do[*amqp.QueueDeclareOK](p.probe, 1, &amqp.QueueDeclare{Queue: "q", Durable: true, Arguments: table(
			"x-queue-type", "quorum", "x-delivery-lease", int32(1000), "x-delivery-limit", int32(2))})
		p.consume(1, "q", "c")
		p.publish(2, bodies("q", "1")...)
		p.delivers(1, "c1:1")
		p.wait(time.Second)
		p.delivers(1, "c2:1*")
		p.wait(time.Second)
		p.delivers(1, "c3:1*")
		p.wait(time.Second)
		p.silent()
		p.has("q", 0, 0)
		if s := p.stats("q"); s.Dropped[hook.ReasonDeliveryLimit] != 1 || s.LeasesEnded != 3 {
			t.Errorf("%d dropped, %d leases ended", s.Dropped[hook.ReasonDeliveryLimit], s.LeasesEnded)
		}
	})
}

// Settlements in a transaction take effect at the commit: until then the lease goes on.
func TestLeasesInATransaction(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q", "x-delivery-lease", int32(1000))
		p.publish(2, bodies("q", "1", "2", "3", "4")...)
		do[*amqp.TxSelectOK](p.probe, 1, &amqp.TxSelect{})
		p.consume(1, "q", "c")
		p.delivers(1, "c1:1 c2:2 c3:3 c4:4")
		do[*amqp.BasicCancelOK](p.probe, 1, &amqp.BasicCancel{ConsumerTag: "c"})
		p.send(1, &amqp.BasicAck{DeliveryTag: 1})
		p.commit(1)
		p.send(1, &amqp.BasicAck{DeliveryTag: 2}, &amqp.BasicAck{DeliveryTag: 3})
		p.wait(time.Second)
		p.has("q", 3, 0)
		p.send(1, &amqp.BasicAck{DeliveryTag: 4}) // too late
		p.commit(1)
		p.silent()
		p.has("q", 3, 0)
		p.ended("q", 3)

		p.consume(1, "q", "d")
		p.delivers(1, "d5:2* d6:3* d7:4*")
		p.send(1, &amqp.BasicAck{DeliveryTag: 5}, &amqp.BasicAck{DeliveryTag: 4}) // the second one again
		p.commit(1)
		p.has("q", 0, 2)
		p.send(1, &amqp.BasicAck{DeliveryTag: 6})
		p.wait(time.Second)
		p.delivers(1, "d8:3* d9:4*")
		p.rollback(1)
		p.send(1, &amqp.BasicAck{DeliveryTag: 6}) // it did not come back with the rollback
		p.send(1, &amqp.BasicAck{DeliveryTag: 8})
		p.rollback(1)
		p.send(1, &amqp.BasicAck{DeliveryTag: 9, Multiple: true}) // 8 came back
		p.commit(1)
		p.silent()
		p.has("q", 0, 0)
	})
}

// After a rollback a delivery has the lease that it had before.
func TestALeaseSurvivesARollback(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q", "x-delivery-lease", int32(1000))
		p.publish(2, bodies("q", "1")...)
		do[*amqp.TxSelectOK](p.probe, 1, &amqp.TxSelect{})
		p.consume(1, "q", "c")
		p.delivers(1, "c1:1")
		p.send(1, &amqp.BasicAck{DeliveryTag: 1})
		p.wait(500 * time.Millisecond)
		p.rollback(1)
		p.wait(500*time.Millisecond - 1)
		p.silent()
		p.wait(1)
		p.delivers(1, "c2:1*")
	})
}

// A channel that closes, or a queue that is deleted, leaves no lease behind.
func TestLeasesEndWithTheirChannelOrQueue(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q", "x-delivery-lease", int32(1000))
		p.queue(1, "r", "x-delivery-lease", int32(1000))
		p.consume(1, "q", "c")
		p.consume(2, "r", "c")
		p.publish(2, append(bodies("q", "1"), bodies("r", "2")...)...)
		p.delivered(1, "1")
		p.delivered(2, "2")
		do[*amqp.ChannelCloseOK](p.probe, 1, &amqp.ChannelClose{ReplyCode: 200})
		p.has("q", 1, 0)
		do[*amqp.QueueDeleteOK](p.probe, 2, &amqp.QueueDelete{Queue: "r"})
		expect[*amqp.BasicCancel](p.probe, 2)
		p.wait(time.Second)
		p.silent()
		p.has("q", 1, 0)
		p.ended("q", 0)
		p.send(2, &amqp.BasicAck{DeliveryTag: 1}) // ended, of a queue that is gone
		p.silent()
		if at := p.conn.LeaseAt(); at != 0 {
			t.Errorf("the next lease ends at %d", at)
		}
	})
}

// The consumer timeout is for deliveries without a lease.
func TestConsumerTimeoutAndLeases(t *testing.T) {
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q", "x-delivery-lease", int32(3600_000))
		do[*amqp.BasicQosOK](p.probe, 1, &amqp.BasicQos{PrefetchCount: 1})
		p.consume(1, "q", "c")
		p.publish(1, bodies("q", "1")...)
		p.delivers(1, "c1:1")
		do[*amqp.BasicConsumeOK](p.probe, 2, &amqp.BasicConsume{Queue: "q", ConsumerTag: "d", Arguments: table("x-delivery-lease", int32(0))})
		p.publish(2, bodies("q", "2")...)
		p.delivers(2, "d1:2")
		p.tick(0)
		p.wait(time.Minute)
		p.conn.Tick(p.now)
		p.feed(nil)
		m := expect[*amqp.ChannelClose](p.probe, 2)
		if want := strings.Replace(timedOut, "channel 1", "channel 2", 1); m.ReplyText != want {
			t.Errorf("got %s, want %s", m.ReplyText, want)
		}
		p.silent()
		p.has("q", 1, 1)
		p.send(1, &amqp.BasicAck{DeliveryTag: 1})
		p.delivers(1, "c2:2*")
	}, withTimeout(time.Minute))
}

// A consumer that settles nothing for days, or every second delivery, needs little memory, and so does one that settles all.
func TestLeasesAreBounded(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ack    func(tag uint64) bool
		ranges int
	}{
		{"nothing", func(uint64) bool { return false }, 1},
		{"all", func(uint64) bool { return true }, 0},
		{"every second one", func(tag uint64) bool { return tag%2 == 0 }, maxEndedRanges},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withLeases(t, func(p *leaseProbe) {
				p.queue(1, "q", "x-delivery-lease", int32(1000))
				for range 5000 {
					p.publish(2, bodies("q", "x")...)
					do[*amqp.BasicGetOK](p.probe, 1, &amqp.BasicGet{Queue: "q"})
					p.content(1)
					if tag := p.conn.channels.at(1).deliveries.unsettled.tags.next; tt.ack(tag) {
						p.send(1, &amqp.BasicAck{DeliveryTag: tag})
					}
				}
				p.wait(0)
				ch := &p.conn.channels.at(1).deliveries.unsettled
				if n, limit := ch.leases.runs.Len(), 2*ch.tags.count()+minRuns; n > limit {
					t.Errorf("%d runs for %d deliveries", n, ch.tags.count())
				}
				p.wait(time.Second)
				if n := ch.leases.runs.Len(); n > 0 {
					t.Errorf("%d runs for nothing", n)
				}
				if n := len(ch.ended.ranges); n > tt.ranges {
					t.Errorf("%d ranges, want %d", n, tt.ranges)
				}
			})
		})
	}
}

// A million deliveries in flight take little more memory than without leases, and come back in order.
func TestAMillionLeases(t *testing.T) {
	const n = 1024 / fewer * 1024
	withLeases(t, func(p *leaseProbe) {
		p.queue(1, "q", "x-delivery-lease", int32(60_000))
		for range n / 1024 {
			p.publish(2, bodies("q", strings.Split(strings.Repeat("x ", 1023)+"x", " ")...)...)
		}
		consume := amqp.AppendMethod(nil, 1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c"})
		k := block.New(len(consume))
		p.conn.Feed(p.now, k, k.Buf[:copy(k.Buf, consume)])
		k.Release()
		p.drain()
		ch := &p.conn.channels.at(1).deliveries.unsettled
		if got := ch.tags.count(); got != n {
			t.Fatalf("%d deliveries in flight", got)
		}
		if runs := ch.leases.runs.Len(); runs > n/16 {
			t.Errorf("%d runs", runs)
		}
		do[*amqp.BasicCancelOK](p.probe, 1, &amqp.BasicCancel{ConsumerTag: "c"})
		p.wait(time.Minute)
		p.has("q", n, 0)
		p.ended("q", n)
		if got := len(ch.ended.ranges); got != 1 {
			t.Errorf("%d ranges", got)
		}
	})
}

// drain discards the output of the connection, and lets stalled consumers continue.
func (p *leaseProbe) drain() {
	p.out = nil
	for {
		b, stalled, _ := p.conn.Writer().Next()
		if len(b) == 0 {
			return
		}
		for _, c := range stalled {
			c.Wake()
		}
	}
}

// newLeasedCycle is newCycle with acknowledgements, for deliveries with a lease.
func newLeasedCycle(tb testing.TB) *cycle {
	tb.Helper()
	c := &cycle{rig: newRig(tb), publish: messages(many, hundredBytes()), tag: 1}
	do[*amqp.BasicConsumeOK](c.probe, 1, &amqp.BasicConsume{Queue: "q", Arguments: table("x-delivery-lease", int32(60_000))})
	return c
}

func TestLeasesDoNotAllocate(t *testing.T) {
	if lossyPools {
		t.Skip("pools that lose things make new ones")
	}
	allocatesNothing(t, newLeasedCycle(t))
}

func BenchmarkPublishDeliverAckLeased(b *testing.B) {
	c := newLeasedCycle(b)
	b.ReportAllocs()
	for i := 0; i < b.N; i += many {
		c.run()
	}
}
