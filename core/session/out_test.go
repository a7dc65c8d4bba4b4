package session

import (
	"bytes"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
)

func write(o *out, b string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reserve(len(b))
	o.pending = append(o.pending, b...)
	o.kick()
}

// taken takes what waits to be written, in as many pieces as it comes in.
func taken(o *out) string {
	var all []byte
	for {
		b, _, _ := o.next()
		if len(b) == 0 {
			return string(all)
		}
		all = append(all, b...)
	}
}

func signalled(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestOutWakesASleepingWriterOnce(t *testing.T) {
	o := newOut(new(atomic.Int64))
	write(&o, "a")
	if signalled(o.wake) {
		t.Error("a writer that was not asleep was woken")
	}
	if got := taken(&o); got != "a" {
		t.Errorf("got %q, want a", got)
	}
	if _, _, ok := o.next(); !ok {
		t.Error("the writer was sent away")
	}
	write(&o, "b")
	write(&o, "c")
	if !signalled(o.wake) || signalled(o.wake) {
		t.Error("want one signal")
	}
	if got := taken(&o); got != "bc" {
		t.Errorf("got %q, want bc", got)
	}
}

func TestOutSealed(t *testing.T) {
	o := newOut(new(atomic.Int64))
	write(&o, "a")
	o.seal([]byte("Z"))
	write(&o, "b")
	if !o.full() {
		t.Error("deliveries are taken after the last frame")
	}
	if got := taken(&o); got != "aZ" {
		t.Errorf("got %q, want aZ", got)
	}
	write(&o, "c")
	if b, _, ok := o.next(); !ok || len(b) > 0 {
		t.Errorf("got %q, %t after the last frame, which another may follow", b, ok)
	}
	o.seal([]byte("Y"))
	o.end()
	write(&o, "d")
	if got := taken(&o); got != "Y" {
		t.Errorf("got %q, want Y", got)
	}
	if b, _, ok := o.next(); ok || len(b) > 0 {
		t.Errorf("got %q, %t after the end", b, ok)
	}
}

func TestOutClosed(t *testing.T) {
	var total atomic.Int64
	o := newOut(&total)
	write(&o, string(make([]byte, congestion)))
	if !o.congested.Load() || total.Load() == 0 {
		t.Fatal("not congested")
	}
	o.close()
	if !signalled(o.resumed) || !signalled(o.wake) || o.congested.Load() {
		t.Error("those who wait were not told")
	}
	write(&o, string(make([]byte, congestion)))
	if b, _, ok := o.next(); ok || len(b) > 0 || total.Load() != 0 {
		t.Errorf("%d bytes, ok %t, total %d after the end", len(b), ok, total.Load())
	}
}

func TestOutCongestion(t *testing.T) {
	var total atomic.Int64
	o := newOut(&total)
	part := string(make([]byte, grain))
	for range congestion/grain - 1 {
		write(&o, part)
	}
	if o.congested.Load() {
		t.Error("congested too early")
	}
	write(&o, part)
	if !o.congested.Load() || total.Load() != congestion {
		t.Errorf("congested %t, total %d, want true, %d", o.congested.Load(), total.Load(), congestion)
	}
	taken(&o)
	if o.congested.Load() || !signalled(o.resumed) || total.Load() != 0 {
		t.Error("still congested")
	}
}

// What was handed to the writer does not change while it is written.
func TestOutBuffersDoNotMix(t *testing.T) {
	o := newOut(new(atomic.Int64))
	for i := range 100 {
		want := bytes.Repeat([]byte{byte(i)}, 1+i*397)
		write(&o, string(want))
		b, _, _ := o.next()
		write(&o, string(bytes.Repeat([]byte{0xff}, 1+i*811)))
		if !bytes.Equal(b, want) {
			t.Fatalf("round %d: bytes changed while they were written", i)
		}
		o.next()
	}
}

func TestOutIdleHoldsNothing(t *testing.T) {
	o := newOut(new(atomic.Int64))
	write(&o, string(make([]byte, room)))
	taken(&o)
	taken(&o)
	if o.pending != nil || o.held != nil || o.writing != nil {
		t.Error("an idle connection holds on to a buffer")
	}
}

// A large message is written in chunks, none of which is copied when another is begun.
func TestOutChunks(t *testing.T) {
	const frameMax = 128 << 10
	body := bytes.Repeat([]byte("0123456789abcdef"), 5*largestChunk/16/2)
	want := amqp.AppendContentHeader([]byte("before"), 7, uint64(len(body)), []byte{0, 0})
	want = append(amqp.AppendBody(want, 7, body, frameMax), "behind"...)

	var total atomic.Int64
	o := newOut(&total)
	o.mu.Lock()
	o.pending = append(o.pending, "before"...)
	o.content(7, []byte{0, 0}, body, frameMax)
	o.pending = append(o.pending, "behind"...)
	o.kick()
	if got := o.bytes(); got != len(want) || !o.full() {
		t.Errorf("%d bytes wait, full %t; want %d", got, o.full(), len(want))
	}
	o.mu.Unlock()

	var got []byte
	for {
		b, _, _ := o.next()
		if len(b) == 0 {
			break
		}
		if len(b) > largestChunk {
			t.Errorf("%d bytes at once", len(b))
		}
		got = append(got, b...)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes were written, not the %d of the message", len(got), len(want))
	}
	if n := total.Load(); n != 0 {
		t.Errorf("%d bytes are counted as waiting", n)
	}
}

// What comes after the last frame is thrown away, and what came before it is not, however many chunks it takes.
func TestOutSealedChunks(t *testing.T) {
	o := newOut(new(atomic.Int64))
	write(&o, string(make([]byte, largestChunk)))
	write(&o, "a")
	o.mu.Lock()
	o.seal([]byte("Z"))
	o.mu.Unlock()
	write(&o, string(make([]byte, largestChunk)))
	if got := taken(&o); len(got) != largestChunk+2 || got[largestChunk:] != "aZ" {
		t.Errorf("%d bytes were written, want %d", len(got), largestChunk+2)
	}
}

// While a client read more slowly than one of its consumers was served, its other consumers got nothing: that one filled the
// connection's buffer each time it had been written.
func TestConsumersShareTheBufferOfASlowClient(t *testing.T) {
	s := testServer(t)
	p, other := probeOf(t, s, Peer{}).open().channel(1).channel(2), probeOf(t, s, Peer{}).open().channel(1)
	got := map[string]int{}
	for _, q := range []string{"a", "b", "c"} {
		other.queue(1, q)
		other.publish(1, slices.Repeat(bodies(q, strings.Repeat("m", 8<<10)), 400)...)
	}
	var b []byte
	for i, q := range []string{"a", "b", "c"} {
		b = amqp.AppendMethod(b, uint16(1+i%2), &amqp.BasicConsume{Queue: q, ConsumerTag: q, NoAck: true})
	}
	k := queue.NewBlock(len(b))
	defer k.Release()
	p.conn.Feed(p.now, k, k.Buf[:copy(k.Buf, b)])
	for range 10 {
		b, waiting, _ := p.conn.Writer().Next()
		for _, c := range waiting {
			c.Wake()
		}
		p.out = append(p.out, b...)
	}
	for f, ok := p.frame(); ok; f, ok = p.frame() {
		if f.Type != amqp.FrameMethod {
			continue
		}
		if m, err := amqp.ParseMethod(f.Payload); err == nil {
			if d, ok := m.(*amqp.BasicDeliver); ok {
				got[d.ConsumerTag]++
			}
		}
	}
	total := got["a"] + got["b"] + got["c"]
	for _, tag := range []string{"a", "b", "c"} {
		if got[tag] < total/4 {
			t.Errorf("%s has %d of %d messages", tag, got[tag], total)
		}
	}
}
