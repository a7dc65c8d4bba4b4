package bench

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// delivered appends a delivery with a stamp at the start of its body.
func delivered(dst []byte, tag uint64, size int, stamp int64) []byte {
	body := make([]byte, size)
	if size >= stampSize {
		binary.BigEndian.PutUint64(body, uint64(stamp))
	}
	dst = amqp.AppendDeliver(dst, channel, "c", tag, false, []byte("some exchange"), []byte("some key"))
	dst = amqp.AppendContentHeader(dst, channel, uint64(size), []byte{0x10, 0, 2})
	return amqp.AppendBody(dst, channel, body, amqp.FrameMinSize)
}

// arrived returns a consumer whose connection has read buf at once.
func arrived(buf []byte, ackEvery int64) *consumer {
	c := &conn{in: make([]byte, readSize), frameMax: frameMax}
	c.w = copy(c.in, buf)
	return &consumer{c: c, clock: newClock(), ackEvery: ackEvery, latency: &tally{}}
}

func TestConsumerPutsFramesTogetherWhereverReadsCutThem(t *testing.T) {
	var wire []byte
	sizes := []int{16, 0, 7, 8, 300, 16}
	for i, size := range sizes {
		wire = delivered(wire, uint64(i+1), size, int64(1000+i))
	}
	for cut := range len(wire) + 1 {
		k := arrived(wire[:cut], 1)
		n, err := k.measure(1_000_000)
		if err != nil {
			t.Fatal(err)
		}
		copy(k.c.in[k.c.w:], wire[cut:])
		k.c.w += len(wire) - cut
		m, err := k.measure(1_000_000)
		if err != nil {
			t.Fatal(err)
		}
		if n+m != int64(len(sizes)) || k.latency.h.n != 4 || k.latency.h.max != 999_000 {
			t.Fatalf("cut at %d: %d messages, %d latencies up to %d; want %d, 4 up to 999000", cut, n+m, k.latency.h.n, k.latency.h.max, len(sizes))
		}
		if acks := readAcks(t, k.out); len(acks) != len(sizes) || acks[5].DeliveryTag != 6 || acks[5].Multiple {
			t.Fatalf("cut at %d: acknowledgements %v", cut, acks)
		}
	}
}

func readAcks(t *testing.T, buf []byte) (acks []amqp.BasicAck) {
	t.Helper()
	for len(buf) > 0 {
		f, n, err := amqp.NextFrame(buf, frameMax)
		if err != nil || n == 0 {
			t.Fatalf("%d bytes left over: %v", len(buf), err)
		}
		m, err := amqp.ParseMethod(f.Payload)
		if err != nil {
			t.Fatal(err)
		}
		acks = append(acks, *m.(*amqp.BasicAck))
		buf = buf[n:]
	}
	return acks
}

func TestConsumerAcknowledges(t *testing.T) {
	cases := []struct {
		name  string
		every int64
		want  []amqp.BasicAck
		left  int64
	}{
		{name: "automatic", every: 0},
		{name: "each", every: 1, want: []amqp.BasicAck{{DeliveryTag: 1}, {DeliveryTag: 2}, {DeliveryTag: 3}, {DeliveryTag: 4}, {DeliveryTag: 5}}},
		{name: "every other", every: 2, want: []amqp.BasicAck{{DeliveryTag: 2, Multiple: true}, {DeliveryTag: 4, Multiple: true}}, left: 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var wire []byte
			for tag := range uint64(5) {
				wire = delivered(wire, tag+1, 16, 1)
			}
			k := arrived(wire, c.every)
			if _, err := k.measure(2); err != nil {
				t.Fatal(err)
			}
			got := readAcks(t, k.out)
			if len(got) != len(c.want) || k.unacked != c.left {
				t.Fatalf("got %v and %d left, want %v and %d", got, k.unacked, c.want, c.left)
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Errorf("acknowledgement %d: %+v, want %+v", i, got[i], c.want[i])
				}
			}
		})
	}
}

