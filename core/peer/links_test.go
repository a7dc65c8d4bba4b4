package peer

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// Messages of a stream arrive complete and in order, whatever their size, and their sender learns that they were sent.
func TestMessagesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.node(t, 1), f.node(t, 2)
		f.connect()
		var delivered atomic.Int64
		done := func(ok bool) {
			if ok {
				delivered.Add(1)
			}
		}
		var want []string
		for i, size := range []int{0, 1, 100, bufferSize, chunkSize - 1, chunkSize, 3*chunkSize + 7} {
			for range 3 {
				body := strings.Repeat(string(rune('a'+i)), size)
				a.Send(2, uint32(i), true, []byte(body), done)
				want = append(want, fmt.Sprintf("1/%d %s", i, body))
			}
		}
		synctest.Wait()
		if got := b.received(); !slices.Equal(got, want) {
			t.Errorf("got %d messages, want %d, or they differ", len(got), len(want))
		}
		if got := int(delivered.Load()); got != len(want) {
			t.Errorf("%d were reported as delivered, want %d", got, len(want))
		}
		f.close()
	})
}

// A small message does not wait for large ones whose receiver is slow.
func TestSmallMessagesOvertakeLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a := f.node(t, 1)
		blocked := make(chan struct{})
		var small atomic.Int64
		f.node(t, 2, func(o *Options) {
			o.Received = func(_ wlog.NodeID, _ uint32, message []byte) {
				if len(message) > 10 {
					<-blocked
					return
				}
				small.Add(1)
			}
		})
		f.connect()
		a.Send(2, 1, true, make([]byte, chunkSize), nil)
		a.Send(2, 1, true, make([]byte, chunkSize), nil)
		a.Send(2, 1, false, []byte("vote"), nil)
		synctest.Wait()
		if small.Load() != 1 {
			t.Error("the vote did not arrive")
		}
		close(blocked)
		f.close()
	})
}

// The queue for a node that does not read is limited. Excess messages are dropped, and their senders are notified.
func TestQueuesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a := f.node(t, 1, func(o *Options) { o.Queue = 10_000 })
		blocked := make(chan struct{})
		f.node(t, 2, func(o *Options) { o.Received = func(wlog.NodeID, uint32, []byte) { <-blocked } })
		f.connect()
		var delivered, dropped atomic.Int64
		for range 1000 {
			a.Send(2, 1, true, make([]byte, 1000), func(ok bool) {
				if ok {
					delivered.Add(1)
				} else {
					dropped.Add(1)
				}
			})
			synctest.Wait()
		}
		if q := a.Status()[0].Queued; q > 10_000 {
			t.Errorf("%d bytes wait, want 10000 at most", q)
		}
		if n := dropped.Load(); n < 900 {
			t.Errorf("%d were dropped, want 900 at least", n)
		}
		close(blocked)
		synctest.Wait()
		if delivered.Load()+dropped.Load() != 1000 || a.Status()[0].Dropped != uint64(dropped.Load()) {
			t.Errorf("%d delivered, %d dropped, want 1000; the status has %d", delivered.Load(), dropped.Load(), a.Status()[0].Dropped)
		}
		if q := a.Status()[0].Queued; q != 0 {
			t.Errorf("%d bytes wait at the end", q)
		}
		f.close()
	})
}

// A message larger than the whole queue may wait by itself; one larger than the limit for messages never.
func TestLargeMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.node(t, 1, func(o *Options) { o.Queue, o.MaxMessage = 100, 1000 }), f.node(t, 2)
		f.connect()
		a.Send(2, 1, true, make([]byte, 1000), nil)
		synctest.Wait()
		if n := len(b.received()); n != 1 {
			t.Errorf("%d arrived, want the one of 1000 bytes", n)
		}
		ok := true
		a.Send(2, 1, true, make([]byte, 1001), func(delivered bool) { ok = delivered })
		if ok {
			t.Error("a message of 1001 bytes was taken, with a limit of 1000")
		}
		f.close()
	})
}

