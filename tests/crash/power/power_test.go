package power

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The environment sets how often the power goes, with each durability, and the seed of a run that is to be repeated.
const (
	lossesVariable = "POWER_LOSSES"
	seedVariable   = "POWER_SEED"
)

// runLosses is how often the power goes in a run.
const runLosses = 5

// Whatever clients do and whenever the power goes: what was confirmed is there, in one place, until it leaves for a reason that
// counts, and what has left does not come back.
func TestCampaignPowerLoss(t *testing.T) {
	for d, name := range []string{seg.Fsync: "fsync", seg.Flush: "flush"} {
		for _, shards := range []int{1, 3} {
			for _, bury := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/shards=%d,bury=%v", name, shards, bury), func(t *testing.T) {
					powerFails(t, settings{durability: seg.Durability(d), shards: shards, bury: bury})
				})
			}
		}
	}
}

// powerFails plays runs, with a quarter of the losses of power of its durability.
func powerFails(t *testing.T, s settings) {
	t.Helper()
	losses, seed, runs := campaign.Size(t, lossesVariable, 4, 40), rand.Uint64()>>32, 0
	if os.Getenv(seedVariable) != "" {
		seed, losses = campaign.Number(t, seedVariable, 0), 1
	}
	var total counts
	for ; total.PowerLosses < int(losses+3)/4; runs++ {
		r := once(t, seed+uint64(runs), s)
		total.add(&r.ledger.counts)
		if r.broken() {
			t.Fatalf("%s=%d: %s", seedVariable, r.seed, r.ledger.breaches[0])
		}
	}
	t.Logf("%s=%d and up, %d runs: %+v", seedVariable, seed, runs, total)
}

// once plays one run. What clients do and when the power goes follows from the seed. What goroutines do at one instant is up to the
// scheduler; so that it does the same again, as good as always, one processor does it, and nothing is collected meanwhile.
func once(t *testing.T, seed uint64, s settings) (r *run) {
	t.Helper()
	procs, collect := runtime.GOMAXPROCS(1), debug.SetGCPercent(-1)
	defer func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(collect)
	}()
	runtime.GC()
	synctest.Test(t, func(*testing.T) {
		r = newRun(seed, s, slog.New(slog.DiscardHandler))
		if os.Getenv(seedVariable) != "" && testing.Verbose() {
			r.told = os.Stdout
		}
		r.play(runLosses)
	})
	return r
}

// A campaign that finds nothing on a disk that forgets what was synced would find nothing at all.
func TestLossIsNoticed(t *testing.T) {
	for _, s := range []settings{
		{durability: seg.Fsync, shards: 1, liar: true},
		{durability: seg.Fsync, shards: 3, bury: true, liar: true},
		{durability: seg.Flush, shards: 1, liar: true},
	} {
		noticed := false
		for seed := uint64(1); seed < 20 && !noticed; seed++ {
			noticed = once(t, seed, s).broken()
		}
		if !noticed {
			t.Errorf("%+v: nobody noticed", s)
		}
	}
}

// The power goes while the broker starts: one log fails while another is being restored. The start waited then for a queue that was not
// started yet, to tell it of the failure, and never ended.
func TestALogFailsDuringTheStart(t *testing.T) {
	if r := once(t, 1936467870, settings{durability: seg.Flush, shards: 3}); r.broken() {
		t.Errorf("%s=%d: %s", seedVariable, r.seed, r.ledger.breaches[0])
	}
}
