package wire

import (
	"bytes"
	"crypto/tls"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

// Bodies of all sizes reach a consumer and basic.get unchanged, over TLS too. Some are read directly into their blocks and written from
// there, while the bytes before and after them are copied.
func TestLargeMessagesComeAsTheyWere(t *testing.T) {
	a := newAuthority(t)
	s := start(t, func(o *Options) {
		o.AMQP, o.AMQPS, o.TLS = "127.0.0.1:0", "127.0.0.1:0", a.server("broker")
	})
	dial := func() *client {
		secure, err := tls.Dial("tcp", s.Addresses()[1].String(), a.client(""))
		if err != nil {
			t.Fatal(err)
		}
		return newClient(t, secure).open(0).channel()
	}
	plain := func() *client { return connect(t, s.Addresses()[0]).open(0).channel() }
	for name, connected := range map[string]func() *client{"plain": plain, "TLS": dial} {
		t.Run(name, func(t *testing.T) {
			publisher, consumer := connected(), connected()
			publisher.declare(name)
			sizes := []int{1 << 20, 10, 20_000, 3_000_000, 131_064, 131_065, 300_000, 16 << 10, 500, 262_144, 8 << 20}
			body := func(i int) []byte {
				b := make([]byte, sizes[i%len(sizes)])
				_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(b)
				return b
			}
			messages := 2 * len(sizes) / min(fewer, 2)
			publish := func() {
				for i := range messages {
					publisher.write(publication(name, body(i)))
				}
				publisher.declare(name)
			}
			publish()
			for i := range messages / 2 {
				consumer.send(1, &amqp.BasicGet{Queue: name, NoAck: true})
				expectMethod[*amqp.BasicGetOK](consumer)
				consumer.wantBody("got "+strconv.Itoa(i), body(i))
			}
			consumer.send(1, &amqp.BasicConsume{Queue: name, ConsumerTag: "c", NoAck: true})
			expectMethod[*amqp.BasicConsumeOK](consumer)
			published := make(chan struct{})
			go func() {
				defer close(published)
				publish()
			}()
			for i := messages / 2; i < 2*messages; i++ {
				expectMethod[*amqp.BasicDeliver](consumer)
				consumer.wantBody("delivered "+strconv.Itoa(i), body(i%messages))
			}
			<-published
			publisher.close()
			consumer.close()
		})
	}
}

// wantBody reads the header and the body of a message.
func (c *client) wantBody(what string, want []byte) {
	c.t.Helper()
	h, err := amqp.ParseContentHeader((<-c.frames).Payload)
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
	var got []byte
	for uint64(len(got)) < h.BodySize {
		f, ok := <-c.frames
		if !ok {
			c.t.Fatalf("%s: the connection ended", what)
		}
		got = append(got, f.Payload...)
	}
	if !bytes.Equal(got, want) {
		c.t.Errorf("%s: %d bytes, not the %d that were sent", what, len(got), len(want))
	}
}
