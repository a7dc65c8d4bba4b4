package session

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

// pour feeds b in pieces as a reader does, some of them through BodySpace. It returns how many bytes took that way.
func (p *probe) pour(b []byte, piece func() int) (placed int) {
	p.t.Helper()
	for len(b) > 0 {
		n := min(piece(), len(b))
		if to := p.conn.BodySpace(); to != nil && len(p.in) == 0 {
			n = copy(to, b[:n])
			p.conn.BodyRead(n)
			placed += n
			p.feed(nil)
		} else {
			p.feed(b[:n])
		}
		b = b[n:]
	}
	return placed
}

// fragments returns alternating frames of large messages on two channels, and their bodies.
func fragments(rng *rand.Rand) (b []byte, messages map[string]int) {
	messages = map[string]int{}
	var left [3][]byte
	for sent := 0; sent < 12 || len(left[1])+len(left[2]) > 0; {
		ch := uint16(1 + rng.IntN(2))
		if len(left[ch]) == 0 {
			if sent == 12 {
				continue
			}
			sent++
			body := bytes.Repeat([]byte{byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())}, 1+rng.IntN(300_000))
			messages[string(body)]++
			b = append(b, methodFrame(ch, &amqp.BasicPublish{RoutingKey: "q"})...)
			b = amqp.AppendContentHeader(b, ch, uint64(len(body)), []byte{0, 0})
			left[ch] = body
			continue
		}
		n := min(len(left[ch]), 1+rng.IntN(amqp.MaxBodyPart(131072)))
		if rng.IntN(3) > 0 {
			n = min(len(left[ch]), amqp.MaxBodyPart(131072))
		}
		b = append(b, rawFrame(amqp.FrameBody, ch, string(left[ch][:n]))...)
		left[ch] = left[ch][n:]
	}
	return b, messages
}

// However the frames of large messages arrive, the messages are the same.
func TestLargeMessagesInPieces(t *testing.T) {
	placed := 0
	for seed := range uint64(20 / fewer) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := newProbe(t).open().channel(1).channel(2)
		p.queue(1, "q")
		b, want := fragments(rng)
		placed += p.pour(b, func() int { return 1 + rng.IntN(1<<(6+rng.IntN(13))) })
		p.silent()
		for range 12 {
			p.send(1, &amqp.BasicGet{Queue: "q", NoAck: true})
			expect[*amqp.BasicGetOK](p, 1)
			_, body := p.content(1)
			want[body]--
			if want[body] < 0 {
				t.Fatalf("seed %d: a body of %d bytes is none that was sent", seed, len(body))
			}
		}
		if n := p.conn.srv.PendingBytes(); n != 0 {
			t.Errorf("seed %d: %d bytes count at the end", seed, n)
		}
	}
	if placed < 10<<20/fewer {
		t.Errorf("%d bytes only were read to where they belong", placed)
	}
}

// Errors in the frames of a large message are the same as if the frames had arrived at once.
func TestLargeMessageGoesWrong(t *testing.T) {
	half := strings.Repeat("0123456789abcdef", 3000)
	begin := methodFrame(1, &amqp.BasicPublish{RoutingKey: "q"})
	begin = amqp.AppendContentHeader(begin, 1, uint64(2*len(half)), []byte{0, 0})
	one := rawFrame(amqp.FrameBody, 1, half)
	spoilt := append(bytes.Clone(one[:len(one)-1]), 7)
	for name, b := range map[string][]byte{
		"no end octet of the first frame": append(bytes.Clone(begin), spoilt...),
		"no end octet of the last frame":  bytes.Join([][]byte{begin, one, spoilt}, nil),
		"more than announced":             bytes.Join([][]byte{begin, one, rawFrame(amqp.FrameBody, 1, half+"x")}, nil),
		"a method in between":             bytes.Join([][]byte{begin, one, methodFrame(1, &amqp.BasicQos{})}, nil),
		"a channel that is not open":      bytes.Join([][]byte{begin, one, rawFrame(amqp.FrameBody, 2, half)}, nil),
	} {
		whole, pieces := newProbe(t).open().channel(1), newProbe(t).open().channel(1)
		whole.queue(1, "q")
		pieces.queue(1, "q")
		whole.feed(b)
		pieces.pour(b, func() int { return 20_000 })
		if !bytes.Equal(whole.out, pieces.out) || len(whole.out) == 0 {
			t.Errorf("%s: told %q, and in pieces %q", name, whole.out, pieces.out)
		}
		if whole.conn.State() != pieces.conn.State() {
			t.Errorf("%s: state %v, and in pieces %v", name, whole.conn.State(), pieces.conn.State())
		}
	}
}

// A channel or its connection may be closed while a frame of it is read. The rest of the frame is ignored.
func TestChannelEndsWhileAFrameIsRead(t *testing.T) {
	body := strings.Repeat("x", 300_000)
	b := methodFrame(1, &amqp.BasicPublish{RoutingKey: "q"})
	b = amqp.AppendContentHeader(b, 1, uint64(len(body)), []byte{0, 0})
	b = append(b, rawFrame(amqp.FrameBody, 1, body[:100_000])...)
	for name, end := range map[string]func(p *probe){
		"channel":    func(p *probe) { p.conn.channels.at(1).fail(errNotTransactional) },
		"connection": func(p *probe) { p.conn.Shutdown(p.now, "shutdown") },
	} {
		p := newProbe(t).open().channel(1)
		p.queue(1, "q")
		p.pour(b[:len(b)-50_000], func() int { return 30_000 })
		if p.conn.BodySpace() == nil {
			t.Fatal("no frame is being read")
		}
		end(p)
		if p.conn.BodySpace() != nil {
			t.Errorf("%s: there is a place for what nobody wants", name)
		}
		if n := p.conn.srv.PendingBytes(); n > 1000 {
			t.Errorf("%s: %d bytes count", name, n)
		}
		p.pour(b[len(b)-50_000:], func() int { return 30_000 })
		if name == "channel" {
			expect[*amqp.ChannelClose](p, 1)
			p.send(1, &amqp.ChannelCloseOK{})
			p.send(1, &amqp.ChannelOpen{})
			expect[*amqp.ChannelOpenOK](p, 1)
			continue
		}
		expect[*amqp.ConnectionClose](p, 0)
		p.send(0, &amqp.ConnectionCloseOK{})
		p.state(Closed)
	}
}

// A body takes at most a few times the memory of the bytes that have come, not of those announced.
func TestMemoryForABodyGrowsWithIt(t *testing.T) {
	const announced = 64 << 20
	p := newProbe(t, func(o *Options) { o.MessageMax = announced }).open().channel(1)
	b := methodFrame(1, &amqp.BasicPublish{RoutingKey: "q"})
	b = amqp.AppendContentHeader(b, 1, announced, []byte{0, 0})
	p.feed(b)
	sent := 0
	for sent < 10<<20 {
		frame := rawFrame(amqp.FrameBody, 1, strings.Repeat("x", 100_000))
		p.pour(frame[:len(frame)/2], func() int { return 40_000 })
		sent += 50_000
		if n := int(p.conn.srv.PendingBytes()); n > 16*sent+64<<10 {
			t.Fatalf("%d bytes count after %d", n, sent)
		}
		p.pour(frame[len(frame)/2:], func() int { return 40_000 })
		sent += 50_000
	}
}
