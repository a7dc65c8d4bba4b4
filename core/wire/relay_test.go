package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// pair is a cluster of two nodes with one vhost, "/", whose owner the test chooses. Each node has its own content for the vhost, which shows
// clients the node that serves them.
type pair struct {
	front, owner *Server

	mu        sync.Mutex // guards the fields below
	homeIs    wlog.NodeID
	changed   chan struct{}
	streams   []net.Conn      // from the front, in order
	refuse    error           // of Dial
	instead   func() net.Conn // of a stream to the owner
	frontSays wlog.NodeID     // the owner as the front sees it; 0 means the real one
	wrap      func(net.Conn) net.Conn
}

const (
	frontNode wlog.NodeID = 1
	ownerNode wlog.NodeID = 2
)

func newPair(tb testing.TB, change ...func(node wlog.NodeID, o *Options)) *pair {
	tb.Helper()
	p := &pair{homeIs: ownerNode, changed: make(chan struct{})}
	users := auth.New(auth.Options{}) // as if both followed the registry
	if err := users.CreateDefaults(); err != nil {
		tb.Fatal(err)
	}
	server := func(self wlog.NodeID) *Server {
		return newServer(tb, func(o *Options) {
			o.Session.Users = users
			o.Session.Home = func(vhost string) (session.Home, bool) { return p.home(self, vhost) }
			o.Dial = p.dial
			for _, f := range change {
				f(self, o)
			}
		})
	}
	p.front, p.owner = server(frontNode), server(ownerNode)
	return p
}

func (p *pair) home(self wlog.NodeID, vhost string) (session.Home, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frontSays != 0 && self == frontNode {
		return session.Home{Owner: p.frontSays, Changed: p.changed}, true
	}
	return session.Home{Owner: p.homeIs, Here: p.homeIs == self, Changed: p.changed}, vhost == "/"
}

// move gives the vhost an owner; 0 means none.
func (p *pair) move(to wlog.NodeID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.homeIs = to
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pair) dial(_ context.Context, to wlog.NodeID) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.refuse != nil:
		return nil, p.refuse
	case to != ownerNode:
		return nil, errors.New("no such node")
	}
	if p.instead != nil {
		return p.instead(), nil
	}
	near, far := net.Pipe()
	if p.wrap != nil {
		near = p.wrap(near)
	}
	p.streams = append(p.streams, near)
	p.owner.Adopt(far, frontNode) //nolint:contextcheck // it goes on when the dial is over
	return near, nil
}

// cut ends the last stream to the owner.
func (p *pair) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.streams); n > 0 {
		p.streams[n-1].Close()
	}
}

// A client is served by the owner of its vhost, whichever node it is connected to.
func TestRelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		c := dial(t, p.front).open(60)
		synctest.Wait()
		if n := len(p.front.OpenConns()); n != 0 {
			t.Errorf("the front lists %d connections as its own", n)
		}
		open, relayed := p.owner.OpenConns(), p.front.Relayed()
		if len(open) != 1 || len(relayed) != 1 {
			t.Fatalf("the owner lists %d connections, and the front relays %d: want one each", len(open), len(relayed))
		}
		if open[0].Front != frontNode || relayed[0].Node != ownerNode || open[0].Peer.Address != relayed[0].Peer.Address {
			t.Errorf("the owner lists %+v, and the front relays %+v to %d", open[0].ConnInfo, relayed[0].Handover, relayed[0].Node)
		}
		c.send(1, &amqp.ChannelOpen{})
		expectMethod[*amqp.ChannelOpenOK](c)
		c.close()
		synctest.Wait()
		if p.front.Connections() != 0 || p.owner.Connections() != 0 || len(p.front.Relayed()) != 0 {
			t.Errorf("%d connections at the front, %d at the owner, %d relayed after the end",
				p.front.Connections(), p.owner.Connections(), len(p.front.Relayed()))
		}
	})
}

