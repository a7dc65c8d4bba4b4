package session

import (
	"fmt"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
)

// rig is a connection for measuring: feeding it allocates nothing of its own.
type rig struct {
	*probe
	block *block.Block
}

func newRig(tb testing.TB, change ...func(*Options)) *rig {
	tb.Helper()
	p := newProbe(tb, change...).open().channel(1)
	p.queue(1, "q")
	return &rig{probe: p, block: block.New(256 << 10)}
}

// feed feeds bytes like a reader: in a block that is reused unless it is shared.
func (r *rig) feed(b []byte) {
	if r.block.Shared() {
		r.block.Release()
		r.block = block.New(256 << 10)
	}
	n := r.conn.Feed(r.now, r.block, r.block.Buf[:copy(r.block.Buf, b)])
	if n != len(b) {
		r.t.Fatalf("consumed %d of %d bytes", n, len(b))
	}
}

// drain discards the pending bytes, and wakes the consumers that were stalled.
func (r *rig) drain() (n int) {
	for {
		b, waiting, _ := r.conn.Writer().Next()
		if len(b) == 0 {
			return n
		}
		for _, part := range b {
			n += len(part)
		}
		for _, c := range waiting {
			c.Wake()
		}
	}
}

// many is the number of messages or acknowledgements in one read.
const many = 500

func messages(n int, m published) (b []byte) {
	for range n {
		b = append(b, m.frames(1)...)
	}
	return b
}

func hundredBytes() published {
	props := amqp.Properties{ContentType: "text/plain", DeliveryMode: 1}
	props.Set(amqp.PropContentType, amqp.PropDeliveryMode)
	return published{key: "q", body: fmt.Sprintf("%0100d", 0), props: props}
}

// acks appends basic.ack for n deliveries from a tag on.
func acks(from uint64, n int, dst []byte) []byte {
	for i := range n {
		dst = amqp.AppendAck(dst, 1, from+uint64(i), false)
	}
	return dst
}

// cycle publishes, delivers and acknowledges messages.
type cycle struct {
	*rig
	publish []byte
	acks    []byte
	noAck   bool
	tag     uint64
}

func newCycle(tb testing.TB, confirms, noAck bool, change ...func(*Options)) *cycle {
	tb.Helper()
	c := &cycle{rig: newRig(tb, change...), publish: messages(many, hundredBytes()), noAck: noAck, tag: 1}
	if confirms {
		do[*amqp.ConfirmSelectOK](c.probe, 1, &amqp.ConfirmSelect{})
	}
	do[*amqp.BasicConsumeOK](c.probe, 1, &amqp.BasicConsume{Queue: "q", NoAck: noAck})
	return c
}

func (c *cycle) run() {
	c.feed(c.publish)
	c.drain()
	if c.noAck {
		return
	}
	c.acks = acks(c.tag, many, c.acks[:0])
	c.tag += many
	c.feed(c.acks)
}

// In the steady state nothing is allocated per message, whether it is published, delivered, acknowledged or confirmed, as
// long as it is not traced.
func TestHotPathsDoNotAllocate(t *testing.T) {
	if lossyPools {
		t.Skip("pools that lose things make new ones")
	}
	for _, confirms := range []bool{false, true} {
		for _, noAck := range []bool{false, true} {
			for name, change := range map[string]func(*Options){"off": func(*Options) {}, "of others": newTracing(t, 0).options} {
				t.Run(fmt.Sprintf("confirms=%v,no-ack=%v,traces=%s", confirms, noAck, name), func(t *testing.T) {
					allocatesNothing(t, newCycle(t, confirms, noAck, change))
				})
			}
		}
	}
}

func allocatesNothing(t *testing.T, c *cycle) {
	t.Helper()
	for range 20 {
		c.run()
	}
	perMessage := testing.AllocsPerRun(50, c.run) / many
	if perMessage > 0.02 {
		t.Errorf("%v allocations for each message", perMessage)
	}
}

func BenchmarkPublish(b *testing.B) {
	r := newRig(b)
	frames := messages(many, hundredBytes())
	purge := amqp.AppendMethod(nil, 1, &amqp.QueuePurge{Queue: "q", NoWait: true})
	b.ReportAllocs()
	for i := 0; i < b.N; i += many {
		r.feed(frames)
		if i%(100*many) == 0 {
			r.feed(purge)
		}
	}
}

func BenchmarkPublishConfirmed(b *testing.B) {
	r := newRig(b)
	do[*amqp.ConfirmSelectOK](r.probe, 1, &amqp.ConfirmSelect{})
	frames := messages(many, hundredBytes())
	purge := amqp.AppendMethod(nil, 1, &amqp.QueuePurge{Queue: "q", NoWait: true})
	b.ReportAllocs()
	for i := 0; i < b.N; i += many {
		r.feed(frames)
		r.drain()
		if i%(100*many) == 0 {
			r.feed(purge)
		}
	}
}

func BenchmarkPublishAndDeliver(b *testing.B) {
	c := newCycle(b, false, true)
	b.ReportAllocs()
	for i := 0; i < b.N; i += many {
		c.run()
	}
}

func BenchmarkPublishDeliverAck(b *testing.B) {
	c := newCycle(b, false, false)
	b.ReportAllocs()
	for i := 0; i < b.N; i += many {
		c.run()
	}
}

func BenchmarkAck(b *testing.B) {
	c := newCycle(b, false, false)
	b.ReportAllocs()
	for i := 0; i < b.N; i += many {
		b.StopTimer()
		c.feed(c.publish)
		c.drain()
		c.acks = acks(c.tag, many, c.acks[:0])
		c.tag += many
		b.StartTimer()
		c.feed(c.acks)
	}
}
