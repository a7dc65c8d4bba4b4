package quorum

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/core/wlog/wlogtest"
	"github.com/curfewmq/curfew/sdk/hook"
)

func local(t *testing.T, fsys vfs.FS) Local {
	t.Helper()
	e, err := seg.New(fsys, seg.Options{SegmentSize: 64 << 10, Clock: func() hook.Instant { return hook.Instant(time.Now().UnixNano()) }})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A cluster of one node conforms to the suite for logs.
func TestConformanceOfOne(t *testing.T) {
	wlogtest.Run(t, func(*testing.T) wlogtest.Backend {
		fsys := crashfs.New(1)
		return wlogtest.Backend{
			Engine: func(t *testing.T) wlog.Engine {
				t.Helper()
				fsys.Inject(nil)
				e, err := New(Options{
					Local: local(t, fsys), Node: 1, Voters: []wlog.NodeID{1}, Election: time.Second, Clock: clock.New(), Send: func(wlog.NodeID, Message) {},
				})
				if err != nil {
					t.Fatal(err)
				}
				return e
			},
			Crash:   func(*testing.T) { fsys = fsys.LosePower() },
			SetFull: func(_ *testing.T, full bool) { fsys.SetSpace(map[bool]int64{true: 0, false: 1 << 40}[full]) },
			Break: func(*testing.T) {
				fsys.Inject(func(op crashfs.Op) error {
					if op.Kind == crashfs.OpSync {
						return errors.New("broken")
					}
					return nil
				})
			},
			LargeEntry: 100_000,
		}
	})
}

// network connects the engines of a test. It delivers at once, in order.
type network struct {
	mu    sync.Mutex // guards nodes
	nodes map[wlog.NodeID]*Engine
}

func (n *network) send(t *testing.T, from wlog.NodeID) func(to wlog.NodeID, m Message) {
	t.Helper()
	return func(id wlog.NodeID, m Message) {
		n.mu.Lock()
		to := n.nodes[id]
		n.mu.Unlock()
		if to != nil {
			if id != 1 { // node 1 starts its shards itself
				_ = to.Start(t.Context(), m.Shard)
			}
			if err := to.Receive(from, m.Shard, m.Bytes); err != nil {
				t.Error(err)
			}
		}
		if m.Done != nil {
			m.Done(to != nil)
		}
	}
}

// start makes a node with an election timeout.
func (n *network) start(t *testing.T, id wlog.NodeID, fsys vfs.FS, election time.Duration) *Engine {
	t.Helper()
	e, err := New(Options{
		Local: local(t, fsys), Node: id, Voters: []wlog.NodeID{1, 2, 3}, Election: election, Clock: clock.New(), Send: n.send(t, id),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	n.nodes[id] = e
	n.mu.Unlock()
	return e
}

// A node of three conforms to the suite for logs while it owns the shards, which the others do not want to own.
func TestConformanceOfThree(t *testing.T) {
	wlogtest.Run(t, func(t *testing.T) wlogtest.Backend {
		t.Helper()
		net, fsys := &network{nodes: map[wlog.NodeID]*Engine{}}, crashfs.New(1)
		for id := wlog.NodeID(2); id <= 3; id++ {
			other := net.start(t, id, crashfs.New(uint64(id)), 10*time.Second)
			other.leaving.Store(true)
			t.Cleanup(func() {
				if err := other.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		return wlogtest.Backend{
			Engine: func(t *testing.T) wlog.Engine {
				t.Helper()
				for id := wlog.NodeID(2); id <= 3; id++ {
					net.nodes[id].Gone(1)
				}
				synctest.Wait()
				return net.start(t, 1, fsys, 300*time.Millisecond)
			},
			Crash:      func(*testing.T) { fsys = fsys.LosePower() },
			LargeEntry: 100_000,
		}
	})
}
