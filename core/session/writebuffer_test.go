package session

import (
	"bytes"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/queue"
)

func write(o *writeBuffer, b string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reserve(len(b))
	o.pending = append(o.pending, b...)
	o.kick()
}

// taken takes all pending bytes.
func taken(o *writeBuffer) string {
	var all []byte
	for {
		b, _, _ := o.next()
		if len(b) == 0 {
			return string(all)
		}
		all = append(all, slices.Concat(b...)...)
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

func TestWriteBufferWakesASleepingWriterOnce(t *testing.T) {
	o := newWriteBuffer(new(atomic.Int64), true)
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

func TestWriteBufferSealed(t *testing.T) {
	o := newWriteBuffer(new(atomic.Int64), true)
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

func TestWriteBufferClosed(t *testing.T) {
	var total atomic.Int64
	o := newWriteBuffer(&total, true)
	write(&o, string(make([]byte, maxReplyBuffer)))
	if !o.congested.Load() || total.Load() == 0 {
		t.Fatal("not congested")
	}
	o.close()
	if !signalled(o.resumed) || !signalled(o.wake) || o.congested.Load() {
		t.Error("those who wait were not told")
	}
	write(&o, string(make([]byte, maxReplyBuffer)))
	if b, _, ok := o.next(); ok || len(b) > 0 || total.Load() != 0 {
		t.Errorf("%d bytes, ok %t, total %d after the end", len(b), ok, total.Load())
	}
}

func TestWriteBufferCongestion(t *testing.T) {
	var total atomic.Int64
	o := newWriteBuffer(&total, true)
	part := string(make([]byte, accountingStep))
	for range maxReplyBuffer/accountingStep - 1 {
		write(&o, part)
	}
	if o.congested.Load() {
		t.Error("congested too early")
	}
	write(&o, part)
	if !o.congested.Load() || total.Load() != maxReplyBuffer {
		t.Errorf("congested %t, total %d, want true, %d", o.congested.Load(), total.Load(), maxReplyBuffer)
	}
	taken(&o)
	if o.congested.Load() || !signalled(o.resumed) || total.Load() != 0 {
		t.Error("still congested")
	}
}

// The bytes that the writer took do not change while they are being written.
func TestWriteBuffersDoNotMix(t *testing.T) {
	o := newWriteBuffer(new(atomic.Int64), true)
	for i := range 100 {
		want := bytes.Repeat([]byte{byte(i)}, 1+i*397)
		write(&o, string(want))
		b, _, _ := o.next()
		write(&o, string(bytes.Repeat([]byte{0xff}, 1+i*811)))
		if !bytes.Equal(slices.Concat(b...), want) {
			t.Fatalf("round %d: bytes changed while they were written", i)
		}
		o.next()
	}
}

func TestIdleWriteBufferHoldsNoMemory(t *testing.T) {
	o := newWriteBuffer(new(atomic.Int64), true)
	write(&o, string(make([]byte, maxDeliveryBuffer)))
	taken(&o)
	taken(&o)
	if o.pending != nil || o.block != nil || len(o.takenBlocks) > 0 || len(o.taken) > 0 {
		t.Error("an idle connection holds on to a buffer")
	}
}

// A large message is written in chunks, which are not copied when another begins.
func TestWriteBufferChunks(t *testing.T) {
	const frameMax = 128 << 10
	body := bytes.Repeat([]byte("0123456789abcdef"), 5*largestChunk/16/2)
	want := amqp.AppendContentHeader([]byte("before"), 7, uint64(len(body)), []byte{0, 0})
	want = append(amqp.AppendBody(want, 7, body, frameMax), "behind"...)

	var total atomic.Int64
	o := newWriteBuffer(&total, true)
	o.mu.Lock()
	o.pending = append(o.pending, "before"...)
	o.appendContent(7, &queue.Delivery{Props: []byte{0, 0}, Body: body}, frameMax)
	o.pending = append(o.pending, "behind"...)
	o.kick()
	if got := o.size(); got != len(want) || !o.full() {
		t.Errorf("%d bytes wait, full %t; want %d", got, o.full(), len(want))
	}
	o.mu.Unlock()

	var got []byte
	for {
		parts, _, _ := o.next()
		b := slices.Concat(parts...)
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

// Bytes after the last frame are discarded; bytes before it are not, however many chunks they take.
func TestWriteBufferSealedChunks(t *testing.T) {
	o := newWriteBuffer(new(atomic.Int64), true)
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

// While a client read slowly, one of its consumers used to refill the connection's buffer after each write, and the other consumers got
// nothing.
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
	k := block.New(len(b))
	defer k.Release()
	p.conn.Feed(p.now, k, k.Buf[:copy(k.Buf, b)])
	for range 10 {
		b, waiting, _ := p.conn.Writer().Next()
		for _, c := range waiting {
			c.Wake()
		}
		p.out = append(p.out, slices.Concat(b...)...)
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

// bodyIn returns a delivery whose body is a part of a larger block.
func bodyIn(k *block.Block, size int) *queue.Delivery {
	for i := range k.Buf {
		k.Buf[i] = byte(i * 7)
	}
	return &queue.Delivery{Props: []byte{0, 0}, Body: k.Buf[100:][:size], Block: k}
}

// Large bodies used to be copied. They are now written from their own blocks, which are retained until then or until the connection
// ends.
func TestWriteBufferRefersToBodies(t *testing.T) {
	const frameMax = 128 << 10
	for _, size := range []int{queue.WorthHolding, frameMax - amqp.FrameOverhead, frameMax, 3*largestChunk + 1} {
		var total atomic.Int64
		k := block.New(size + 1000)
		d := bodyIn(k, size)
		want := amqp.AppendContentHeader([]byte("before"), 7, uint64(size), d.Props)
		want = append(amqp.AppendBody(want, 7, d.Body, frameMax), "behind"...)

		o := newWriteBuffer(&total, true)
		o.mu.Lock()
		o.pending = append(o.pending, "before"...)
		o.appendContent(7, d, frameMax)
		o.pending = append(o.pending, "behind"...)
		o.kick()
		o.mu.Unlock()
		var got []byte
		copied := true
		for {
			parts, _, _ := o.next()
			if len(parts) == 0 {
				break
			}
			if !k.Shared() {
				t.Errorf("%d bytes: nobody holds them while they are written", size)
			}
			for _, b := range parts {
				copied = copied && &b[0] != &d.Body[0]
				got = append(got, b...)
			}
		}
		if copied || k.Shared() {
			t.Errorf("%d bytes: copied %t, still held %t", size, copied, k.Shared())
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %d were written, not the %d of the message", size, len(got), len(want))
		}
		if n := total.Load(); n != 0 {
			t.Errorf("%d bytes: %d are counted as waiting", size, n)
		}
	}
}

func TestWriteBufferCopiesBodies(t *testing.T) {
	for name, tt := range map[string]struct {
		size   int
		refers bool
		sealed bool
	}{
		"a small one":                {size: queue.WorthHolding - 1, refers: true},
		"to be encrypted":            {size: 100_000},
		"not to be written any more": {size: 100_000, refers: true, sealed: true},
	} {
		k := block.New(tt.size + 1000)
		o := newWriteBuffer(new(atomic.Int64), tt.refers)
		o.mu.Lock()
		if tt.sealed {
			o.seal([]byte("Z"))
		}
		o.appendContent(1, bodyIn(k, tt.size), 128<<10)
		o.kick()
		o.mu.Unlock()
		if k.Shared() {
			t.Errorf("%s: it is held", name)
		}
		if got := taken(&o); tt.sealed && got != "Z" {
			t.Errorf("%s: %d bytes were written", name, len(got))
		}
	}
}

// A client that reads slowly does not retain much more memory for pending bodies than is counted.
func TestWriteBufferCountsWhatItRetains(t *testing.T) {
	const size = queue.WorthHolding
	var total atomic.Int64
	o := newWriteBuffer(&total, true)
	var blocks []*block.Block
	for !o.full() {
		k := block.New(256 << 10)
		blocks = append(blocks, k)
		o.mu.Lock()
		o.appendContent(1, bodyIn(k, size), 128<<10)
		o.appendContent(1, bodyIn(k, size), 128<<10) // is held anyway
		o.kick()
		o.mu.Unlock()
	}
	if held, counted := len(blocks)*256<<10, int(total.Load()); held > 4*counted || counted > maxDeliveryBuffer+8*size {
		t.Errorf("%d bytes are held and %d count", held, counted)
	}
	o.close()
	for _, k := range blocks {
		if k.Shared() {
			t.Fatal("a body is held for a connection that is closed")
		}
	}
	if n := total.Load(); n != 0 {
		t.Errorf("%d bytes count at the end", n)
	}
}

// A writer that stops in the middle releases what it was writing.
func TestWriteBufferEndOfWriting(t *testing.T) {
	k := block.New(1 << 20)
	o := newWriteBuffer(new(atomic.Int64), true)
	o.mu.Lock()
	o.appendContent(1, bodyIn(k, 100_000), 128<<10)
	o.mu.Unlock()
	o.next()
	o.close()
	if !k.Shared() {
		t.Error("a body is not held while it is written")
	}
	if o.written(); k.Shared() {
		t.Error("a body is held that nobody writes")
	}
}
