package wire

import (
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// consume begins to consume a queue, with acknowledgements and a prefetch of 1.
func (c *client) consume(queue string) {
	c.t.Helper()
	c.send(1, &amqp.BasicQos{PrefetchCount: 1})
	expectMethod[*amqp.BasicQosOK](c)
	c.send(1, &amqp.BasicConsume{Queue: queue})
	expectMethod[*amqp.BasicConsumeOK](c)
}

// receive returns the tag of the next delivery, and takes its content.
func (c *client) receive() uint64 {
	c.t.Helper()
	d := expectMethod[*amqp.BasicDeliver](c)
	<-c.frames
	<-c.frames
	return d.DeliveryTag
}

// A connection that only publishes is not read while the server is suspended, and continues after that.
func TestSuspendedPublisherWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := dial(t, s).open(0).channel()
		c.declare("q")
		if err := s.Suspend(true); err != nil || !s.Suspended() {
			t.Fatal(err)
		}
		c.write(publication("q", []byte("x")))
		if m := expectMethod[*amqp.ConnectionBlocked](c); m.Reason != suspendedReason {
			t.Errorf("got reason %q", m.Reason)
		}
		go c.write(amqp.AppendMethod(nil, 1, &amqp.QueueDeclare{Queue: "q"}))
		time.Sleep(time.Minute)
		if n := len(c.frames); n > 0 || s.Blocked().Alarm != 1 {
			t.Errorf("got %d frames, %+v", n, s.Blocked())
		}
		if err := s.Resume(); err != nil || s.Suspended() {
			t.Fatal(err)
		}
		expectMethod[*amqp.ConnectionUnblocked](c)
		expectMethod[*amqp.QueueDeclareOK](c)
		c.close()
	})
}

// A worker publishes the results of its deliveries and then settles the deliveries, on one connection. If the server did not read from it,
// it would never see the settlements.
func TestSuspendedWorkerSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		worker, publisher, observer := dial(t, s).open(0).channel(), dial(t, s).open(0).channel(), dial(t, s).open(0).channel()
		results := func() uint32 { synctest.Wait(); return observer.declare("out").MessageCount }
		publisher.declare("in")
		observer.declare("out")
		for range 2 {
			publisher.write(publication("in", []byte("x")))
		}
		synctest.Wait()
		worker.consume("in")
		if err := s.Suspend(true); err != nil {
			t.Fatal(err)
		}
		settled := func(tag uint64) []byte { return amqp.AppendMethod(nil, 1, &amqp.BasicAck{DeliveryTag: tag}) }
		tag := worker.receive()
		worker.write(publication("out", []byte("y")))
		expectMethod[*amqp.ConnectionBlocked](worker)
		worker.write(settled(tag))
		worker.write(append(publication("out", []byte("y")), settled(worker.receive())...)) // in one piece: after it there is nothing to settle
		if got := results(); got != 2 {
			t.Errorf("%d results, want 2", got)
		}
		publisher.write(publication("in", []byte("x"))) // the last one before the publisher waits
		expectMethod[*amqp.ConnectionBlocked](publisher)
		worker.write(append(publication("out", []byte("y")), settled(worker.receive())...))
		if got := results(); got != 3 {
			t.Errorf("%d results, want 3: the worker was not read again when it got something to settle", got)
		}
		go worker.write(publication("out", []byte("z"))) // nothing to settle: as of any publisher
		time.Sleep(time.Minute)
		if got := results(); got != 3 {
			t.Errorf("%d results, want 3: the worker published although it had nothing to settle", got)
		}
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		expectMethod[*amqp.ConnectionUnblocked](worker)
		expectMethod[*amqp.ConnectionUnblocked](publisher)
		if got := results(); got != 4 {
			t.Errorf("%d results, want 4", got)
		}
		observer.close()
		worker.close()
		publisher.close()
	})
}

// Publishers that also wait for an alarm continue when both the alarm and the suspension are over, and they get the right reason for each.
func TestSuspendedWhileThereIsAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk alarm
		s := newServer(t, func(o *Options) { o.DiskFull = disk.get })
		c := dial(t, s).open(0).channel()
		c.declare("q")
		disk.raise()
		if err := s.Suspend(true); err != nil {
			t.Fatal(err)
		}
		c.write(publication("q", []byte("x")))
		if m := expectMethod[*amqp.ConnectionBlocked](c); m.Reason != "low on disk" {
			t.Errorf("got reason %q", m.Reason)
		}
		disk.end()
		if m := expectMethod[*amqp.ConnectionBlocked](c); m.Reason != suspendedReason {
			t.Errorf("got reason %q", m.Reason)
		}
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		expectMethod[*amqp.ConnectionUnblocked](c)
		c.close()
	})
}

func TestSuspendClosesListeners(t *testing.T) {
	s := start(t, func(o *Options) { o.AMQP = "127.0.0.1:0" })
	at := s.Addresses()[0]
	c := connect(t, at).open(0).channel()
	if err := s.Suspend(false); err != nil || s.Listening() {
		t.Fatal(err)
	}
	if socket, err := net.Dial("tcp", at.String()); err == nil {
		socket.Close()
		t.Error("a suspended server accepts connections")
	}
	c.declare("q") // the others go on
	taken, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(); err == nil || !s.Suspended() || s.Listening() {
		t.Errorf("resumed although its address is taken: %v", err)
	}
	taken.Close()
	if err := s.Resume(); err != nil || s.Suspended() || !s.Listening() {
		t.Fatal(err)
	}
	if got := s.Addresses(); len(got) != 1 || got[0].String() != at.String() {
		t.Errorf("got addresses %v", got)
	}
	connect(t, at).open(0).close()
	c.close()
	cutOff(s)
	if s.Suspend(false) == nil || s.Resume() == nil {
		t.Error("a server that has ended is suspended or resumed")
	}
}

// Shutdown closed the listeners first, and refused connections later. A Resume between these steps opened listeners that were never closed,
// and Shutdown waited for them for ever.
func TestResumeDuringShutdown(t *testing.T) {
	s := start(t, func(o *Options) { o.AMQP = "127.0.0.1:0" })
	at := s.Addresses()[0]
	if err := s.Suspend(true); err != nil {
		t.Fatal(err)
	}
	s.drain() // the step of Shutdown after which nothing listens again
	if socket, err := net.Dial("tcp", at.String()); err == nil {
		socket.Close()
		t.Error("a server that is ending accepts connections")
	}
	if s.Suspend(false) == nil || s.Resume() == nil || s.Suspend(true) == nil {
		t.Error("a server that is ending is suspended or resumed")
	}
}

// readConn reports when it is read for the first time.
type readConn struct {
	net.Conn
	once sync.Once
	read chan struct{}
}

func (c *readConn) Read(b []byte) (int, error) {
	c.once.Do(func() { close(c.read) })
	return c.Conn.Read(b)
}

// A client whose TLS handshake is in progress while the server is resumed still gets through. Its handshake used to fail, and its reader then
// kept a processor busy until the handshake timed out.
func TestResumeDuringTLSHandshake(t *testing.T) {
	a := newAuthority(t)
	s := newServer(t, func(o *Options) { o.AMQPS, o.TLS = "127.0.0.1:0", a.server("server") })
	near, far := net.Pipe()
	socket := &readConn{Conn: far, read: make(chan struct{})}
	s.serve(tls.Server(socket, s.tls.Config()))
	<-socket.read
	if err := s.Suspend(true); err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	config := a.client("")
	config.ServerName = "127.0.0.1"
	newClient(t, tls.Client(near, config)).open(0).close()
}
