package journal

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

// However little space there is, and whatever waits for it: when everything has
// been settled, there is some; and nothing that was durable is lost to a loss of
// power or a kill meanwhile.
func TestCampaignAFullDiskAlwaysComesToAnEnd(t *testing.T) {
	for seed := range campaign.Size(t, "SIMULATION_SEEDS", 0, 4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fillAtRandom(t, seed) })
		})
	}
}

// fates are what is known of records.
type fates struct {
	durable map[int]bool // their enqueues
	settled map[int]bool // or about to be
}

// fate is what a commit does to records.
type fate struct {
	f   *fates
	ids []int
}

func (e fate) Durable() {
	for _, id := range e.ids {
		e.f.durable[id] = true
	}
}
func (fate) Failed(error) {}

func fillAtRandom(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 4))
	disk := crashfs.New(seed)
	disk.SetSpace(int64(1+rng.IntN(4)) << 20)
	f := &fates{map[int]bool{}, map[int]bool{}}
	next := 0
	for range 6 {
		w, engine := openFull(t, disk)
		for id := range f.durable {
			if w.size[id] == 0 && !f.settled[id] {
				t.Fatalf("record %d, which was durable, is lost", id)
			}
		}
		w.next = next
		largest := 1 << (9 + rng.IntN(9)) // bytes
		for range 3 {
			w.overfill(rng, f, largest)
			w.drain(f)
		}
		if st := w.s.Stats(); st.Full || st.Low || st.Live != 0 || st.Pending != 0 {
			t.Fatalf("after everything was settled: %+v", st)
		}
		w.overfill(rng, f, largest)
		next = w.next
		if rng.IntN(2) == 0 {
			disk = disk.LosePower()
		} else {
			disk = disk.Kill()
		}
		_ = w.s.Close(t.Context()) // they are gone
		_ = engine.Close()
	}
}

func openFull(t *testing.T, disk *crashfs.FS) (*owner, *seg.Engine) {
	t.Helper()
	var w *owner
	engine, err := seg.New(disk, seg.Options{Events: seg.Events{Space: func(_ uint32, low *seg.Shortage) {
		if w != nil && w.s != nil {
			w.s.SetLowSpace(low != nil)
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	size := engine.SegmentSize()
	w = newOwnerOf(t, engine, Options{Extent: size / 4, Slack: 2 * size, Entry: int(size / 4), Pending: size / 4, Size: wlog.EntrySize, Moves: size / 8})
	return w, engine
}

// overfill commits records until long after there is no space for them.
func (w *owner) overfill(rng *rand.Rand, f *fates, largest int) {
	for late := 0; late < 50; {
		if size := rng.IntN(largest); w.s.Grant(int64(size) + 100) {
			w.next++
			id := w.next
			tn := w.write(nil, w.s.Extent(), id, size)
			w.ids = append(w.ids, id)
			w.s.Commit([]byte(tn.ops.String()), tn.live, fate{f, []int{id}})
			w.s.Return(int64(size) + 100)
		} else {
			late++
		}
		if len(w.ids) > 0 && rng.IntN(3) == 0 {
			w.drop(f, rng.IntN(len(w.ids)))
		}
		if len(w.ids) > 3 && rng.IntN(5) == 0 {
			w.dispatch(f, rng, 1+rng.IntN(3))
		}
		if w.s.CaughtUp() != nil {
			synctest.Wait()
		}
		if w.s.CaughtUp() != nil {
			late++
		}
		if rng.IntN(10) == 0 {
			w.move()
		}
	}
}

// dispatch moves the first n records, if there is space.
func (w *owner) dispatch(f *fates, rng *rand.Rand, n int) {
	if !w.s.o.Space.Moves(w.s.o.Moves) {
		return
	}
	w.moveEach(n, func(tn *turn, in uint32) {
		f.settled[w.ids[0]] = true
		w.next++
		size := int(w.size[w.ids[0]]) - rng.IntN(10)
		w.write(w.settle(tn, 0), in, w.next, max(0, size))
		w.ids = append(w.ids, w.next)
	})
}

// drain settles everything and waits for space.
func (w *owner) drain(f *fates) {
	for len(w.ids) > 0 {
		w.drop(f, 0)
		if len(w.ids)%20 == 0 {
			time.Sleep(time.Millisecond)
			w.move()
		}
	}
	time.Sleep(5 * time.Second)
}

func (w *owner) drop(f *fates, i int) {
	f.settled[w.ids[i]] = true
	w.commit(w.settle(nil, i))
}
