package quorum

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// trio is a cluster of three engines or more, in simulated time. Messages take a millisecond.
type trio struct {
	*testing.T
	mu    sync.Mutex // guards the rest
	nodes map[wlog.NodeID]*Engine
	cut   map[wlog.NodeID]bool     // nodes that are cut off in both directions
	waits map[wlog.NodeID][]func() // messages that wait for stopped nodes
	fs    map[wlog.NodeID]*crashfs.FS
	step  map[wlog.NodeID]time.Duration // how far clocks are ahead
	sent  [testShards]int               // bulk messages, by shard
	lost  map[wlog.NodeID][]error       // reasons for which nodes have lost shard 0
}

const testShards = 3

// inTrio runs a test with a cluster of three, in a bubble.
func inTrio(t *testing.T, test func(c *trio)) {
	t.Helper()
	inNoTrio(t, func(c *trio) {
		for id := wlog.NodeID(1); id <= 3; id++ {
			c.boot(id, 1, 2, 3)
		}
		test(c)
	})
}

// inNoTrio is inTrio before any node has started.
func inNoTrio(t *testing.T, test func(c *trio)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &trio{
			T: t, nodes: map[wlog.NodeID]*Engine{}, cut: map[wlog.NodeID]bool{}, fs: map[wlog.NodeID]*crashfs.FS{}, waits: map[wlog.NodeID][]func(){}, lost: map[wlog.NodeID][]error{},
			step: map[wlog.NodeID]time.Duration{1: -3 * time.Second, 2: 5 * time.Second},
		}
		t.Cleanup(func() {
			for _, e := range c.nodes {
				_ = e.Close() // the test checks errors
			}
			time.Sleep(time.Second) // for messages on their way
		})
		test(c)
	})
}

func (c *trio) boot(id wlog.NodeID, voters ...wlog.NodeID) *Engine {
	c.Helper()
	if c.fs[id] == nil {
		c.fs[id] = crashfs.New(uint64(id))
	}
	own, ahead := ownClock(), hook.Instant(c.step[id])
	e, err := New(Options{
		Local: local(c.T, c.fs[id]), Node: id, Voters: voters, Shards: testShards, Prompt: []uint32{0}, Election: time.Second,
		Clock: func() hook.Instant { return own() + ahead }, Send: func(to wlog.NodeID, m Message) { c.send(id, to, m) },
		Lost: func(shard uint32, _ wlog.NodeID, why error) {
			if shard != 0 { // any node may own the other shards
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.lost[id] = append(c.lost[id], why)
		},
	})
	if err != nil {
		c.Fatal(err)
	}
	c.mu.Lock()
	c.nodes[id], c.cut[id] = e, false
	c.mu.Unlock()
	if err := e.StartAll(c.Context()); err != nil {
		c.Fatal(err)
	}
	return e
}

func ownClock() clock.Clock {
	return func() hook.Instant { return hook.Instant(time.Now().UnixNano()) }
}

func (c *trio) send(from, to wlog.NodeID, m Message) {
	if m.Bulk {
		c.mu.Lock()
		c.sent[m.Shard]++
		c.mu.Unlock()
	}
	time.AfterFunc(time.Millisecond, func() {
		c.mu.Lock()
		e := c.nodes[to]
		lost := e == nil || c.cut[from] || c.cut[to]
		if _, stopped := c.waits[from]; stopped {
			lost = true
		} else if waits, stopped := c.waits[to]; stopped {
			c.waits[to] = append(waits, func() { _ = e.Receive(from, m.Shard, m.Bytes) }) // as below
			lost = true
		}
		c.mu.Unlock()
		if !lost {
			if err := e.Receive(from, m.Shard, m.Bytes); err != nil {
				c.Error(err)
			}
		}
		if m.Done != nil {
			m.Done(!lost)
		}
	})
}

// wantLost checks the reasons for which a node has lost shard 0.
func (c *trio) wantLost(id wlog.NodeID, want ...error) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.lost[id]
	if !slices.EqualFunc(got, want, errors.Is) {
		c.Errorf("node %d has lost shard 0 because %v, want %v", id, got, want)
	}
}

