package wire

import (
	"bytes"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

func (c *client) channel() *client {
	c.t.Helper()
	c.send(1, &amqp.ChannelOpen{})
	expectMethod[*amqp.ChannelOpenOK](c)
	return c
}

func publication(queue string, body []byte) []byte {
	b := amqp.AppendMethod(nil, 1, &amqp.BasicPublish{RoutingKey: queue})
	b = amqp.AppendContentHeader(b, 1, uint64(len(body)), []byte{0, 0})
	return amqp.AppendBody(b, 1, body, 131072)
}

func (c *client) declare(queue string) *amqp.QueueDeclareOK {
	c.t.Helper()
	c.send(1, &amqp.QueueDeclare{Queue: queue})
	return expectMethod[*amqp.QueueDeclareOK](c)
}

// Under a memory alarm, publishers are not read from and get a notice. Other clients are served.
func TestPublisherIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used atomic.Int64
		s := newServer(t, func(o *Options) { o.MemoryLimit = 1000 })
		s.memory.used = used.Load
		publisher, other := dial(t, s).open(10).channel(), dial(t, s).open(0).channel()
		publisher.declare("q")

		used.Store(1001)
		go publisher.write(publication("q", []byte("one too many")))
		if m := expectMethod[*amqp.ConnectionBlocked](publisher); m.Reason != "low on memory" {
			t.Errorf("got reason %q", m.Reason)
		}
		go publisher.write(amqp.AppendMethod(nil, 1, &amqp.QueueDeclare{Queue: "q"}))
		other.declare("r")
		synctest.Wait() // the publisher gets its notice before it counts as blocked
		if b := s.Blocked(); b != (Blocked{Alarm: 1}) {
			t.Errorf("blocked are %+v, want the publisher", b)
		}

		// The broker no longer reads from it: its silence does not count, but it gets heartbeats.
		time.Sleep(time.Minute + time.Second)
		if n := len(publisher.frames); n < 5 {
			t.Errorf("got %d heartbeats in a minute, want at least 5", n)
		}
		for len(publisher.frames) > 0 {
			if f := <-publisher.frames; f.Type != amqp.FrameHeartbeat {
				t.Errorf("got frame %+v while blocked, want heartbeats only", f)
			}
		}

		used.Store(0)
		expectMethod[*amqp.ConnectionUnblocked](publisher)
		if m := expectMethod[*amqp.QueueDeclareOK](publisher); m.MessageCount != 1 {
			t.Errorf("got %d messages, want 1", m.MessageCount)
		}
		if b := s.Blocked(); b != (Blocked{}) {
			t.Errorf("blocked are %+v, want none", b)
		}
		publisher.close()
		other.close()
	})
}

func TestBlockedPublisherAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(o *Options) { o.MemoryLimit = 1 })
		s.memory.used = func() int64 { return 2 }
		c := dial(t, s).open(0).channel()
		c.declare("q")
		c.write(publication("q", nil))
		expectMethod[*amqp.ConnectionBlocked](c)
		synctest.Wait()
		if b := s.Blocked(); b.Alarm != 1 {
			t.Errorf("blocked are %+v, want one by the alarm", b)
		}
		ended := make(chan error)
		go func() { ended <- s.Shutdown(t.Context()) }()
		expectCloseOfBlocked(c)
		c.send(0, &amqp.ConnectionCloseOK{})
		c.ended()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if b := s.Blocked(); b != (Blocked{}) {
			t.Errorf("blocked are %+v, want none", b)
		}
	})
}

// expectCloseOfBlocked expects connection.close. Shutdown ends the alarm, too; the client may or may not get connection.unblocked first.
func expectCloseOfBlocked(c *client) {
	c.t.Helper()
	m, err := amqp.ParseMethod((<-c.frames).Payload)
	if err != nil {
		c.t.Fatal(err)
	}
	switch m.(type) {
	case *amqp.ConnectionClose:
	case *amqp.ConnectionUnblocked:
		expectMethod[*amqp.ConnectionClose](c)
	default:
		c.t.Fatalf("got %T, want connection.close", m)
	}
}

