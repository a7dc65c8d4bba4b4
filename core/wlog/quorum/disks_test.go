package quorum

import (
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

// An owner whose disk does not answer continues with the majority of the other nodes for a while, and then gives its shards away. Entries
// that it has confirmed without its own disk are there afterwards. It used to confirm no entry until then.
func TestStalledDisk(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		l := c.open(0, 1)
		c.write(l, 1, 20)
		time.Sleep(time.Second) // no write is in progress, so the next one is the first to wait
		var stalled sync.Mutex
		slow := make(chan struct{})
		answer := sync.OnceFunc(func() { close(slow) })
		defer answer()
		c.fs[1].Inject(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpSync {
				stalled.Lock()
				defer stalled.Unlock()
				<-slow
			}
			return nil
		})
		began := time.Now()
		for n := uint64(21); n <= 60; n++ { // the other nodes have it
			at := time.Now()
			if err := <-appendAsync(c, l, n); err != nil || time.Since(at) > time.Second {
				t.Fatalf("append: %v after %v", err, time.Since(at))
			}
			time.Sleep(100 * time.Millisecond)
		}
		<-l.Lost()
		if err := <-appendAsync(c, l, 61); !errors.Is(err, wlog.ErrLost) {
			t.Errorf("append: %v", err)
		}
		if d := time.Since(began); d < 5*time.Second || d > 8*time.Second {
			t.Errorf("it gave the shard away after %v", d)
		}
		if got := c.owner(0); got == 1 {
			t.Error("it owns the shard again")
		}
		there := map[uint64]bool{}
		next, err := c.nodes[c.owner(0)].Open(c.Context(), 0, func(_ wlog.Index, entry []byte) error {
			there[binary.LittleEndian.Uint64(entry)] = true
			return nil
		})
		if err != nil || len(there) != 60 {
			t.Fatalf("the next owner has %d of 60 entries: %v", len(there), err)
		}
		c.write(next, 62, 70)
		time.Sleep(20 * time.Second)
		if got := c.owner(0); got == 1 {
			t.Error("it owns the shard again")
		}
		answer()
	})
}

// An append that waits for space because the disk does not answer must not keep the owner from giving the shard away, nor its user from
// closing the log.
func TestStalledDiskWhileSpaceIsMade(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		l := c.open(0, 1)
		c.write(l, 1, 20)
		time.Sleep(time.Second)
		slow := make(chan struct{})
		c.fs[1].Inject(func(op crashfs.Op) error {
			<-slow // any operation: the next segment cannot be made either
			return nil
		})
		large := make([]byte, 1<<20) // does not fit into the segment
		done := make(chan error, 1)
		began := time.Now()
		go func() {
			for {
				if _, err := l.Append(t.Context(), large, wlog.Bringing); err != nil {
					done <- err
					return
				}
			}
		}()
		if err := <-done; !errors.Is(err, wlog.ErrLost) {
			t.Errorf("append: %v", err)
		}
		if d := time.Since(began); d < 5*time.Second || d > 8*time.Second {
			t.Errorf("it gave the shard away after %v", d)
		}
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if got := c.owner(0); got == 1 {
			t.Error("it owns the shard again")
		}
		close(slow)
	})
}

// An engine whose disk does not answer ends nevertheless, and says so.
func TestCloseOfAStalledDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys, slow := crashfs.New(1), make(chan struct{})
		e, err := New(Options{
			Local: local(t, fsys), Node: 1, Voters: []wlog.NodeID{1}, Shards: 1, Election: time.Second, Clock: ownClock(),
			Send: func(wlog.NodeID, Message) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := e.Open(t.Context(), 0, func(wlog.Index, []byte) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		fsys.Inject(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpSync {
				<-slow
			}
			return nil
		})
		appended := make(chan error, 1)
		go func() {
			_, err := l.Append(t.Context(), []byte("x"), wlog.Bringing)
			appended <- err
		}()
		time.Sleep(time.Minute) // no other node can own the shard
		began := time.Now()
		if err := e.Close(); !errors.Is(err, errStuck) {
			t.Errorf("close: %v", err)
		}
		if d := time.Since(began); d > 6*time.Second {
			t.Errorf("it took %v", d)
		}
		if err := <-appended; !errors.Is(err, wlog.ErrLost) {
			t.Errorf("append: %v", err)
		}
		close(slow)
		synctest.Wait()
		if err := e.options.Local.Close(); err != nil {
			t.Errorf("the disk answers again: %v", err)
		}
	})
}

// A replica whose disk fails ends, says so, and makes another node take over at once. The node's other shards continue.
func TestFailedDisk(t *testing.T) {
	for name, kind := range map[string]crashfs.OpKind{"write": crashfs.OpWrite, "sync": crashfs.OpSync} {
		t.Run(name, func(t *testing.T) {
			inTrio(t, func(c *trio) {
				c.owner(0)
				l := c.open(0, 1)
				c.write(l, 1, 20)
				time.Sleep(150 * time.Millisecond) // the other nodes have all entries, and have confirmed them
				var failed bool
				c.fs[1].Inject(func(op crashfs.Op) error {
					if op.Kind == kind && !failed {
						failed = true
						return errors.New("input/output error")
					}
					return nil
				})
				began := time.Now()
				if err := <-appendAsync(c, l, 21); !errors.Is(err, wlog.ErrLost) {
					t.Errorf("append: %v", err)
				}
				owner := c.owner(0, 1)
				if d := time.Since(began); d > 600*time.Millisecond {
					t.Errorf("another owns it after %v", d)
				}
				c.write(c.open(0, owner), 22, 30)
				st := c.nodes[1].Status()
				if st[0].Role != Stopped || st[0].Err == nil || st[1].Role == Stopped || st[2].Role == Stopped {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

// An owner opens the shard again in the same term, while its own disk still lacks entries that were confirmed to it. It must replay these
// entries, and must not take them for new appends of its own.
func TestOpenedAgainOverAStalledDisk(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		l := c.open(0, 1)
		c.write(l, 1, 20)
		time.Sleep(time.Second)
		slow := make(chan struct{})
		answer := sync.OnceFunc(func() { close(slow) })
		defer answer()
		c.fs[1].Inject(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpSync {
				<-slow
			}
			return nil
		})
		for n := uint64(21); n <= 25; n++ {
			if err := <-appendAsync(c, l, n); err != nil {
				t.Fatalf("append: %v", err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, answer)
		there := map[uint64]bool{}
		again, err := c.nodes[1].Open(c.Context(), 0, func(_ wlog.Index, entry []byte) error {
			there[binary.LittleEndian.Uint64(entry)] = true
			return nil
		})
		if err != nil || len(there) != 25 {
			t.Fatalf("there are %d of 25 entries: %v", len(there), err)
		}
		c.write(again, 26, 30)
	})
}
