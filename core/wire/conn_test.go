package wire

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/sdk/hook"
)

// elapsed returns how long fn takes, in the time of the bubble.
func elapsed(fn func()) time.Duration {
	start := time.Now()
	fn()
	return time.Since(start)
}

func wantElapsed(t *testing.T, want time.Duration, fn func()) {
	t.Helper()
	if got := elapsed(fn); got != want {
		t.Errorf("took %v, want %v", got, want)
	}
}

func TestOpenAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := dial(t, s).open(0)
		if got := s.Connections(); got != 1 {
			t.Errorf("got %d connections, want 1", got)
		}
		c.close()
		synctest.Wait()
		if got := s.Connections(); got != 0 {
			t.Errorf("got %d connections after the end, want none", got)
		}
	})
}

// A client that stops in the middle of the handshake is disconnected at its timeout.
func TestHandshakeTimeout(t *testing.T) {
	tests := []struct {
		name string
		stop func(c *client)
	}{
		{"says nothing", func(*client) {}},
		{"half a header", func(c *client) { c.write([]byte("AMQP")) }},
		{"only the header", func(c *client) {
			c.write([]byte(amqp.ProtocolHeader))
			expectMethod[*amqp.ConnectionStart](c)
		}},
		{"half a frame", func(c *client) {
			c.write([]byte(amqp.ProtocolHeader))
			expectMethod[*amqp.ConnectionStart](c)
			c.write([]byte{amqp.FrameMethod, 0, 0, 0, 0, 1})
		}},
		{"no connection.open", func(c *client) {
			c.write([]byte(amqp.ProtocolHeader))
			expectMethod[*amqp.ConnectionStart](c)
			c.send(0, &amqp.ConnectionStartOK{Mechanism: "PLAIN", Response: "\x00guest\x00guest"})
			expectMethod[*amqp.ConnectionTune](c)
			c.send(0, &amqp.ConnectionTuneOK{ChannelMax: 1, FrameMax: 4096})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dial(t, newServer(t))
				wantElapsed(t, 10*time.Second, func() {
					tt.stop(c)
					c.ended()
				})
			})
		})
	}
}

// Sending single bytes does not extend the handshake.
func TestSlowHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, newServer(t))
		wantElapsed(t, 10*time.Second, func() {
			for _, b := range []byte(amqp.ProtocolHeader)[:7] {
				c.write([]byte{b})
				time.Sleep(time.Second)
			}
			c.ended()
		})
	})
}

// holdLogins makes every login wait for its turn until release is called, for tests in bubbles.
func holdLogins(t *testing.T, s *Server) (release func()) {
	t.Helper()
	users := s.options.Session.Users
	ctx, cancel := context.WithCancel(t.Context())
	hold := func(waits bool) {
		if waits { // its turn comes in between, and it does not use it
			<-ctx.Done()
		}
	}
	for i := range 4*runtime.GOMAXPROCS(0) + 4 {
		s.running.Go(func() {
			_, _ = users.Authenticate(ctx, "user"+strconv.Itoa(i), "wrong", auth.Origin{Host: "192.0.2.1", Waits: hold})
		})
	}
	synctest.Wait()
	if users.Waiting() == 0 {
		t.Fatal("nobody waits")
	}
	return cancel
}

// beginLogin connects a client that sends its password after a while.
func beginLogin(t *testing.T, s *Server, after time.Duration) *client {
	t.Helper()
	c := dial(t, s)
	c.write([]byte(amqp.ProtocolHeader))
	expectMethod[*amqp.ConnectionStart](c)
	time.Sleep(after)
	understands := amqp.Table{{Key: "capabilities", Value: amqp.Table{{Key: "authentication_failure_close", Value: true}}}}
	c.send(0, &amqp.ConnectionStartOK{Mechanism: "PLAIN", Response: "\x00guest\x00guest", ClientProperties: understands})
	synctest.Wait()
	return c
}

// A client whose login waited for other logins was cut off at its handshake timeout, although it had done its part. It now has the rest of that
// time after its turn has come, and no more.
func TestHandshakeTimeoutWhileOthersLogIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		release := holdLogins(t, s)
		c := beginLogin(t, s, 4*time.Second)
		time.Sleep(59 * time.Second)
		release()
		expectMethod[*amqp.ConnectionTune](c)
		wantElapsed(t, 6*time.Second, c.ended)
	})
}

