package cluster

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/tests/process"
)

// echo is a node that returns what it is sent.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// caller is a connection from one node to another, whose hello has come back.
type caller struct {
	t *testing.T
	net.Conn
}

func call(t *testing.T, n *proxies, from, to int) caller {
	t.Helper()
	c, err := net.Dial("tcp", n.addresses[to])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	k := caller{t, c}
	k.say(`{"hello":{"kind":1,"address":"` + n.addresses[from] + `","nodes":[{"address":"` + n.addresses[2] + `"}]}}`)
	return k
}

func (c caller) say(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// hear reads what has been said.
func (c caller) hear(text string) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(process.Patience)); err != nil {
		c.t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		c.t.Fatalf("got %q, %v; want %q", got, err, text)
	}
}

func (c caller) hearHello(n *proxies, from int) {
	c.t.Helper()
	c.hear(`{"hello":{"kind":1,"address":"` + n.addresses[from] + `","nodes":[{"address":"` + n.addresses[2] + `"}]}}`)
}

func testNetwork(t *testing.T) *proxies {
	t.Helper()
	return newProxies(t, []string{echo(t), echo(t), echo(t)})
}

// deaf reports whether nothing comes for a while.
func (c caller) deaf() bool {
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

func TestNetworkHoldsOneWay(t *testing.T) {
	n := testNetwork(t)
	there, other := call(t, n, 0, 1), call(t, n, 2, 1)
	there.hearHello(n, 0)
	other.hearHello(n, 2)
	for _, w := range []way{{0, 1}, {1, 0}} {
		n.Hold(w.from, w.to)
		there.say("late")
		other.say("in time")
		other.hear("in time")
		if !there.deaf() {
			t.Errorf("something came through while %v was held", w)
		}
		n.Heal()
		there.hear("late")
	}
	n.Hold(1, 2)
	there.say("elsewhere")
	there.hear("elsewhere")
}

func TestNetworkDelays(t *testing.T) {
	n := testNetwork(t)
	c := call(t, n, 0, 1)
	c.hearHello(n, 0)
	const late = 60 * time.Millisecond
	n.Delay(1, 0, late)
	began := time.Now()
	c.say("late")
	c.hear("late")
	if took := time.Since(began); took < late {
		t.Errorf("it took %v, want at least %v", took, late)
	}
}

func TestNetworkCuts(t *testing.T) {
	n := testNetwork(t)
	c, other := call(t, n, 0, 1), call(t, n, 0, 2)
	c.hearHello(n, 0)
	other.hearHello(n, 0)
	n.Cut(1, 0)
	if _, err := io.ReadAll(c); err == nil {
		t.Error("the connection ended as if by itself")
	}
	again, err := net.Dial("tcp", n.addresses[1])
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(again, `"address":"`+n.addresses[0]+`"`)
	if b, _ := io.ReadAll(again); len(b) > 0 {
		t.Errorf("got %q through what was cut", b)
	}
	_ = again.Close()
	other.say("goes on")
	other.hear("goes on")
	n.Heal()
	call(t, n, 0, 1).hearHello(n, 0)
}

func TestNetworkKnowsNodesOnly(t *testing.T) {
	n := testNetwork(t)
	c, err := net.Dial("tcp", n.addresses[1])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, strings.Repeat("x", 20<<10))
	if b, _ := io.ReadAll(c); len(b) > 0 {
		t.Errorf("a stranger got %q", b)
	}
}

// Connections that speak TLS come through although nobody knows where they are from, and are dropped with the others.
func TestNetworkDrops(t *testing.T) {
	n := testNetwork(t)
	plain := call(t, n, 0, 1)
	plain.hearHello(n, 0)
	conn, err := net.Dial("tcp", n.addresses[1])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	secure := caller{t, conn}
	secure.say("\x16\x03\x01 hello")
	secure.hear("\x16\x03\x01 hello")
	n.drop()
	for _, c := range []caller{plain, secure} {
		if _, err := io.ReadAll(c); err == nil {
			t.Error("the connection ended as if by itself")
		}
	}
	call(t, n, 0, 1).hearHello(n, 0)
}