func TestConsumerNamesTheBrokersReason(t *testing.T) {
	cases := []struct {
		name string
		in   []byte
		want string
	}{
		{name: "channel", in: amqp.AppendMethod(nil, channel, &amqp.ChannelClose{ReplyCode: 406, ReplyText: "PRECONDITION_FAILED - x"}), want: "closed the channel: 406 PRECONDITION_FAILED - x"},
		{name: "connection", in: amqp.AppendMethod(nil, 0, &amqp.ConnectionClose{ReplyCode: 320, ReplyText: "CONNECTION_FORCED - x"}), want: "closed the connection: 320 CONNECTION_FORCED - x"},
		{name: "cancel", in: amqp.AppendMethod(nil, channel, &amqp.BasicCancel{ConsumerTag: "c"}), want: "cancelled the consumer"},
		{name: "blocked is none", in: amqp.AppendMethod(nil, 0, &amqp.ConnectionBlocked{Reason: "low on memory"})},
		{name: "heartbeat is none", in: amqp.AppendHeartbeat(nil)},
		{name: "not AMQP", in: []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), want: "FRAME_ERROR"},
		{name: "body without an end", in: amqp.AppendBody(nil, channel, []byte("x"), 4096), want: "body frame of 1 bytes where 0 were left"},
		{name: "deliver cut short", in: []byte{1, 0, 1, 0, 0, 0, 6, 0, 60, 0, 60, 9, 9, 0xCE}, want: "no delivery tag"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := arrived(c.in, 0).measure(0)
			check(t, err, c.want)
		})
	}
}

func TestConsumerAllocatesNothing(t *testing.T) {
	var wire []byte
	for tag := range uint64(500) {
		wire = delivered(wire, tag+1, 16, int64(tag))
	}
	k := arrived(wire, 10)
	end := k.c.w
	got := testing.AllocsPerRun(50, func() {
		k.c.r, k.c.w, k.out = 0, end, k.out[:0]
		if n, err := k.measure(1e9); n != 500 || err != nil {
			t.Fatal(n, err)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations for 500 deliveries, want none", got)
	}
}

// sink is a connection that keeps the bytes written to it, and counts the writes.
type sink struct {
	net.Conn
	bytes.Buffer
	writes int
}

func (s *sink) Write(b []byte) (int, error)      { s.writes++; return s.Buffer.Write(b) }
func (s *sink) Read(b []byte) (int, error)       { return s.Buffer.Read(b) }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }

// Without batches each message is a separate write, as by client libraries.
func TestPublisherWritesEachMessageByItself(t *testing.T) {
	for _, rate := range []float64{0, 1e6} {
		synctest.Test(t, func(t *testing.T) {
			out := &sink{}
			p := &publisher{
				c: &conn{nc: out}, clock: newClock(), pace: bubblePacer{}, limit: 1000, rate: rate,
				t: newTemplate(content{keys: []string{"a"}, size: 16, batch: 1, ttl: -1, frameMax: 4096}),
			}
			if err := p.publish(t.Context()); err != nil {
				t.Fatal(err)
			}
			if out.writes != 1000 || len(readBack(t, out.Bytes())) != 1000 {
				t.Errorf("rate %v: 1000 messages in %d writes", rate, out.writes)
			}
		})
	}
}

func TestPublisherWritesManyMessagesAtOnce(t *testing.T) {
	out := &sink{}
	p := &publisher{
		c: &conn{nc: out}, clock: newClock(), limit: 10_000,
		t: newTemplate(content{keys: []string{"a", "b", "c"}, size: 16, batch: 800, ttl: -1, frameMax: 4096}),
	}
	if err := p.publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	ms := readBack(t, out.Bytes())
	if len(ms) != 10_000 || p.sent.Load() != 10_000 || out.writes > 13 {
		t.Fatalf("%d messages, %d counted, %d writes; want 10000, 10000, 13 or fewer", len(ms), p.sent.Load(), out.writes)
	}
	for i, m := range ms {
		if want := []string{"a", "b", "c"}[i%3]; m.publish.RoutingKey != want {
			t.Fatalf("message %d goes to %s, want %s", i, m.publish.RoutingKey, want)
		}
	}
}

func TestPacedPublisherStampsTheIntendedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &sink{}
		p := &publisher{
			c: &conn{nc: out}, clock: newClock(), pace: bubblePacer{}, limit: 100, rate: 500,
			t: newTemplate(content{keys: []string{"a"}, size: 8, ttl: -1, frameMax: 4096}),
		}
		begin := p.clock.now()
		if err := p.publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, m := range readBack(t, out.Bytes()) {
			if got := int64(binary.BigEndian.Uint64(m.body)) - begin; got != int64(i)*int64(2*time.Millisecond) {
				t.Fatalf("message %d is stamped %v after the start, want %v", i, time.Duration(got), time.Duration(i)*2*time.Millisecond)
			}
		}
		if took := time.Duration(p.clock.now() - begin); took != 198*time.Millisecond {
			t.Errorf("100 messages at 500 per second took %v, want 198ms", took)
		}
	})
}
