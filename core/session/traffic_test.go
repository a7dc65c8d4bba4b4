package session

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
)

// peer is a connection with a reader and a writer of its own, as package wire runs them.
type peer struct {
	*probe
	frames chan amqp.Frame // from the connection
	done   chan struct{}   // closed when the writer has ended
}

func newPeer(t *testing.T, s *Server, channels int) *peer {
	t.Helper()
	p := &peer{probe: probeOf(t, s, Peer{}).open(), frames: make(chan amqp.Frame, 1024), done: make(chan struct{})}
	for id := range channels {
		p.channel(uint16(id + 1))
	}
	return p
}

// write is the writer. It passes frames on.
func (p *peer) write() {
	defer close(p.done)
	defer close(p.frames)
	w := p.conn.Writer()
	for {
		b, waiting, ok := w.Next()
		if !ok {
			return
		}
		if len(b) == 0 {
			<-w.Wake()
			continue
		}
		for rest := slices.Concat(b...); len(rest) > 0; {
			f, n, err := amqp.NextFrame(rest, 1<<20)
			if err != nil || n == 0 {
				panic(fmt.Sprint("frame from the server: ", n, err))
			}
			rest = rest[n:]
			p.frames <- f
		}
		for _, c := range waiting {
			c.Wake()
		}
	}
}

// read feeds bytes as the reader does.
func (p *peer) read(b []byte) {
	k := block.New(len(b))
	p.conn.Feed(1, k, k.Buf[:copy(k.Buf, b)])
	k.Release()
}

// Several publishers and consumers use one queue at once: every message arrives once, and every publish is confirmed. A consumer gets
// each publisher's messages in order; while it is stalled, other consumers may get later messages first.
func TestTraffic(t *testing.T) {
	t.Run("limited consumers", func(t *testing.T) { checkOrder(t, traffic(t, false)) })
	t.Run("limited channels", func(t *testing.T) { traffic(t, true) })
}

// traffic returns the messages by the consumer that got them: 8 bits of publisher, 24 of number.
func traffic(t *testing.T, limitChannels bool) [][]uint32 {
	t.Helper()
	const publishers, consumers, messages, burst = 3, 3, 3000, 30
	s := testServer(t)
	setup := probeOf(t, s, Peer{}).open().channel(1)
	setup.queue(1, "q")

	var publishing, consuming, arrivals sync.WaitGroup
	arrivals.Add(publishers * messages)
	seen := make([][]uint32, consumers)
	var peers []*peer
	for i := range consumers {
		p := newPeer(t, s, 1)
		do[*amqp.BasicQosOK](p.probe, 1, &amqp.BasicQos{PrefetchCount: 50, Global: limitChannels})
		peers = append(peers, p)
		go p.write()
		consuming.Go(func() {
			p.read(methodFrame(1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c"}))
			var tag uint64
			for f := range p.frames {
				switch {
				case f.Type == amqp.FrameMethod && len(f.Payload) > 14: // basic.deliver
					tag = binary.BigEndian.Uint64(f.Payload[6:])
				case f.Type == amqp.FrameBody:
					seen[i] = append(seen[i], binary.BigEndian.Uint32(f.Payload))
					p.read(amqp.AppendAck(nil, 1, tag, false))
					arrivals.Done()
				}
			}
		})
	}
	for i := range publishers {
		p := newPeer(t, s, 1)
		do[*amqp.ConfirmSelectOK](p.probe, 1, &amqp.ConfirmSelect{})
		peers = append(peers, p)
		go p.write()
		publishing.Go(func() {
			for n := 0; n < messages; n += burst {
				var b []byte
				for k := range burst {
					body := binary.BigEndian.AppendUint32(nil, uint32(i)<<24|uint32(n+k))
					b = append(b, published{key: "q", body: string(body)}.frames(1)...)
				}
				p.read(b)
				for confirmed := 0; confirmed < n+burst; { // they come in order: there is one queue
					f := <-p.frames
					confirmed = int(binary.BigEndian.Uint64(f.Payload[4:]))
				}
			}
		})
	}
	arrivals.Wait()
	publishing.Wait() // whose last confirms may come after the messages
	for _, p := range peers {
		p.conn.out.close()
		<-p.done
	}
	consuming.Wait()
	if m := do[*amqp.QueueDeclareOK](setup, 1, &amqp.QueueDeclare{Queue: "q", Passive: true}); m.MessageCount != 0 {
		t.Errorf("%d messages are left", m.MessageCount)
	}
	once := map[uint32]bool{}
	for _, list := range seen {
		for _, id := range list {
			if once[id] {
				t.Errorf("message %d of publisher %d arrived twice", id&0xFFFFFF, id>>24)
			}
			once[id] = true
		}
	}
	if len(once) != publishers*messages {
		t.Errorf("got %d messages, want %d", len(once), publishers*messages)
	}
	return seen
}

func checkOrder(t *testing.T, seen [][]uint32) {
	t.Helper()
	for _, list := range seen {
		last := map[uint32]int{}
		for _, id := range list {
			from, n := id>>24, int(id&0xFFFFFF)
			if n < last[from] {
				t.Errorf("message %d of publisher %d arrived after %d", n, from, last[from])
			}
			last[from] = n
		}
	}
}