// A message to an unknown node is dropped at once.
func TestMessagesToNodesThatAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a := f.node(t, 1)
		a.Connect([]Node{nodeOf(2)})
		synctest.Wait()
		for _, to := range []wlog.NodeID{2, 3} {
			calls := 0
			a.Send(to, 1, false, []byte("x"), func(ok bool) {
				if calls++; ok {
					t.Errorf("to %d: delivered", to)
				}
			})
			if calls != 1 {
				t.Errorf("to %d: %d reports, want 1", to, calls)
			}
		}
		f.close()
	})
}

// A node counts as gone only if its connection ended and it refuses new ones.
func TestGone(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(f *fabric, b *testNode)
		want bool
	}{
		{"its process ended", func(_ *fabric, b *testNode) { b.Close() }, true},
		{"its connections were reset", func(f *fabric, b *testNode) { f.Reset(b.node.Address) }, false},
		{"nothing comes from it", func(f *fabric, b *testNode) {
			f.Lose(b.node.Address)
			f.Silence(b.node.Address, true)
		}, false},
		{"nothing comes from it, and then it refuses", func(f *fabric, b *testNode) {
			f.Lose(b.node.Address)
			f.Silence(b.node.Address, true)
			time.Sleep(2 * silence)
			b.Close()
			f.Silence(b.node.Address, false)
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				a, b := f.node(t, 1), f.node(t, 2)
				f.connect()
				tc.do(f, b)
				time.Sleep(30 * time.Second)
				if got := a.goneNodes(); len(got) > 1 || (len(got) == 1) != tc.want {
					t.Errorf("gone: %v, want that it is: %v", got, tc.want)
				}
				f.close()
			})
		})
	}
}

// A process that has ended counts as gone within 100 ms.
func TestGoneSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.node(t, 1), f.node(t, 2)
		f.connect()
		b.Close()
		time.Sleep(100 * time.Millisecond)
		if len(a.goneNodes()) != 1 {
			t.Error("it does not")
		}
		f.close()
	})
}

// A node that comes back is linked again, sooner if it dials itself.
func TestNodeComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.node(t, 1), f.node(t, 2)
		f.connect()
		b.Close()
		time.Sleep(time.Hour)
		if a.connectedTo(2) || a.Status()[0].Err == nil {
			t.Fatal("it is connected to a node that is not there, or does not say why not")
		}
		c := f.node(t, 2)
		c.Connect([]Node{a.node})
		time.Sleep(10 * time.Millisecond)
		a.Send(2, 1, false, []byte("again"), nil)
		synctest.Wait()
		if got := c.received(); len(got) != 1 {
			t.Errorf("got %q", got)
		}
		f.close()
	})
}

// Both sides give up a connection whose other end no longer exists, even without any notification.
func TestHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.node(t, 1), f.node(t, 2)
		f.connect()
		before := a.Status()[0].Since
		f.Lose(b.node.Address)
		time.Sleep(silence + time.Second)
		if st := a.Status()[0]; !st.Connected || st.Since == before {
			t.Errorf("the node that dials has not connected anew: %+v", st)
		}
		time.Sleep(idle)
		f.close()
	})
}

// A node is silent if nothing comes from it for ten seconds, unless it connects again.
func TestSilent(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(f *fabric, b *testNode, freeze chan<- struct{})
		want int
	}{
		{"it is there", func(*fabric, *testNode, chan<- struct{}) {}, 0},
		{"its process ended", func(_ *fabric, b *testNode, _ chan<- struct{}) { b.Close() }, 1},
		{"its connections were reset", func(f *fabric, _ *testNode, _ chan<- struct{}) { f.Reset("node1:5680") }, 0},
		{"its connections were reset, and it is cut off", func(f *fabric, _ *testNode, _ chan<- struct{}) {
			f.Silence("node1:5680", true) // first: it dials at once
			f.Reset("node1:5680")
		}, 1},
		{"it stands still", func(_ *fabric, _ *testNode, freeze chan<- struct{}) { freeze <- struct{}{} }, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				frozen, thawed := make(chan struct{}, 1), make(chan struct{})
				a, b := f.node(t, 1), f.node(t, 2, func(o *Options) {
					o.Times = func() []ShardTime { // which each ping asks for
						select {
						case <-frozen:
							<-thawed
						default:
						}
						return nil
					}
				})
				f.connect()
				tc.do(f, b, frozen)
				said := func(after time.Duration) (n int) {
					time.Sleep(after)
					a.note(func() { n = len(a.still) })
					return n
				}
				if n := said(idle - pingInterval - time.Millisecond); n != 0 {
					t.Errorf("said after nine seconds, %d times", n)
				}
				if n := said(time.Minute); n != tc.want {
					t.Errorf("said %d times, want %d", n, tc.want)
				}
				close(thawed)
				f.close()
			})
		})
	}
}