// A login waits for its turn for at most a minute. Then the client gets an error.
func TestLoginsWaitForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		defer holdLogins(t, s)()
		waiting := s.options.Session.Users.Waiting()
		c := beginLogin(t, s, 9*time.Second)
		wantElapsed(t, time.Minute, func() {
			m := expectMethod[*amqp.ConnectionClose](c)
			if m.ReplyCode != amqp.ReplyConnectionForced || !strings.Contains(m.ReplyText, "too many logins at a time") {
				t.Errorf("got %+v", m)
			}
		})
		if n := s.options.Session.Users.Waiting(); n != waiting {
			t.Errorf("%d logins wait, want %d", n, waiting)
		}
		c.send(0, &amqp.ConnectionCloseOK{})
		c.ended()
	})
}

// The password of a client was checked after it had left.
func TestLoginsOfClientsThatHaveGoneDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		defer holdLogins(t, s)()
		users := s.options.Session.Users
		waiting := users.Waiting()
		c := beginLogin(t, s, 0)
		if n := users.Waiting(); n != waiting+1 {
			t.Errorf("%d logins wait, want %d", n, waiting+1)
		}
		c.socket.Close()
		synctest.Wait()
		if n := users.Waiting(); n != waiting || s.Connections() != 0 {
			t.Errorf("%d logins wait, want %d; %d connections are left", n, waiting, s.Connections())
		}
	})
}

func TestOpenConnectionOutlivesTheHandshakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, newServer(t)).open(0)
		time.Sleep(24 * time.Hour)
		c.close()
	})
}

// A failed login gets no answer for three seconds, unless the client understands one.
func TestDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, newServer(t))
		c.write([]byte(amqp.ProtocolHeader))
		expectMethod[*amqp.ConnectionStart](c)
		wantElapsed(t, 3*time.Second, func() {
			c.send(0, &amqp.ConnectionStartOK{Mechanism: "PLAIN", Response: "\x00guest\x00gast"})
			c.ended()
		})
	})
}

func TestErrorWithoutCloseOK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, newServer(t)).open(0)
		wantElapsed(t, closeTimeout, func() {
			c.send(0, &amqp.ConnectionOpen{})
			if m := expectMethod[*amqp.ConnectionClose](c); m.ReplyCode != amqp.ReplyChannelError {
				t.Errorf("got %d %s", m.ReplyCode, m.ReplyText)
			}
			c.ended()
		})
	})
}

func TestErrorWithCloseOK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, newServer(t)).open(0)
		wantElapsed(t, 0, func() {
			c.send(0, &amqp.ConnectionOpen{})
			expectMethod[*amqp.ConnectionClose](c)
			c.send(0, &amqp.ConnectionCloseOK{})
			c.ended()
		})
	})
}

// A connection that the broker has closed disappears from all lists, even if its client leaves the socket open. It used to stay, as closing,
// until the client closed its socket.
func TestClosedConnectionIsNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := dial(t, s).open(0)
		if got := len(s.OpenConns()); got != 1 {
			t.Errorf("%d connections listed, want 1", got)
		}
		c.send(0, &amqp.ConnectionOpen{})
		expectMethod[*amqp.ConnectionClose](c)
		if got := len(s.OpenConns()); got != 0 {
			t.Errorf("%d connections listed after the end, want none", got)
		}
		c.send(0, &amqp.ConnectionClose{})
		expectMethod[*amqp.ConnectionCloseOK](c) // the two of them crossed, or so it seems
		c.send(0, &amqp.ConnectionCloseOK{})
		c.ended()
	})
}

// A client that closed the connection may close it again, and has some time to close the socket. The broker used to shut its side at once, and
// the second answer never came.
func TestSecondClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := dial(t, s).open(0)
		wantElapsed(t, closeTimeout, func() {
			for range 3 {
				c.send(0, &amqp.ConnectionClose{ReplyCode: amqp.ReplySuccess})
				expectMethod[*amqp.ConnectionCloseOK](c)
				if got := len(s.OpenConns()); got != 0 {
					t.Errorf("%d connections listed after the end, want none", got)
				}
				time.Sleep(time.Second)
			}
			c.ended()
		})
	})
}

// A peer that keeps sending after an error does not keep the connection.
func TestFloodAfterError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, newServer(t)).open(0)
		var flood sync.WaitGroup
		defer flood.Wait()
		wantElapsed(t, closeTimeout, func() {
			c.send(0, &amqp.ConnectionOpen{})
			expectMethod[*amqp.ConnectionClose](c)
			flood.Go(func() {
				garbage := amqp.AppendMethod(nil, 1, &amqp.ChannelOpen{})
				for _, err := c.socket.Write(garbage); err == nil; _, err = c.socket.Write(garbage) {
					time.Sleep(100 * time.Millisecond)
				}
			})
			c.ended()
		})
	})
}