// The broker buffers a bounded amount for a consumer that does not read; the rest stays in its queue.
func TestConsumerThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages, size = 200, 100 << 10
		s := newServer(t)
		publisher, consumer := dial(t, s).open(0).channel(), dial(t, s).open(0).channel()
		publisher.declare("q")
		consumer.send(1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c", NoAck: true})
		expectMethod[*amqp.BasicConsumeOK](consumer)
		consumer.stall()
		body := bytes.Repeat([]byte("x"), size)
		for range messages {
			publisher.write(publication("q", body))
		}
		kept := publisher.declare("q").MessageCount
		if pending := s.sessions.PendingBytes(); pending > 1<<20 {
			t.Errorf("%d bytes wait for a consumer that does not read, want at most a MiB", pending)
		}
		if kept < messages*3/4 {
			t.Errorf("the queue keeps %d of %d messages", kept, messages)
		}
		consumer.resume()
		for range messages {
			expectMethod[*amqp.BasicDeliver](consumer)
			for n := 0; n < size; {
				if f := <-consumer.frames; f.Type == amqp.FrameBody {
					n += len(f.Payload)
				}
			}
		}
		if m := publisher.declare("q"); m.MessageCount != 0 {
			t.Errorf("%d messages left", m.MessageCount)
		}
	})
}

// A client that sends requests without reading the answers is not read from until it reads them.
func TestClientThatNeverReadsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests, size = 200, 100 << 10
		s := newServer(t)
		c := dial(t, s).open(0).channel()
		c.declare("q")
		for range requests {
			c.write(publication("q", bytes.Repeat([]byte("x"), size)))
		}
		c.declare("q")
		c.stall()
		go func() {
			for range requests {
				c.send(1, &amqp.BasicGet{Queue: "q", NoAck: true})
			}
		}()
		synctest.Wait()
		if pending := s.sessions.PendingBytes(); pending < 1<<20 || pending > 3<<20 {
			t.Errorf("%d bytes wait for a client that does not read, want 1 to 3 MiB", pending)
		}
		if b := s.Blocked(); b != (Blocked{Client: 1}) {
			t.Errorf("blocked are %+v, want the one that does not read", b)
		}
		c.resume()
		for range requests {
			expectMethod[*amqp.BasicGetOK](c)
			for n := 0; n < size; {
				if f := <-c.frames; f.Type == amqp.FrameBody {
					n += len(f.Payload)
				}
			}
		}
		c.close()
		if b := s.Blocked(); b != (Blocked{}) {
			t.Errorf("blocked are %+v, want none", b)
		}
	})
}

// fullOfAnswers returns a client with a heartbeat of two seconds that has asked for more than a connection buffers, and does not read.
func fullOfAnswers(t *testing.T, s *Server) *client {
	t.Helper()
	c := dial(t, s).open(2).channel()
	c.declare("q")
	c.write(publication("q", make([]byte, 3<<20)))
	c.stall()
	c.send(1, &amqp.BasicGet{Queue: "q"})
	synctest.Wait()
	if b := s.Blocked(); b != (Blocked{Client: 1}) {
		t.Fatalf("blocked are %+v, want the one that does not read", b)
	}
	return c
}

// Single-threaded clients send a message before they read. If the broker waited for them to read a large delivery, both would wait for ever.
func TestClientThatWritesBeforeItReadsADelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := dial(t, s).open(0).channel()
		c.declare("q")
		c.declare("r")
		for range 3 {
			c.write(publication("q", make([]byte, 3<<20)))
		}
		c.send(1, &amqp.BasicConsume{Queue: "q"})
		expectMethod[*amqp.BasicConsumeOK](c)
		c.stall()
		written := make(chan struct{})
		go func() {
			c.write(publication("r", make([]byte, 3<<20)))
			close(written)
		}()
		synctest.Wait()
		select {
		case <-written:
		default:
			t.Error("the broker does not read")
		}
		if pending := s.sessions.PendingBytes(); pending > 4<<20 {
			t.Errorf("%d bytes wait for the client, want one delivery", pending)
		}
		c.resume()
		<-written
		c.socket.Close()
	})
}

// A client that has stopped is cut off by its heartbeats, however much it was sent. One with a large message used to stay for ever, and the
// message with it.
func TestClientThatHangsInALargeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := fullOfAnswers(t, s)
		t.Cleanup(c.resume)
		time.Sleep(10 * time.Second)
		if n := s.Connections(); n != 0 {
			t.Errorf("%d connections after five intervals of silence", n)
		}
		other := dial(t, s).open(0).channel()
		if n := other.declare("q").MessageCount; n != 1 {
			t.Errorf("%d messages are ready, want the delivery", n)
		}
		other.close()
	})
}

