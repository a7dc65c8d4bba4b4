package peer

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// A difference between two nodes is named in the logs of both, whichever of them dials, and in the error of Dial.
func TestRefusedByName(t *testing.T) {
	hello := func(change func(*Hello)) func(*Options) {
		return func(o *Options) {
			self := o.Self
			o.Self = func() Hello {
				h := self()
				change(&h)
				return h
			}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*Options) // of node 2
		one    string         // in the log of node 1
		two    string
	}{
		{
			"format", hello(func(h *Hello) { h.Format = Range{2, 3} }),
			"it reads logs of format 2 to 3, and this node 1: upgrade the one with the lower one",
			"it reads logs of format 1, and this node 2 to 3: upgrade the one with the lower one",
		},
		{"a copied folder", hello(func(h *Hello) { h.Node = 1 }), "it has this node's number, 1: it is this node itself, whose cluster.advertise is node1:5680, or one with a copy of its data folder", "it has this node's number, 1: it is this node itself, whose cluster.advertise is node2:5680, or one with a copy of its data folder"},
		{"no number", hello(func(h *Hello) { h.Node = 0 }), "it has no number", "it has no number"},
		{"another address", hello(func(h *Hello) { h.Address = "node3:5680" }), "at node2:5680 answers the node with cluster.advertise node3:5680", ""},
		{"another number", hello(func(h *Hello) { h.Node = 7 }), "at node2:5680 answers node 7, not 2", ""},
		{"check", func(o *Options) { o.Check = func(Hello) error { return errors.New("its shoes are brown") } }, "it refuses: its shoes are brown", "its shoes are brown"},
		{"a long reason", func(o *Options) { o.Check = func(Hello) error { return errors.New(strings.Repeat("long ", 10_000)) } }, "it refuses: long long", "long long"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				one, two := f.node(t, 1), f.node(t, 2, tc.change)
				f.connect()
				time.Sleep(10 * time.Second)
				if one.connectedTo(2) {
					t.Error("they are connected")
				}
				two.Serve(Relay, func(conn net.Conn, _ wlog.NodeID) { conn.Close() })
				if _, err := one.Dial(t.Context(), 2, Relay); err == nil || !strings.Contains(err.Error(), tc.one) {
					t.Errorf("dial: %v, want %q", err, tc.one)
				}
				one.wantLog(t, tc.one)
				two.wantLog(t, tc.two)
				f.close()
			})
		})
	}
}

// Nodes without a common version of the protocol report their versions.
func TestOtherProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		one := f.node(t, 1)
		h := Hello{Protocol: Range{2, 4}, Format: Range{1, 1}, Node: 2, Address: "node2:5680"}
		g := greet(t, f, one.node.Address, &greeting{Hello: &h, Nonce: newNonce()})
		if want := "it speaks version 2 to 4 of the protocol between nodes, and this node 1"; !strings.Contains(g.Refused, want) || g.Hello.Protocol != protocol {
			t.Errorf("got %+v, want %q", g, want)
		}
		f.close()
	})
}

// greet sends the first message of a handshake, and returns the answer.
func greet(t *testing.T, f *fabric, address string, g *greeting) *greeting {
	t.Helper()
	conn, err := f.Dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := writeGreeting(conn, g); err != nil {
		t.Fatal(err)
	}
	answer, err := readGreeting(conn)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// A stream that replays bytes a node has sent earlier is closed before anything else happens with it.
func TestReplayedHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		var served atomic.Int64
		one, two := f.node(t, 1), f.node(t, 2)
		one.Serve(Relay, func(conn net.Conn, _ wlog.NodeID) {
			served.Add(1)
			conn.Close()
		})
		f.connect()
		var recorded recorder
		two.options.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := f.Dial(ctx, address)
			recorded.Conn = conn
			return &recorded, err
		}
		conn, err := two.Dial(t.Context(), 1, Relay)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		conn.Close()
		if served.Load() != 1 {
			t.Fatal("the stream was not served")
		}
		again, err := f.Dial(t.Context(), one.node.Address)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = again.Write(recorded.written) }() // until the other side closes it
		for b := make([]byte, 1024); err == nil; {
			_, err = again.Read(b)
		}
		again.Close()
		synctest.Wait()
		if served.Load() != 1 {
			t.Error("the repeated stream was served, too")
		}
		one.wantLog(t, "it repeats an earlier handshake")
		f.close()
	})
}

type recorder struct {
	net.Conn
	written []byte
}

func (r *recorder) Write(p []byte) (int, error) {
	r.written = append(r.written, p...)
	return r.Conn.Write(p)
}