// After a node has left the cluster, the connections that it has handed over end. Other connections stay.
func TestHangUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		c := dial(t, p.front).open(60)
		dial(t, p.owner).open(60)
		synctest.Wait()
		if n := p.owner.HangUp(ownerNode); n != 0 { // it has handed nothing over
			t.Errorf("%d connections were ended, want none", n)
		}
		synctest.Wait()
		if n := p.owner.Connections(); n != 2 {
			t.Fatalf("the owner has %d connections, want 2", n)
		}
		if n := p.owner.HangUp(frontNode); n != 1 {
			t.Errorf("%d connections were ended, want 1", n)
		}
		c.refused(amqp.ReplyConnectionForced, "CONNECTION_FORCED - the node that serves vhost '/' has gone")
		synctest.Wait()
		if n := p.owner.Connections(); n != 1 {
			t.Errorf("the owner has %d connections, want 1", n)
		}
	})
}

// login does the handshake, up to connection.open.
func (c *client) login(heartbeat uint16, vhost string) *client {
	c.t.Helper()
	c.write([]byte(amqp.ProtocolHeader))
	expectMethod[*amqp.ConnectionStart](c)
	c.send(0, &amqp.ConnectionStartOK{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
	expectMethod[*amqp.ConnectionTune](c)
	c.send(0, &amqp.ConnectionTuneOK{ChannelMax: 100, FrameMax: 131072, Heartbeat: heartbeat}, &amqp.ConnectionOpen{VirtualHost: vhost})
	return c
}

// refused expects connection.close, and answers.
func (c *client) refused(code uint16, text string) {
	c.t.Helper()
	c.told(code, text)
	c.answer()
}

func (c *client) told(code uint16, text string) {
	c.t.Helper()
	m := expectMethod[*amqp.ConnectionClose](c)
	if m.ReplyCode != code || m.ReplyText != text {
		c.t.Errorf("connection.close:\n got %d %s\nwant %d %s", m.ReplyCode, m.ReplyText, code, text)
	}
}

// answer answers connection.close. The server does not wait for more.
func (c *client) answer() {
	c.t.Helper()
	wantElapsed(c.t, 0, func() {
		c.send(0, &amqp.ConnectionCloseOK{})
		c.ended()
	})
}

const (
	gone = "CONNECTION_FORCED - the node that serves vhost '/' has gone"
	down = "INTERNAL_ERROR - access to vhost '/' refused for user 'guest': vhost '/' is down, no node of the cluster serves it now"
)

// The result of a client's connection.open depends on the owner of the vhost, and may have to wait for one.
func TestSeek(t *testing.T) {
	tests := []struct {
		name   string
		begin  func(p *pair)
		after  time.Duration // time until then
		then   func(p *pair)
		opens  time.Duration // after connection.open; 0 with refused: never
		at     wlog.NodeID
		closed string // text of connection.close
	}{
		{name: "here", begin: func(p *pair) { p.move(frontNode) }, at: frontNode},
		{name: "elsewhere", at: ownerNode},
		{
			name: "no owner, then this node", begin: func(p *pair) { p.move(0) },
			after: 3 * time.Second, then: func(p *pair) { p.move(frontNode) }, opens: 3 * time.Second, at: frontNode,
		},
		{
			name: "no owner, then another", begin: func(p *pair) { p.move(0) },
			after: 3 * time.Second, then: func(p *pair) { p.move(ownerNode) }, opens: 3 * time.Second, at: ownerNode,
		},
		{
			name: "an owner that cannot be reached, then this node", begin: func(p *pair) { p.setDial(errors.New("connection refused"), nil) },
			after: 3 * time.Second, then: func(p *pair) { p.move(frontNode) }, opens: 3 * time.Second, at: frontNode,
		},
		{
			name: "an owner that can be reached later", begin: func(p *pair) { p.setDial(errors.New("connection refused"), nil) },
			after: 3 * time.Second, then: func(p *pair) { p.setDial(nil, nil) }, opens: 3550 * time.Millisecond, at: ownerNode,
		},
		{
			name: "an owner that does not answer, then another", begin: func(p *pair) { p.setDial(nil, deafDial) },
			after: 2 * time.Second, then: func(p *pair) { p.move(frontNode) }, opens: 2 * time.Second, at: frontNode,
		},
		{name: "no owner", begin: func(p *pair) { p.move(0) }, opens: ownerWait, closed: down},
		{name: "an owner that cannot be reached", begin: func(p *pair) { p.setDial(errors.New("connection refused"), nil) }, opens: ownerWait, closed: down},
		{name: "an owner that does not answer", begin: func(p *pair) { p.setDial(nil, deafDial) }, opens: ownerWait, closed: down},
		{name: "an owner that is none", begin: func(p *pair) { p.lie(ownerNode) }, opens: ownerWait, closed: down},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				if tt.begin != nil {
					tt.begin(p)
				}
				if tt.then != nil {
					time.AfterFunc(tt.after, func() { tt.then(p) })
				}
				c := dial(t, p.front)
				wantElapsed(t, tt.opens, func() {
					c.login(60, "/")
					c.send(1, &amqp.ChannelOpen{}) // without waiting
					if tt.closed != "" {
						c.refused(amqp.ReplyInternalError, tt.closed)
						return
					}
					expectMethod[*amqp.ConnectionOpenOK](c)
					expectMethod[*amqp.ChannelOpenOK](c)
				})
				if tt.closed != "" {
					return
				}
				if at := map[bool]wlog.NodeID{true: frontNode, false: ownerNode}[len(p.front.OpenConns()) == 1]; at != tt.at {
					t.Errorf("node %d serves the connection, want %d", at, tt.at)
				}
				c.close()
			})
		})
	}
}

