package seg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/wlogtest"
)

// TestCampaignCrash appends and trims until something fails or the power goes, opens the shard again and looks for the acknowledged
// entries; again and again. SIMULATION_SEEDS is the number of random runs, SIMULATION_SEED the first one.
func TestCampaignCrash(t *testing.T) {
	first, seeds := campaign.Number(t, "SIMULATION_SEED", 0), campaign.Size(t, "SIMULATION_SEEDS", 0, 150)
	for _, durability := range []Durability{Fsync, Flush} {
		for seed := first; seed < first+seeds; seed++ {
			synctest.Test(t, func(t *testing.T) {
				defer func() {
					if t.Failed() {
						t.Logf("durability %d: repeat with SIMULATION_SEED=%d SIMULATION_SEEDS=1", durability, seed)
					}
				}()
				newCrasher(t, seed, durability).run()
			})
		}
	}
}

// crasher is a run of TestCampaignCrash.
type crasher struct {
	*testing.T
	options Options
	rng     *rand.Rand
	fs      *crashfs.FS
	dark    bool // the power is cut in this session
	model   wlogtest.Model
}

func newCrasher(t *testing.T, seed uint64, d Durability) *crasher {
	t.Helper()
	c := &crasher{T: t, rng: rand.New(rand.NewPCG(seed, 1)), fs: crashfs.New(seed)}
	c.options = Options{Durability: d, SegmentSize: 16 << 10 << c.rng.IntN(3), first: minSegment}
	c.options.inline = c.rng.IntN(4) > 0
	return c
}

func (c *crasher) run() {
	for range 3 + c.rng.IntN(5) {
		c.fault()
		err := c.session()
		if err != nil && !injected(err) {
			c.Fatalf("%v", err)
		}
		c.fs.Inject(nil)
		c.fs.SetSpace(1 << 40)
		c.interrupt()
		c.verify()
	}
	if err := c.session(); err != nil {
		c.Fatalf("last session: %v", err)
	}
}

// fault chooses the failure of the next session, if any.
func (c *crasher) fault() {
	c.dark = false
	switch c.rng.IntN(4) {
	case 0:
	case 1:
		c.dark = true
		c.fs.CutPower(c.rng.IntN(300))
	case 2:
		kinds := []crashfs.OpKind{
			crashfs.OpCreate, crashfs.OpWrite, crashfs.OpAllocate, crashfs.OpSync, crashfs.OpSyncDir, crashfs.OpRename, crashfs.OpRemove, crashfs.OpRead,
		}
		kind := kinds[c.rng.IntN(len(kinds))]
		c.fs.FailNth(kind, c.rng.IntN(min(200, c.fs.Count(kind)+5)))
	case 3:
		c.fs.SetSpace(c.rng.Int64N(10 * c.options.SegmentSize))
	}
}

// injected reports whether an error was to be expected.
func injected(err error) bool {
	return errors.Is(err, crashfs.ErrInjected) || errors.Is(err, crashfs.ErrPower) || errors.Is(err, wlog.ErrFull)
}

// interrupt ends the process that has the files open, in some way.
func (c *crasher) interrupt() {
	switch n := c.rng.IntN(3); {
	case n == 0 || c.dark:
		if c.options.Durability == Flush {
			c.model.MayLose()
		}
		c.fs = c.fs.LosePower()
	case n == 1:
		c.fs = c.fs.Kill()
	}
}

// verify checks that the failures left no damage.
func (c *crasher) verify() {
	c.Helper()
	reports, err := Verify(c.Context(), c.fs)
	if err != nil {
		c.Fatalf("Verify: %v", err)
	}
	for _, r := range reports {
		for _, d := range r.Damage {
			c.Fatalf("Verify: %v", d)
		}
	}
}

// session is the life of a process.
func (c *crasher) session() (err error) {
	e, err := New(c.fs, c.options)
	if err != nil {
		return err
	}
	defer func() {
		if closing := e.Close(); err == nil {
			err = closing
		}
	}()
	r := c.model.Replay()
	l, err := e.Open(context.WithoutCancel(c.Context()), 5, r.Entry)
	if err != nil {
		return err
	}
	if err := r.Done(); err != nil {
		return err
	}
	for range c.rng.IntN(200) {
		if err := c.step(l); err != nil {
			return err
		}
	}
	return nil
}

func (c *crasher) step(l wlog.Log) error {
	if c.model.Len() > 0 && c.rng.IntN(15) == 0 {
		before := c.model.At(c.rng.IntN(c.model.Len()))
		c.model.Trimmed(before)
		return l.Trim(before)
	}
	size := c.size()
	at, err := l.Append(c.Context(), c.model.Next(size), wlog.Purpose(c.rng.IntN(3)))
	if errors.Is(err, wlog.ErrFull) {
		c.model.Refused()
		return c.makeRoom(l)
	}
	if odd := c.model.Appended(at, size, err); odd != nil {
		return odd
	}
	return err
}

func (c *crasher) size() int {
	switch n := c.rng.IntN(40); {
	case n < 25:
		return c.rng.IntN(200)
	case n < 39:
		return c.rng.IntN(3000)
	default:
		return c.rng.IntN(50_000)
	}
}

// makeRoom acts like a broker without space: it waits for some, or continues with the space that it has.
func (c *crasher) makeRoom(l wlog.Log) error {
	select {
	case <-l.Lost():
		return fmt.Errorf("lost without space: %w", wlog.ErrLost)
	default:
	}
	if c.rng.IntN(3) == 0 {
		c.fs.SetSpace(c.rng.Int64N(10 * c.options.SegmentSize))
	}
	if c.rng.IntN(3) == 0 {
		time.Sleep(2 * retryAfter)
	}
	return nil
}