// After a frame error the start of the next frame is unknown, so the broker does not wait for close-ok.
func TestFrameError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, newServer(t)).open(0)
		wantElapsed(t, 0, func() {
			c.write([]byte{amqp.FrameBody, 0, 1, 0xff, 0xff, 0xff, 0xff})
			if m := expectMethod[*amqp.ConnectionClose](c); m.ReplyCode != amqp.ReplyFrameError {
				t.Errorf("got %d %s", m.ReplyCode, m.ReplyText)
			}
			c.ended()
		})
	})
}

// A heartbeat is sent after every half interval in which nothing else was, as by RabbitMQ. The broker counted its own heartbeat as
// traffic and sent one per interval: clients that give up after a silent interval lost idle connections.
func TestHeartbeatsFromServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := time.Now()
		c := dial(t, newServer(t)).open(10)
		c.keepAlive(t, 5*time.Second)
		var beats []time.Duration
		for f := range c.frames {
			beats = append(beats, time.Since(opened))
			if f.Type != amqp.FrameHeartbeat || len(beats) == 20 {
				break
			}
		}
		for i, at := range beats {
			if want := time.Duration(i+1) * 5 * time.Second; at != want {
				t.Fatalf("heartbeats after %v, want one every 5s", beats)
			}
		}
	})
}

// keepAlive writes heartbeats until the test ends.
func (c *client) keepAlive(t *testing.T, interval time.Duration) {
	t.Helper()
	var beats sync.WaitGroup
	t.Cleanup(func() {
		c.socket.Close()
		beats.Wait()
	})
	beats.Go(func() {
		for _, err := c.socket.Write(amqp.AppendHeartbeat(nil)); err == nil; _, err = c.socket.Write(amqp.AppendHeartbeat(nil)) {
			time.Sleep(interval)
		}
	})
}

// Other bytes written in a half interval replace its heartbeat, not that of the next one.
func TestHeartbeatsBesideTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := time.Now()
		c := dial(t, newServer(t)).open(10)
		c.keepAlive(t, 5*time.Second)
		for _, at := range []time.Duration{7, 12, 13, 27} { // seconds
			time.AfterFunc(time.Until(opened.Add(at*time.Second)), func() { c.send(0, &amqp.ConnectionUpdateSecret{}) })
		}
		var got []string
		for len(got) < 9 {
			f := <-c.frames
			kind := "answer"
			if f.Type == amqp.FrameHeartbeat {
				kind = "beat"
			}
			got = append(got, fmt.Sprintf("%s %.0f", kind, time.Since(opened).Seconds()))
		}
		want := []string{"beat 5", "answer 7", "answer 12", "answer 13", "beat 20", "beat 25", "answer 27", "beat 35", "beat 40"}
		if !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

// A connection ends when its peer sent nothing in two whole intervals, counted from its opening, after the one in which it sent its last
// byte: after two to three intervals of silence, as in RabbitMQ. It ended after two.
func TestSilentClient(t *testing.T) {
	tests := []struct{ spoke, given time.Duration }{ // since the connection was opened, in seconds
		{0, 30},
		{5, 30},
		{13, 40},
		{18, 40},
		{22, 50},
	}
	for _, tt := range tests {
		t.Run(tt.spoke.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opened := time.Now()
				c := dial(t, newServer(t)).open(10)
				if tt.spoke > 0 {
					time.Sleep(tt.spoke * time.Second)
					c.write(amqp.AppendHeartbeat(nil))
				}
				for f := range c.frames {
					if f.Type != amqp.FrameHeartbeat {
						t.Errorf("got frame %+v", f)
					}
				}
				if got := time.Since(opened); got != tt.given*time.Second {
					t.Errorf("given up after %v, want %v", got, tt.given*time.Second)
				}
			})
		})
	}
}

// Any traffic replaces a heartbeat, in both directions.
func TestTrafficInsteadOfHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, newServer(t)).open(10)
		for range 100 {
			c.send(0, &amqp.ConnectionUpdateSecret{})
			expectMethod[*amqp.ConnectionUpdateSecretOK](c)
			time.Sleep(4 * time.Second)
		}
		c.close()
	})
}

func TestNoHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, newServer(t)).open(0)
		time.Sleep(time.Hour)
		select {
		case f, ok := <-c.frames:
			t.Errorf("got %+v, %t, want silence", f, ok)
		default:
		}
		c.close()
	})
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c, starting := dial(t, s).open(0), dial(t, s)
		ended := make(chan error)
		go func() { ended <- s.Shutdown(t.Context()) }()

		starting.ended()
		m := expectMethod[*amqp.ConnectionClose](c)
		if m.ReplyCode != 320 || m.ReplyText != "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'" {
			t.Errorf("got %d %s", m.ReplyCode, m.ReplyText)
		}
		dial(t, s).ended() // nobody is let in any more
		c.send(0, &amqp.ConnectionCloseOK{})
		c.ended()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestShutdownOfAClientThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := dial(t, s).open(0)
		wantElapsed(t, closeTimeout, func() {
			if err := s.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
		expectMethod[*amqp.ConnectionClose](c)
		c.ended()
	})
}

func TestShutdownCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		dial(t, s).open(0)
		ctx, cancel := contextFor(time.Second)
		defer cancel()
		wantElapsed(t, time.Second, func() {
			err := s.Shutdown(ctx)
			if err == nil || err.Error() != "1 connections did not end in time" {
				t.Errorf("got error %v", err)
			}
		})
	})
}

// A server without connections has ended in time, whatever the time.
func TestShutdownWithoutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := contextFor(0)
		defer cancel()
		for range 20 { // the server may find either first: that it has ended, or that the time is up
			if err := newServer(t).Shutdown(ctx); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A peer that does not read keeps its socket no longer than any other.
func TestShutdownOfAClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := dial(t, s).open(0)
		c.stall()
		defer c.resume()
		wantElapsed(t, closeTimeout, func() {
			if err := s.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestClientGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := dial(t, s).open(10)
		c.socket.Close()
		synctest.Wait()
		if got := s.Connections(); got != 0 {
			t.Errorf("got %d connections, want none", got)
		}
	})
}

// A consumer that does not acknowledge in time loses its channel, even on an idle connection.
func TestConsumerTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, newServer(t, func(o *Options) { o.Session.ConsumerTimeout = time.Hour })).open(0).channel()
		c.declare("q")
		c.write(publication("q", []byte("x")))
		c.send(1, &amqp.BasicConsume{Queue: "q"})
		expectMethod[*amqp.BasicConsumeOK](c)
		expectMethod[*amqp.BasicDeliver](c)
		<-c.frames // the content header
		<-c.frames // the body
		late := elapsed(func() {
			m := expectMethod[*amqp.ChannelClose](c)
			if m.ReplyCode != amqp.ReplyPreconditionFailed || !strings.Contains(m.ReplyText, "delivery acknowledgement on channel 1 timed out") {
				t.Errorf("got %d %s", m.ReplyCode, m.ReplyText)
			}
		})
		if late < time.Hour || late > time.Hour+2*idleInterval {
			t.Errorf("closed after %v, want an hour or a little more", late)
		}
		c.send(1, &amqp.ChannelCloseOK{})
		c.close()
	})
}

// A peer that sends everything and closes its side of the socket still gets the answers.
func TestHalfClosed(t *testing.T) {
	s := start(t, func(o *Options) { o.AMQP = "127.0.0.1:0" })
	for name, last := range map[string]amqp.Method{
		"in good order": &amqp.ConnectionClose{ReplyCode: amqp.ReplySuccess},
		"in error":      &amqp.ConnectionOpen{},
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, s.Addresses()[0]).open(0)
			c.send(0, last)
			if err := c.socket.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if f, ok := <-c.frames; !ok || f.Type != amqp.FrameMethod {
				t.Errorf("got frame %+v, %t, want an answer", f, ok)
			}
			c.ended()
		})
	}
}

// Idle connections are checked together. One at a time, 20,000 of them woke a processor 700 times a second.
func TestConnectionsAreCheckedTogether(t *testing.T) {
	const interval = 30 * time.Second
	at := map[hook.Instant]bool{}
	for i := range 20_000 {
		now := hook.Instant(1e18).Add(time.Duration(i) * 1_500_001)
		next := aligned(now, interval)
		if d := next.Sub(now); d > interval || d < interval-interval/100 {
			t.Fatalf("looked at after %v", d)
		}
		at[next] = true
		late := next.Add(3 * time.Millisecond)
		if again := aligned(late, interval); again != next.Add(interval) {
			t.Fatalf("looked at %v after a look that was %v late", again.Sub(late), late.Sub(next))
		}
	}
	if len(at) > 300 {
		t.Errorf("at %d times", len(at))
	}
}
