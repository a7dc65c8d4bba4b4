package wire

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/session"
)

// fullDial is the dial of an owner that adopts a connection and then reads nothing, because its publishers wait for an alarm. The test plays
// the owner by writing to the far end.
func fullDial(t *testing.T) (dial func() net.Conn, owner <-chan net.Conn) {
	t.Helper()
	adopted := make(chan net.Conn, 1)
	return func() net.Conn {
		near, far := net.Pipe()
		go func() {
			_, err := session.ReadHandover(far)
			if err == nil {
				_, err = far.Write(session.AppendAnswer(nil, nil))
			}
			if err == nil {
				_, err = far.Write(amqp.AppendMethod(nil, 0, &amqp.ConnectionOpenOK{}))
			}
			if err != nil {
				t.Error(err)
			}
			adopted <- far
		}()
		return near
	}, adopted
}

// A front that ends does not wait for an owner that reads nothing.
func TestFrontShutdownBehindFullOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		full, owner := fullDial(t)
		p.setDial(nil, full)
		c := dial(t, p.front).open(0)
		defer (<-owner).Close()
		c.send(1, &amqp.ChannelOpen{}) // it waits at the front
		synctest.Wait()
		wantElapsed(t, 0, func() {
			go c.refused(amqp.ReplyConnectionForced, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := p.front.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		})
	})
}

// A client that has left does not stay because its owner reads nothing: the owner's next heartbeat finds out.
func TestRelayedClientGoneBehindFullOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		full, owner := fullDial(t)
		p.setDial(nil, full)
		c := dial(t, p.front).open(0)
		far := <-owner
		defer far.Close()
		c.send(1, &amqp.ChannelOpen{})
		synctest.Wait()
		c.socket.Close()
		if _, err := far.Write(amqp.AppendHeartbeat(nil)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := p.front.Connections(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
}

// A publisher that has waited for its owner gets connection.close when the owner is gone, and has time to answer, whatever it continues to
// send. The front used to count that time from when the publisher had begun to wait, and closed the socket at once.
func TestRelayedPublisherIsToldAfterWaiting(t *testing.T) {
	for name, end := range map[string]func(p *pair, owner net.Conn){
		"the vhost moves": func(p *pair, _ net.Conn) { p.move(3) },
		"the owner ends":  func(_ *pair, owner net.Conn) { owner.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				full, owner := fullDial(t)
				p.setDial(nil, full)
				c := dial(t, p.front).open(0)
				far := <-owner
				defer far.Close()
				c.send(1, &amqp.ChannelOpen{})
				synctest.Wait() // the front waits for the owner, and then it is longer than a client has to close its socket
				time.Sleep(closeTimeout + time.Second)
				go c.send(2, &amqp.ChannelOpen{})
				end(p, far)
				c.told(amqp.ReplyConnectionForced, gone)
				c.send(3, &amqp.ChannelOpen{}) // it has not read that yet
				time.Sleep(closeTimeout - 2*brokenFor)
				c.answer()
			})
		})
	}
}

// An owner that has closed the connection has the last word, also if the front ends before the client has answered.
func TestFrontShutdownBehindOwnersClose(t *testing.T) {
	for name, last := range map[string]amqp.Method{
		"connection.close":    &amqp.ConnectionClose{ReplyCode: amqp.ReplyConnectionForced, ReplyText: "of the owner"},
		"connection.close-ok": &amqp.ConnectionCloseOK{},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				full, owner := fullDial(t)
				p.setDial(nil, full)
				c := dial(t, p.front).open(0)
				far := <-owner
				defer far.Close()
				go func() { _, _ = io.Copy(io.Discard, far) }() // until the front closes it
				if _, err := far.Write(amqp.AppendMethod(nil, 0, last)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the front has passed it on
				done := make(chan error)
				go func() { done <- p.front.Shutdown(context.WithoutCancel(t.Context())) }()
				synctest.Wait()
				if f := <-c.frames; f.Type != amqp.FrameMethod {
					t.Fatalf("got %+v", f)
				}
				if _, asks := last.(*amqp.ConnectionClose); asks {
					c.send(0, &amqp.ConnectionCloseOK{})
				}
				for f := range c.frames {
					m, err := amqp.ParseMethod(f.Payload)
					t.Errorf("after %s the client got %T, %v", name, m, err)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A relayed client that is silent and does not read is cut off at its front, too. The front used to keep the connection for ever: it did not
// notice the owner's end while it waited for the client to take a delivery.
func TestRelayedClientThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		publisher, c := dial(t, p.front).open(0).channel(), dial(t, p.front).open(2).channel()
		publisher.declare("q")
		c.send(1, &amqp.BasicConsume{Queue: "q"})
		expectMethod[*amqp.BasicConsumeOK](c)
		c.stall()
		t.Cleanup(c.resume)
		for range 20 {
			publisher.write(publication("q", make([]byte, 100<<10)))
		}
		time.Sleep(10 * time.Second)
		if owner, front := p.owner.Connections(), p.front.Connections(); owner != 1 || front != 1 {
			t.Errorf("%d connections at the owner, %d at the front, want the publisher's", owner, front)
		}
		if n := publisher.declare("q").MessageCount; n != 20 {
			t.Errorf("%d messages are ready, want all 20", n)
		}
		publisher.close()
	})
}

// A relayed client that sends heartbeats stays, however slowly it takes its deliveries.
func TestRelayedClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		c := dial(t, p.front).open(2).channel()
		c.declare("q")
		c.write(publication("q", make([]byte, 100<<10)))
		c.send(1, &amqp.BasicConsume{Queue: "q"})
		expectMethod[*amqp.BasicConsumeOK](c)
		c.stall()
		for range 60 {
			time.Sleep(time.Second)
			c.write(amqp.AppendHeartbeat(nil))
		}
		c.resume()
		expectMethod[*amqp.BasicDeliver](c)
	})
}