// deafDial is the dial of a node that accepts streams and does not answer, like a stopped process.
func deafDial() net.Conn {
	near, far := net.Pipe()
	go func() {
		_, _ = io.Copy(io.Discard, far)
		far.Close()
	}()
	return near
}

// setDial changes what Dial does; without an error or a function it works.
func (p *pair) setDial(refuse error, instead func() net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse, p.instead = refuse, instead
}

// lie makes the front take the wrong node for the owner.
func (p *pair) lie(node wlog.NodeID) {
	p.move(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frontSays = node
}

// While the owner is looked for, the client gets heartbeats, and its end is noticed.
func TestSeekHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.move(0)
		c := dial(t, p.front).login(2, "/")
		for range 3 {
			if f := <-c.frames; f.Type != amqp.FrameHeartbeat {
				t.Fatalf("got %+v, want a heartbeat", f)
			}
		}
		c.socket.Close()
		synctest.Wait()
		if n := p.front.Connections(); n != 0 {
			t.Errorf("%d connections are left after the client's end", n)
		}
	})
}

// A silent client is cut off while the owner is looked for, like any other.
func TestSeekSilentClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.move(0)
		c := dial(t, p.front).login(1, "/")
		start := time.Now()
		for f := range c.frames {
			if f.Type != amqp.FrameHeartbeat {
				t.Errorf("got %+v, want heartbeats only", f)
			}
		}
		if took := time.Since(start); took < 2*time.Second || took > 3500*time.Millisecond {
			t.Errorf("cut off after %v, want two to three intervals", took)
		}
	})
}

// Clients that wait for an owner do not use up the places of those in the handshake, but count towards the limit of connections.
func TestSeekLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(_ wlog.NodeID, o *Options) { o.Handshakes, o.Session.Connections = 1, 3 })
		p.move(0)
		var waiting []*client
		for range 3 {
			waiting = append(waiting, dial(t, p.front).login(0, "/"))
			synctest.Wait()
		}
		dial(t, p.front).login(0, "/").refused(amqp.ReplyNotAllowed, "NOT_ALLOWED - connection refused: node connection limit (3) is reached")
		p.move(ownerNode)
		for _, c := range waiting {
			expectMethod[*amqp.ConnectionOpenOK](c)
			c.close()
		}
		synctest.Wait()
		dial(t, p.front).open(0).close() // they have given back their places
	})
}

// A server that ends does not wait for owners.
func TestShutdownWhileSeeking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.setDial(nil, deafDial)
		c := dial(t, p.front).login(0, "/")
		synctest.Wait()
		wantElapsed(t, 0, func() {
			go c.refused(amqp.ReplyConnectionForced, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'")
			if err := p.front.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
}

// The owner's refusals reach the client as errors with their text and the method.
func TestOwnerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		root, _ := p.owner.options.Session.VHosts("/")
		if err := root.Parameters().SetLimits(vhost.Limits{Connections: hook.LimitOf(0)}); err != nil {
			t.Fatal(err)
		}
		dial(t, p.front).login(0, "/").refused(amqp.ReplyNotAllowed,
			"NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (0) is reached")
		if err := root.Parameters().SetLimits(vhost.Limits{}); err != nil {
			t.Fatal(err)
		}
		users := p.owner.options.Session.Users
		if err := users.SetLimits("guest", auth.Limits{Connections: hook.LimitOf(0)}); err != nil {
			t.Fatal(err)
		}
		dial(t, p.front).login(0, "/").refused(amqp.ReplyNotAllowed,
			"NOT_ALLOWED - connection refused for user 'guest': user connection limit (0) is reached")
		dial(t, p.front).login(0, "nowhere").refused(amqp.ReplyNotAllowed, "NOT_ALLOWED - vhost nowhere not found")
	})
}