// A node that was suspended while the others ran finds their bytes when it continues, although its time to read them is over.
// It used to take the others for silent.
func TestNobodyIsSilentForANodeThatStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		stopped := make(chan struct{}, 1)
		a := f.node(t, 1, func(o *Options) { o.Listener = &stopping{o.Listener, stopped} })
		f.node(t, 2)
		f.connect()
		stopped <- struct{}{}
		time.Sleep(time.Minute)
		a.note(func() {
			if len(a.still) != 0 {
				t.Errorf("nodes %v are silent", a.still)
			}
		})
		f.close()
	})
}

// stopping is a listener of a node that can be suspended: with a token in stopped, the next read that has a deadline begins after the deadline.
type stopping struct {
	net.Listener
	stopped chan struct{}
}

func (l *stopping) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &stoppingConn{Conn: conn, stopped: l.stopped}, nil
}

type stoppingConn struct {
	net.Conn
	stopped  chan struct{}
	deadline time.Time // its reader's
}

func (c *stoppingConn) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return c.Conn.SetReadDeadline(t)
}

func (c *stoppingConn) Read(b []byte) (int, error) {
	if !c.deadline.IsZero() {
		select {
		case <-c.stopped:
			time.Sleep(time.Until(c.deadline) + 5*time.Second)
			return 0, os.ErrDeadlineExceeded // even if the socket has data: the runtime checks its timers first
		default:
		}
	}
	return c.Conn.Read(b)
}

// Connect closes the links to nodes that are no longer members, and accepts no messages from them.
func TestConnectOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.node(t, 1), f.node(t, 2)
		f.connect()
		a.Connect([]Node{nodeOf(3)})
		synctest.Wait()
		b.Send(1, 1, false, []byte("x"), nil)
		time.Sleep(time.Minute)
		if got := a.received(); len(got) != 0 {
			t.Errorf("got %q", got)
		}
		if b.connectedTo(1) {
			t.Error("a stream of a node that is none any more was taken")
		}
		b.wantLog(t, "node 2 at node2:5680 is not among those that this node has links to")
		f.close()
	})
}

// If a node ends each stream as soon as it is established, it is not dialled again without a pause. It used to be, with a handshake each time.
func TestStreamsThatEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		one := f.node(t, 1)
		l := f.Listen(nodeOf(2).Address)
		var count atomic.Int32
		go func() {
			for count.Load() < 1000 {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				count.Add(1)
				greetAndClose(conn)
			}
			l.Close()
		}()
		one.Connect([]Node{nodeOf(2)})
		time.Sleep(20 * time.Second)
		if n := count.Load(); n < 10 || n > 60 {
			t.Errorf("it was dialled %d times in 20 s", n)
		}
		l.Close()
		f.close()
	})
}

// greetAndClose does the handshake of node 2, and closes the stream.
func greetAndClose(conn net.Conn) {
	defer conn.Close()
	g, err := readGreeting(conn)
	if err != nil {
		return
	}
	h := Hello{Protocol: protocol, Format: Range{1, 1}, Node: 2, Address: nodeOf(2).Address, Name: "test", Shards: 3}
	if writeGreeting(conn, &greeting{Hello: &h, Nonce: newNonce(), Repeats: g.Nonce}) == nil {
		_, _ = readGreeting(conn) // it is the last one
	}
}
