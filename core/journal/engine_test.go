package journal

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/fake"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// ledger remembers what was committed in this life of a shard, and how much of
// it became durable.
type ledger struct {
	t       *testing.T
	begin   records // what there was when it began
	commits []string
	durable int
	failed  bool
}

type ledgerEntry struct {
	l *ledger
	n int
}

func (l *ledger) commit(ops string) Completer {
	l.commits = append(l.commits, ops)
	return ledgerEntry{l, len(l.commits)}
}

func (e ledgerEntry) Durable() {
	if e.l.failed || e.n != e.l.durable+1 {
		e.l.t.Errorf("commit %d became durable after %d (failed: %v)", e.n, e.l.durable, e.l.failed)
	}
	e.l.durable = e.n
}

func (e ledgerEntry) Failed(error) { e.l.failed = true }

// explains reports whether a state is that after all durable commits and perhaps
// some that followed.
func (l *ledger) explains(found records) bool {
	state := maps.Clone(l.begin)
	for n, ops := range l.commits {
		if n >= l.durable && maps.Equal(state, found) {
			return true
		}
		state.fold(ops)
	}
	return maps.Equal(state, found)
}

// Whatever the power leaves of what was not synced, the state found afterwards is
// the one after some commit, and no earlier one than the last that was durable.
func TestWhatWasDurableSurvivesLossOfPower(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { losePowerAtRandom(t, seed) })
		})
	}
}

func losePowerAtRandom(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 3))
	disk := crashfs.New(seed)
	last := &ledger{t: t, begin: records{}}
	next := 0
	for range 8 {
		w, engine, found := reopen(t, disk)
		if !last.explains(found) {
			t.Fatalf("%d records found, which no state after %d to %d commits explains", len(found), last.durable, len(last.commits))
		}
		w.next, last = next, &ledger{t: t, begin: found}
		w.ledger = last
		disk.CutPower(rng.IntN(400))
		live(w, rng)
		next = w.next
		disk = disk.LosePower()
		if err := w.s.Close(t.Context()); err == nil {
			t.Error("the shard was closed in good order without power")
		}
		_ = engine.Close() // without power, too
	}
}

// live goes on until the shard fails.
func live(w *owner, rng *rand.Rand) {
	for w.s.Err() == nil {
		w.act(rng, 60, w.s.Extent())
		w.move()
		if rng.IntN(3) == 0 {
			synctest.Wait()
		}
	}
	synctest.Wait()
}

func reopen(t *testing.T, disk vfs.FS) (*owner, *seg.Engine, records) {
	t.Helper()
	engine, err := seg.New(disk, seg.Options{SegmentSize: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	found := records{}
	w := newOwnerOf(t, engine, Options{Extent: 1000, Entry: 1000, Slack: 500})
	for id := range w.size {
		found[id] = w.ops[id]
	}
	return w, engine, found
}

// With the disk full, whoever heeds Behind leaves room for settles, and they make
// room for more.
func TestSettlesGoOnWhenTheDiskIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := crashfs.New(1)
		var w *owner
		engine, err := seg.New(disk, seg.Options{SegmentSize: 64 << 10, Events: seg.Events{Space: func(_ uint32, low *seg.Shortage) { w.s.SetLowSpace(low != nil) }}})
		if err != nil {
			t.Fatal(err)
		}
		stuck := false
		w = newOwnerOf(t, engine, Options{Extent: 16 << 10, Entry: 4 << 10, Pending: 8 << 10, Slack: 16 << 10, OnFull: func(full bool) { stuck = stuck || full }})
		for range 5 {
			disk.SetSpace(8 * 64 << 10)
			fillUp(t, w)
			for len(w.ids) > 0 {
				tn := w.settle(nil, 0)
				for range min(9, len(w.ids)) {
					w.settle(tn, 0)
				}
				w.commit(tn)
				w.move()
				synctest.Wait()
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if err := w.s.Sync(); err != nil || stuck || w.s.Stats().Low {
				t.Fatalf("after everything was settled: %v, stuck %v, %+v", err, stuck, w.s.Stats())
			}
		}
		if err := errors.Join(w.s.Close(t.Context()), engine.Close()); err != nil {
			t.Error(err)
		}
	})
}

func fillUp(t *testing.T, w *owner) {
	t.Helper()
	for range 10_000 {
		if w.s.CaughtUp() != nil {
			synctest.Wait() // for the disk alone it would catch up
		}
		if w.s.CaughtUp() != nil {
			return
		}
		w.enqueue(w.s.Extent(), 100)
	}
	t.Error("the disk never filled up")
}

func TestAnotherOwnerEndsTheShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := fake.New()
		first := newOwnerOf(t, storage.Engine(), Options{})
		first.enqueue(1, 10)
		if err := first.s.Sync(); err != nil {
			t.Fatal(err)
		}
		second := newOwnerOf(t, storage.Engine(), Options{})
		if len(second.ids) != 1 {
			t.Errorf("the second owner found %d records, want 1", len(second.ids))
		}
		<-first.s.log.Lost()
		h := &history{}
		post(first.s, h, "+7,;")
		synctest.Wait()
		if got := h.outcomes(); len(got) != 1 || !errors.Is(got[0].err, wlog.ErrLost) {
			t.Errorf("the first owner's commit: got %v", got)
		}
		second.enqueue(1, 10)
		if err := errors.Join(second.s.Sync(), second.s.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