// A client whose owner vanishes gets connection.close, and may answer.
func TestOwnerGone(t *testing.T) {
	tests := []struct {
		name  string
		lose  func(p *pair)
		after time.Duration
	}{
		{"its stream ends", (*pair).cut, 0},
		{"another node owns the vhost", func(p *pair) { p.move(3) }, brokenFor},
		{"this node owns the vhost", func(p *pair) { p.move(frontNode) }, brokenFor},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				c := dial(t, p.front).open(60)
				c.send(1, &amqp.ChannelOpen{})
				expectMethod[*amqp.ChannelOpenOK](c)
				wantElapsed(t, tt.after, func() {
					tt.lose(p)
					c.told(amqp.ReplyConnectionForced, gone)
				})
				c.answer()
				synctest.Wait()
				if p.front.Connections() != 0 || p.owner.Connections() != 0 {
					t.Errorf("%d connections at the front, %d at the owner", p.front.Connections(), p.owner.Connections())
				}
			})
		})
	}
}

// A transfer of the vhost does not by itself end connections here. A node that knows no owner for longer has not heard from it for election
// timeouts. It used to wait five more seconds, and its clients hung for seven.
func TestOwnerUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		c := dial(t, p.front).open(0)
		p.move(0)
		time.Sleep(ownerless - time.Millisecond)
		p.move(ownerNode)
		time.Sleep(time.Minute)
		c.send(1, &amqp.ChannelOpen{})
		expectMethod[*amqp.ChannelOpenOK](c)
		p.move(0)
		wantElapsed(t, ownerless, func() { c.told(amqp.ReplyConnectionForced, gone) })
		c.answer()
	})
}

// A front that ends closes its clients' connections itself.
func TestFrontShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		c := dial(t, p.front).open(0)
		c.write([]byte{amqp.FrameBody, 0, 1, 0, 0, 0, 9, 1, 2}) // not all of a frame
		synctest.Wait()
		done := make(chan error)
		go func() { done <- p.front.Shutdown(context.WithoutCancel(t.Context())) }()
		m := expectMethod[*amqp.ConnectionClose](c)
		if m.ReplyText != "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'" {
			t.Errorf("got %s", m.ReplyText)
		}
		wantElapsed(t, 0, func() {
			c.write([]byte{amqp.FrameBody, 0, 1, 0, 0, 16, 0, amqp.FrameEnd}) // the rest, which looks like the start of a large frame
			c.send(0, &amqp.ConnectionCloseOK{})
			c.ended()
		})
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// An owner that ends tells its clients, as if they were connected to it.
func TestOwnerShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		c := dial(t, p.front).open(0)
		done := make(chan error)
		go func() { done <- p.owner.Shutdown(context.WithoutCancel(t.Context())) }()
		c.refused(amqp.ReplyConnectionForced, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'")
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// When a client leaves, its connection at the owner ends, too.
func TestRelayedClientGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		c := dial(t, p.front).open(0)
		c.socket.Close()
		synctest.Wait()
		if p.front.Connections() != 0 || p.owner.Connections() != 0 {
			t.Errorf("%d connections at the front, %d at the owner", p.front.Connections(), p.owner.Connections())
		}
	})
}

// A client that does not read cannot keep its connection when its owner has gone, and neither can a client that is not read from.
func TestOwnerGoneBehindSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		c := dial(t, p.front).open(0)
		c.send(1, &amqp.ChannelOpen{})
		expectMethod[*amqp.ChannelOpenOK](c)
		c.stall()
		for range 10 { // a pipe takes nothing that is not read
			c.send(1, &amqp.QueueDeclare{Queue: "q"})
		}
		synctest.Wait()
		p.move(3)
		time.Sleep(closeTimeout + time.Second)
		synctest.Wait()
		if p.front.Connections() != 0 || p.owner.Connections() != 0 {
			t.Errorf("%d connections at the front, %d at the owner", p.front.Connections(), p.owner.Connections())
		}
		c.resume()
	})
}
