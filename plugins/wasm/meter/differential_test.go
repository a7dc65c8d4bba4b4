package meter

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero/api"
)

// For more programs: go test -run TestPrograms -programs 5000 -first 1000.
var (
	programs = flag.Uint64("programs", 40, "how many random programs TestPrograms tries")
	first    = flag.Uint64("first", 0, "seed of the first of them")
)

// A random program has the same results with metering. If every class has its own charge, it pays exactly for the executed instructions; by
// default it pays for little more. Both engines agree.
func TestPrograms(t *testing.T) {
	for seed := *first; seed < *first+*programs; seed++ {
		checkProgram(t, program(seed, false), program(seed, true))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// checkProgram calls every function of a program with small arguments. counted is the same program, which also counts the instructions
// that it executes.
func checkProgram(t *testing.T, a, counted assembly) {
	t.Helper()
	module := a.bytes()
	counting := engines[1].load(t, counted.bytes())
	var trials []trial
	for _, e := range engines {
		trials = append(trials, newTrial(t, e, module, Options{}, Options{exact: true}))
	}
	r := rand.New(rand.NewPCG(uint64(len(module)), 8))
	for _, f := range a.functions {
		if f.export == "" {
			continue
		}
		args := make([]uint64, len(f.params))
		for i := range args {
			args[i] = r.Uint64N(100)
		}
		checkCall(t, counting, trials, f.export, args)
	}
}

// checkCall calls a function in all instances. A call that traps pays for the instructions up to the next charge point, too.
func checkCall(t *testing.T, counting api.Module, trials []trial, name string, args []uint64) {
	t.Helper()
	count := counting.ExportedGlobal("count")
	before := count.Get()
	trapped := call1(t.Context(), counting, name, args...).trap != ""
	executed := int64(count.Get() - before)
	fuel := trials[0].same(t, name, args...)
	folded, exact := fuel[0], fuel[1]
	if exact < executed || exact > executed && !trapped {
		t.Errorf("%s: %d units are charged exactly, %d executed", name, exact, executed)
	}
	if folded < exact || folded > 5*exact {
		t.Errorf("%s: %d units are charged, %d executed", name, folded, exact)
	}
	if other := trials[1].same(t, name, args...); !slices.Equal(other, fuel) {
		t.Errorf("%s: %d units when %s, %d when %s", name, fuel, engines[0].name, other, engines[1].name)
	}
}