// So is one that has stopped while it sent more than the broker looks at.
func TestClientThatHangsWhileItSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := fullOfAnswers(t, s)
		t.Cleanup(c.resume)
		go func() { _, _ = c.socket.Write(publication("q", make([]byte, 1<<20))) }()
		time.Sleep(time.Minute)
		if n := s.Connections(); n != 0 {
			t.Errorf("%d connections after thirty intervals", n)
		}
	})
}

// A client that sends heartbeats stays, however slowly it takes a large message, and what it asks for meanwhile is done afterwards.
func TestClientThatIsSlowInALargeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := fullOfAnswers(t, s)
		for range 30 {
			time.Sleep(2 * time.Second)
			c.write(amqp.AppendHeartbeat(nil))
		}
		c.send(1, &amqp.QueueDeclare{Queue: "r"})
		c.resume()
		expectMethod[*amqp.BasicGetOK](c)
		for f := range c.frames {
			if f.Type == amqp.FrameMethod {
				if m, err := amqp.ParseMethod(f.Payload); err != nil || m.Name() != "queue.declare-ok" {
					t.Errorf("got %v, %v, want queue.declare-ok", m, err)
				}
				break
			}
		}
		c.socket.Close()
	})
}

// ahead returns a publisher and the consumer of its queue; the consumer does not read and has many messages waiting.
func ahead(t *testing.T, s *Server) (publisher *client) {
	t.Helper()
	publisher, consumer := dial(t, s).open(0).channel(), dial(t, s).open(0).channel()
	publisher.declare("q")
	consumer.send(1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c", NoAck: true})
	expectMethod[*amqp.BasicConsumeOK](consumer)
	consumer.stall()
	t.Cleanup(consumer.resume)
	for range 20 {
		publisher.write(publication("q", make([]byte, 100<<10)))
	}
	publisher.declare("q")
	return publisher
}

// A publisher that is faster than its consumers is throttled by bytes, whatever the size of messages. It used to be throttled once per
// message, however large: a stream of large messages outran consumers that were just as fast.
func TestFastPublisherIsThrottled(t *testing.T) {
	const bytes = 8 << 20
	for _, size := range []int{16 << 10, 200 << 10, 1 << 20, bytes} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				publisher := ahead(t, newServer(t))
				took := elapsed(func() {
					for range bytes / size {
						publisher.write(publication("q", make([]byte, size)))
					}
					publisher.declare("q")
				})
				if least, most := bytes/pauseEvery*pauseFor*2/3, bytes/pauseEvery*pauseFor*4/3; took < least || took > most {
					t.Errorf("%d bytes took %v, want %v to %v", bytes, took, least, most)
				}
			})
		})
	}
}

// A publisher that is faster than some consumers is throttled for the bytes it publishes to them. While a message on another channel was
// incomplete, everything published since then was counted as well, and then the publisher was paused for seconds.
func TestPublisherIsNotThrottledForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		publisher := ahead(t, newServer(t))
		publisher.declare("r")
		publisher.send(2, &amqp.ChannelOpen{})
		expectMethod[*amqp.ChannelOpenOK](publisher)
		publisher.write(amqp.AppendContentHeader(amqp.AppendMethod(nil, 2, &amqp.BasicPublish{RoutingKey: "q"}), 2, 10, []byte{0, 0}))
		for range 32 {
			publisher.write(publication("r", make([]byte, 1<<20)))
		}
		publisher.declare("r")
		took := elapsed(func() {
			publisher.write(publication("q", make([]byte, 16)))
			publisher.declare("q")
		})
		if took > pauseFor {
			t.Errorf("16 bytes took %v", took)
		}
	})
}

func TestThrottledPublisherIsShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		publisher := ahead(t, s)
		for range 2 { // the second time as well
			publisher.write(publication("q", make([]byte, 16<<20)))
			synctest.Wait()
			if b := s.Blocked(); b != (Blocked{Consumers: 1}) {
				t.Fatalf("blocked are %+v, want the publisher that is ahead", b)
			}
			publisher.declare("q")
		}
		publisher.write(publication("q", make([]byte, 16<<20)))
		go func() {
			ctx, cancel := contextFor(time.Second)
			defer cancel()
			_ = s.Shutdown(ctx) // the consumer does not read
		}()
		wantElapsed(t, 0, func() { expectMethod[*amqp.ConnectionClose](publisher) })
	})
}