// kill ends a node like kill -9.
func (c *trio) kill(id wlog.NodeID) {
	c.mu.Lock()
	e := c.nodes[id]
	delete(c.nodes, id)
	c.fs[id] = c.fs[id].Kill()
	c.mu.Unlock()
	_ = e.Close()
}

// stop stops a node: other nodes receive nothing from it, and their messages wait for it.
func (c *trio) stop(id wlog.NodeID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits[id] = nil
}

// goOn lets a stopped node continue, and delivers the messages that have waited for it.
func (c *trio) goOn(id wlog.NodeID) {
	c.mu.Lock()
	waits := c.waits[id]
	delete(c.waits, id)
	c.mu.Unlock()
	for _, hear := range waits {
		hear()
	}
}

func (c *trio) isolate(id wlog.NodeID, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[id] = cut
}

// owner waits until a shard has an owner that other nodes know, and returns it.
func (c *trio) owner(shard uint32, but ...wlog.NodeID) wlog.NodeID {
	c.Helper()
	for range 100 {
		count := map[wlog.NodeID]int{}
		for id, e := range c.nodes {
			if o := e.owners.of(shard); o.Owner > 0 && !c.cut[id] {
				count[o.Owner]++
			}
		}
		for id, n := range count {
			if e := c.nodes[id]; n >= 2 && e != nil && e.owners.of(shard).Mine && (len(but) == 0 || id != but[0]) {
				return id
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.Fatalf("shard %d has no owner", shard)
	return 0
}

// open opens a shard at its owner.
func (c *trio) open(shard uint32, id wlog.NodeID) wlog.Log {
	c.Helper()
	l, err := c.nodes[id].Open(c.Context(), shard, func(wlog.Index, []byte) error { return nil })
	if err != nil {
		c.Fatal(err)
	}
	return l
}

// write appends numbered entries.
func (c *trio) write(l wlog.Log, from, to uint64) (last wlog.Index) {
	c.Helper()
	for n := from; n <= to; n++ {
		at, err := l.Append(c.Context(), binary.LittleEndian.AppendUint64(nil, n), wlog.Bringing)
		if err != nil {
			c.Fatalf("entry %d: %v", n, err)
		}
		last = at
	}
	return last
}

// state is a fold over a shard: its numbers since the state last began from nothing.
type state struct {
	mu   sync.Mutex // guards the rest
	all  []uint64
	at   wlog.Index
	anew int
}

// follow follows a shard until the test or the node ends.
func (c *trio) follow(id wlog.NodeID, shard uint32) *state {
	s := &state{}
	go func() {
		_ = c.nodes[id].Follow(c.Context(), shard, func(at wlog.Index, entry []byte, anew bool) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if anew {
				s.anew++
				s.all = nil
			}
			s.all, s.at = append(s.all, binary.LittleEndian.Uint64(entry)), at
			return nil
		})
	}()
	return s
}

func (s *state) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%d to %d, begun %d times", s.all[0], s.all[len(s.all)-1], s.anew)
}

func (s *state) want(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if got := s.String(); got != want {
		t.Errorf("it has %s, want %s", got, want)
	}
}

// A new cluster's shards are spread over its nodes, in the order of their numbers.
func TestSpread(t *testing.T) {
	inTrio(t, func(c *trio) {
		for shard := range uint32(testShards) {
			if got, want := c.owner(shard), wlog.NodeID(shard+1); got != want {
				t.Errorf("shard %d is owned by node %d, want %d", shard, got, want)
			}
		}
	})
}

// Each listener receives the owner of each shard, and learns when a shard has none.
func TestOwners(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		var mu sync.Mutex
		seen := map[uint32]wlog.Ownership{}
		stop := c.nodes[2].Owners(func(o wlog.Ownership) {
			mu.Lock()
			defer mu.Unlock()
			if o.Epoch < seen[o.Shard].Epoch {
				t.Errorf("%v after %v", o, seen[o.Shard])
			}
			seen[o.Shard] = o
		})
		synctest.Wait()
		for shard, want := range map[uint32]wlog.NodeID{0: 1, 1: 2, 2: 3} {
			if o := seen[shard]; o.Owner != want || o.Mine != (want == 2) {
				t.Errorf("shard %d: %+v, want owner %d", shard, o, want)
			}
		}
		c.kill(1)
		c.nodes[2].Gone(1)
		c.nodes[3].Gone(1)
		c.owner(0)
		synctest.Wait()
		mu.Lock()
		if o := seen[0]; o.Owner == 1 || o.Owner == 0 {
			t.Errorf("after node 1 is gone: %+v", o)
		}
		mu.Unlock()
		c.isolate(2, true)
		time.Sleep(5 * time.Second)
		stop()
		mu.Lock()
		defer mu.Unlock()
		for shard, o := range seen {
			if o.Owner != 0 || o.Mine {
				t.Errorf("alone, it has shard %d owned: %+v", shard, o)
			}
		}
	})
}

