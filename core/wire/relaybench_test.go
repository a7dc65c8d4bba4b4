package wire

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// benchClient is a client that costs little: it writes bytes that were encoded before, and counts the bytes that it reads.
type benchClient struct {
	*net.TCPConn
	buf []byte
}

func newBenchClient(b *testing.B, s *Server) *benchClient {
	b.Helper()
	socket, err := net.Dial("tcp", s.Addresses()[0].String())
	if err != nil {
		b.Fatal(err)
	}
	c := &benchClient{TCPConn: socket.(*net.TCPConn), buf: make([]byte, 256<<10)}
	b.Cleanup(func() { c.Close() })
	c.send(b, []byte(amqp.ProtocolHeader))
	c.awaitMethod(b, &amqp.ConnectionStart{})
	c.send(b, amqp.AppendMethod(nil, 0, &amqp.ConnectionStartOK{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"}))
	c.awaitMethod(b, &amqp.ConnectionTune{})
	open := amqp.AppendMethod(nil, 0, &amqp.ConnectionTuneOK{ChannelMax: 1, FrameMax: 131072})
	c.send(b, amqp.AppendMethod(amqp.AppendMethod(open, 0, &amqp.ConnectionOpen{VirtualHost: "/"}), 1, &amqp.ChannelOpen{}))
	c.awaitMethod(b, &amqp.ChannelOpenOK{})
	return c
}

func (c *benchClient) send(b *testing.B, bytes []byte) {
	b.Helper()
	if _, err := c.Write(bytes); err != nil {
		b.Fatal(err)
	}
}

// awaitMethod reads up to the end of a method like want, after which nothing follows.
func (c *benchClient) awaitMethod(b *testing.B, want amqp.Method) {
	b.Helper()
	class, method := want.ID()
	var in []byte
	for {
		n, err := c.Read(c.buf)
		if err != nil {
			b.Fatal(err)
		}
		in = append(in, c.buf[:n]...)
		for {
			f, n, err := amqp.NextFrame(in, 1<<20)
			if err != nil {
				b.Fatal(err)
			}
			if n == 0 {
				break
			}
			in = in[n:]
			if gotClass, gotMethod, err := amqp.MethodID(f.Payload); err == nil && gotClass == class && gotMethod == method {
				return
			}
		}
	}
}

// consume declares a queue and consumes it without acknowledgements.
func (c *benchClient) consume(b *testing.B) {
	b.Helper()
	declare := amqp.AppendMethod(nil, 1, &amqp.QueueDeclare{Queue: "q", AutoDelete: true})
	c.send(b, amqp.AppendMethod(declare, 1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c", NoAck: true}))
	c.awaitMethod(b, &amqp.BasicConsumeOK{})
}

func publishing(size int) []byte {
	m := amqp.AppendMethod(nil, 1, &amqp.BasicPublish{RoutingKey: "q"})
	return amqp.AppendBody(amqp.AppendContentHeader(m, 1, uint64(size), []byte{0, 0}), 1, make([]byte, size), 131072)
}

// deliverySize is the size of a delivery to consume, for which a tag has no variable part.
func deliverySize(size int) int {
	m := amqp.AppendDeliver(nil, 1, "c", 1, false, nil, []byte("q"))
	return len(amqp.AppendBody(amqp.AppendContentHeader(m, 1, uint64(size), []byte{0, 0}), 1, make([]byte, size), 131072))
}

// cpu returns the processor time of the process so far.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ways lists the ways in which clients reach the broker that serves them.
var ways = []string{"direct", "relayed", "relayed over TLS"}

func benchWays(b *testing.B, run func(b *testing.B, s *Server)) {
	b.Helper()
	a := newAuthority(b)
	secure, err := LoadCertificates(a.server("broker"))
	if err != nil {
		b.Fatal(err)
	}
	for _, way := range ways {
		b.Run(way, func(b *testing.B) {
			var inner, trust *tls.Config
			if way == ways[2] {
				inner, trust = secure.Config(), a.client("")
			}
			p := overTCP(b, inner, trust)
			if way == ways[0] {
				run(b, p.owner)
				return
			}
			run(b, p.front)
		})
	}
}

// BenchmarkRelay measures the CPU cost of a message in and out, of all processes together, including the client. The difference to
// direct is the cost of the relay.
func BenchmarkRelay(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 64 << 10} {
		for _, batch := range []int{1, 64} {
			b.Run(strconv.Itoa(size)+"x"+strconv.Itoa(batch), func(b *testing.B) {
				benchWays(b, func(b *testing.B, s *Server) {
					b.Helper()
					benchThroughput(b, s, size, batch)
				})
			})
		}
	}
}

func benchThroughput(b *testing.B, s *Server, size, batch int) {
	b.Helper()
	consumer, publisher := newBenchClient(b, s), newBenchClient(b, s)
	consumer.consume(b)
	one := publishing(size)
	many := slices.Concat(slices.Repeat([][]byte{one}, batch)...)
	n := (b.N + batch - 1) / batch
	b.SetBytes(int64(size))
	b.ResetTimer()
	before := cpu()
	go func() {
		for range n {
			if _, err := publisher.Write(many); err != nil {
				return
			}
		}
	}()
	if _, err := io.CopyN(io.Discard, onlyReader{consumer}, int64(n)*int64(batch)*int64(deliverySize(size))); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(cpu()-before)/float64(n*batch)/1e3, "cpu-us/message")
}

// onlyReader hides the other methods of a socket, so that it is read with a large buffer.
type onlyReader struct{ c *benchClient }

func (r onlyReader) Read(p []byte) (int, error) { return r.c.TCPConn.Read(p) }

// BenchmarkRelayLatency measures the time from publishing a lone message to its delivery.
func BenchmarkRelayLatency(b *testing.B) {
	benchWays(b, func(b *testing.B, s *Server) {
		b.Helper()
		consumer, publisher := newBenchClient(b, s), newBenchClient(b, s)
		consumer.consume(b)
		one, delivery := publishing(1<<10), make([]byte, deliverySize(1<<10))
		took := make([]time.Duration, 0, b.N)
		b.ResetTimer()
		for range b.N {
			start := time.Now()
			publisher.send(b, one)
			if _, err := io.ReadFull(consumer.TCPConn, delivery); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
	})
}