// Connections that are handed over belong to the receiving function, begin after the handshake, and have no deadline.
func TestDialAndServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		one, two := f.node(t, 1), f.node(t, 2)
		f.connect()
		if _, err := two.Dial(t.Context(), 1, HTTP); err == nil || !strings.Contains(err.Error(), "this node takes no http streams yet") {
			t.Errorf("before Serve: %v", err)
		}
		if _, err := two.Dial(t.Context(), 9, HTTP); !errors.Is(err, ErrUnknown) {
			t.Errorf("to a node that there is not: %v", err)
		}
		one.Serve(HTTP, func(conn net.Conn, from wlog.NodeID) {
			defer conn.Close()
			time.Sleep(time.Hour)
			b := make([]byte, 5)
			if _, err := conn.Read(b); err != nil || from != 2 {
				t.Errorf("from %d: %v", from, err)
			}
			_, _ = conn.Write(b) // its reader checks
		})
		conn, err := two.Dial(t.Context(), 1, HTTP)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 10)
		if n, err := conn.Read(b); err != nil || string(b[:n]) != "hello" {
			t.Errorf("got %q, %v", b[:n], err)
		}
		f.close()
	})
}

// Cancelling the context ends a handshake with which the other side does not go on.
func TestDialEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		one := f.node(t, 1)
		mute := f.Listen("node2:5680")
		one.Connect([]Node{nodeOf(2)})
		go func() {
			for {
				conn, err := mute.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if _, err := one.Dial(ctx, 2, HTTP); err == nil || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		begin = time.Now()
		if _, err := one.Greet(t.Context(), "node2:5680"); err == nil || time.Since(begin) != handshakeTimeout {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		f.close()
		mute.Close()
	})
}

// A node that does not answer does not prevent streams to others from being opened. It used to, for the duration of a handshake, when many
// streams were requested at a time, as by clients that reconnect.
func TestDialBesidesASilentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		one, two := f.node(t, 1), f.node(t, 2)
		f.connect()
		two.Serve(Relay, func(conn net.Conn, _ wlog.NodeID) { conn.Close() })
		one.Connect([]Node{two.node, nodeOf(3)})
		f.Silence(nodeOf(3).Address, true)
		var waiting sync.WaitGroup
		for range 2 * maxDialing {
			waiting.Go(func() {
				if conn, err := one.Dial(t.Context(), 3, Relay); err == nil {
					conn.Close()
					t.Error("a node that is silent was reached")
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		conn, err := one.Dial(t.Context(), 2, Relay)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if d := time.Since(began); d > 0 {
			t.Errorf("it took %v", d)
		}
		waiting.Wait()
		f.close()
	})
}

// Many silent connections do not keep a node out for longer than a handshake may take, and are not kept in memory.
func TestFloodOfConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		one := f.node(t, 1)
		var closed atomic.Int64
		for range 3 * maxCallers {
			conn, err := f.Dial(t.Context(), one.node.Address)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _ = conn.Read(make([]byte, 1)) // until the other side closes it
				closed.Add(1)
				conn.Close()
			}()
		}
		synctest.Wait()
		if n := closed.Load(); n != 3*maxCallers-maxCallersOfOne {
			t.Errorf("%d were closed at once, want all but %d of one address", n, maxCallersOfOne)
		}
		time.Sleep(handshakeTimeout)
		synctest.Wait()
		if n := closed.Load(); n != 3*maxCallers {
			t.Errorf("%d of %d were closed after %v", n, 3*maxCallers, handshakeTimeout)
		}
		one.wantLog(t, "too many connections to the port for nodes are in their handshake")
		if n := strings.Count(one.log.String(), "\n"); n > 3 {
			t.Errorf("%d lines were logged:\n%s", n, one.log)
		}
		two := f.node(t, 2)
		f.connect()
		if !two.connectedTo(1) {
			t.Error("a node cannot connect afterwards")
		}
		f.close()
	})
}

func FuzzGreeting(f *testing.F) {
	var seed strings.Builder
	h := Hello{Kind: Bulk, Protocol: protocol, Node: 5, Address: "a:5680", Nodes: []Node{{1, "a:5680"}}, Founders: []wlog.NodeID{1}}
	if err := writeGreeting(&seed, &greeting{Hello: &h, Nonce: newNonce()}); err != nil {
		f.Fatal(err)
	}
	f.Add(seed.String())
	f.Add(magic + "\x00\x00\x00\x02{}")
	f.Fuzz(func(t *testing.T, input string) {
		g, err := readGreeting(strings.NewReader(input))
		if err != nil {
			return
		}
		if len(g.Refused) > maxReason || max(len(g.Nonce), len(g.Repeats)) > nonceSize {
			t.Fatalf("too long: %+v", g)
		}
		var again strings.Builder
		if err := writeGreeting(&again, g); err != nil {
			return // escaping made it longer than it may be
		}
		if _, err := readGreeting(strings.NewReader(again.String())); err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
	})
}