// After the end of its owner's process, a shard has another owner within a tick or two.
func TestGone(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		c.kill(1)
		began := time.Now()
		c.nodes[2].Gone(1)
		time.Sleep(5 * time.Millisecond)
		c.nodes[3].Gone(1)
		c.owner(0)
		if d := time.Since(began); d > 500*time.Millisecond {
			t.Errorf("it took %v", d)
		}
	})
}

// A node that only seems to be gone keeps its shards.
func TestGoneThatLives(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		epoch := c.nodes[1].owners.of(0).Epoch
		c.nodes[2].Gone(1)
		time.Sleep(10 * time.Second)
		if o := c.nodes[1].owners.of(0); !o.Mine || o.Epoch != epoch {
			t.Errorf("now %+v, in term %d it was its own", o, epoch)
		}
	})
}

// Every node can follow a shard, from any beginning.
func TestFollow(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		early := c.follow(2, 0)
		l := c.open(0, 1)
		last := c.write(l, 1, 50)
		late := c.follow(2, 0)
		own := c.follow(1, 0)
		for _, e := range []wlog.NodeID{1, 2, 3} {
			if at, err := c.nodes[e].Barrier(c.Context(), 0); err != nil || at != last {
				t.Errorf("node %d: barrier at %d, %v; want %d", e, at, err, last)
			}
		}
		early.want(t, "1 to 50, begun 1 times")
		late.want(t, "1 to 50, begun 1 times")
		own.want(t, "1 to 50, begun 1 times")
		c.kill(3)
		c.write(l, 51, 60)
		c.boot(3)
		time.Sleep(2 * time.Second)
		c.follow(3, 0).want(t, "1 to 60, begun 1 times")
	})
}

// A node that was away while entries were trimmed begins its state from nothing.
func TestFollowBehindATrim(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		s := c.follow(3, 0)
		l := c.open(0, 1)
		c.write(l, 1, 10)
		time.Sleep(10 * time.Millisecond)
		s.want(t, "1 to 10, begun 1 times")
		c.isolate(3, true)
		from := c.write(l, 11, 2000)
		if err := l.Trim(from); err != nil {
			t.Fatal(err)
		}
		c.write(l, 2001, 2010)
		time.Sleep(time.Second)
		c.isolate(3, false)
		time.Sleep(5 * time.Second)
		if o := c.nodes[1].owners.of(0); !o.Mine {
			t.Fatalf("the owner is another: %+v", o)
		}
		s.want(t, "2000 to 2010, begun 2 times")
	})
}

// An error or the context of a follower ends only that follower.
func TestFollowEnds(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		c.write(c.open(0, 1), 1, 3)
		enough := errors.New("enough")
		if err := c.nodes[2].Follow(c.Context(), 0, func(wlog.Index, []byte, bool) error { return enough }); !errors.Is(err, enough) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(c.Context(), time.Second)
		defer cancel()
		if err := c.nodes[2].Follow(ctx, 0, func(wlog.Index, []byte, bool) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := c.nodes[2].Follow(c.Context(), 99, func(wlog.Index, []byte, bool) error { return nil }); !errors.Is(err, wlog.ErrLost) {
			t.Error(err)
		}
	})
}

