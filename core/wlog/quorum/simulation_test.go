package quorum

import (
	"runtime"
	"runtime/debug"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/campaign"
)

const gameSteps = 4000

// game plays a game in a bubble, where the local log's goroutines end before it does.
func game(t *testing.T, seed uint64, f fault, counts map[string]int) (why string) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed) // Raft's election timeouts
	synctest.Test(t, func(*testing.T) { why = play(seed, gameSteps, f, counts) })
	return why
}

// TestCampaignSimulation plays clusters whose nodes lose power, are killed and are replaced, with disks that are slow, full and broken,
// clocks that are seconds apart, and shards that are transferred, on a network that loses, repeats and reorders messages and is cut. No
// acknowledged entry is lost, no two nodes apply different entries, no term has two leaders, no read misses an entry that was acknowledged
// before it, no owner's time is ahead, or late without a reason, and all nodes agree in the end. SIMULATION_SEEDS is the number of games,
// SIMULATION_SEED the first one.
func TestCampaignSimulation(t *testing.T) {
	// A game runs one goroutine after another, so it is fastest with one processor and less garbage collection.
	procs, collect := runtime.GOMAXPROCS(1), debug.SetGCPercent(1000)
	defer func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(collect)
	}()
	counts := map[string]int{}
	from, games := campaign.Number(t, "SIMULATION_SEED", 1), campaign.Size(t, "SIMULATION_SEEDS", 0, 500)
	for seed := from; seed < from+games; seed++ {
		if why := game(t, seed, noFault, counts); why != "" {
			t.Errorf("%s: repeat with SIMULATION_SEED=%d SIMULATION_SEEDS=1", why, seed)
		}
	}
	t.Logf("%d games: %v", games, counts)
}

// TestSimulationFindsFaults builds faults in, which the simulation must find: otherwise it would not find others either.
func TestSimulationFindsFaults(t *testing.T) {
	if fewer > 1 {
		t.Skip("one goroutine plays: the race detector has nothing to see")
	}
	for name, f := range map[string]struct {
		fault fault
		from  uint64 // a recent first game that finds the fault; games before it make the test slower
	}{
		"answers early": {answersEarly, 1}, "forgets votes": {forgetsVotes, 110}, "stays silent": {staysSilent, 4}, "loses disk": {losesDisk, 3},
		"reads alone": {readsAlone, 15}, "own clock": {usesOwnClock, 2}, "repeats writes": {repeatsWrites, 30}, "forgets time": {forgetsTime, 2},
		"tells nothing": {tellsNothing, 347},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := f.from; seed < f.from+1000; seed++ {
				if why := game(t, seed, f.fault, map[string]int{}); why != "" {
					t.Logf("game %d: %s", seed, why)
					return
				}
			}
			t.Error("not found")
		})
	}
}