// Without a majority there is no barrier.
func TestBarrierAlone(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		c.isolate(3, true)
		began := time.Now()
		if at, err := c.nodes[3].Barrier(c.Context(), 0); !errors.Is(err, wlog.ErrNoOwner) {
			t.Errorf("got %d, %v", at, err)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
		ctx, cancel := context.WithTimeout(c.Context(), time.Second)
		defer cancel()
		if _, err := c.nodes[3].Barrier(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// A cancelled Open is forgotten.
func TestOpenIsCancelled(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		c.isolate(3, true)
		time.Sleep(3 * time.Second)
		ctx, cancel := context.WithTimeout(c.Context(), time.Second)
		defer cancel()
		if _, err := c.nodes[3].Open(ctx, 0, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		synctest.Wait()
		if n := len(c.nodes[3].running(0).waiting); n > 0 {
			t.Errorf("%d wait", n)
		}
	})
}

// An engine that is closed while a shard is started or opened runs nothing afterwards, and does not wait for a shard without an owner.
func TestCloseDuringAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys, slow := crashfs.New(1), make(chan struct{})
		e, err := New(Options{
			Local: local(t, fsys), Node: 1, Voters: []wlog.NodeID{1, 2, 3}, Shards: 2, Election: time.Second, Clock: ownClock(),
			Send: func(wlog.NodeID, Message) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		opening, _ := e.shard(0)
		late, _ := e.shard(1) // the engine is open
		fsys.Inject(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpSync {
				<-slow
			}
			return nil
		})
		opened, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := e.Open(t.Context(), 0, func(wlog.Index, []byte) error { return nil })
			opened <- err
		}()
		synctest.Wait()
		go func() { closed <- e.Close() }()
		for !opening.closed.Load() { // Close waits for a lock, which synctest cannot observe
			runtime.Gosched()
		}
		close(slow)
		if err := <-closed; err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-opened; err == nil {
			t.Error("the shard was opened")
		}
		late.mu.Lock()
		defer late.mu.Unlock()
		if err := late.start(t.Context(), e, 1); !errors.Is(err, wlog.ErrClosed) {
			t.Errorf("a start that began before: %v", err)
		}
	})
}

// A replica that ends while its disk is full does end: its followers get an error, and it does not wait for space.
func TestReplicaEndsOnAFullDisk(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		l := c.open(0, 1)
		c.fs[2].SetSpace(0)
		large := make([]byte, 20_000)
		for range 50 {
			if _, err := l.Append(c.Context(), large, wlog.Bringing); err != nil {
				c.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if one, two := c.nodes[1].Status()[0].Last, c.nodes[2].Status()[0].Last; two >= one {
			c.Fatalf("node 2 has all %d entries: its disk is not full", two)
		}
		followed := make(chan error, 1)
		go func() {
			followed <- c.nodes[2].Follow(c.Context(), 0, func(wlog.Index, []byte, bool) error { return nil })
		}()
		impossible := message(raftpb.MsgHeartbeat, 99, 0)
		impossible.Commit = new(uint64(1 << 40))
		if err := c.nodes[2].Receive(1, 0, encode(impossible)); err != nil {
			c.Fatal(err)
		}
		time.Sleep(time.Second)
		select {
		case err := <-followed:
			if !errors.Is(err, wlog.ErrLost) {
				c.Errorf("follow: %v", err)
			}
		default:
			c.Error("it is still followed")
		}
		if err := c.nodes[2].Status()[0].Err; !errors.Is(err, wlog.ErrDamaged) {
			c.Errorf("status: %v", err)
		}
	})
}

// An owner that reaches no other node notices that after two election timeouts. Until then it delivers messages that another owner
// delivers, too.
func TestCutOffOwnerEnds(t *testing.T) {
	inTrio(t, func(c *trio) {
		const shard, tick = 1, 100 * time.Millisecond
		for round := range 20 {
			id := c.owner(shard)
			time.Sleep(5*time.Second + time.Duration(round)*53*time.Millisecond)
			c.isolate(id, true)
			began := time.Now()
			for c.nodes[id].owners.of(shard).Mine {
				time.Sleep(tick / 10)
			}
			if took := time.Since(began); took > 2*time.Second+tick/5 {
				t.Errorf("round %d: node %d owned the shard for %v", round, id, took)
			}
			c.owner(shard, id)
			c.isolate(id, false)
		}
	})
}
