package meter

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

type engine struct {
	name   string
	config func() wazero.RuntimeConfig
}

// engines are those of wazero: on platforms that it cannot compile for, both are the interpreter.
var engines = []engine{
	{"compiled", wazero.NewRuntimeConfig},
	{"interpreted", wazero.NewRuntimeConfigInterpreter},
}

func (e engine) runtime(tb testing.TB) wazero.Runtime {
	tb.Helper()
	ctx := tb.Context()
	r := wazero.NewRuntimeWithConfig(ctx, e.config().WithCoreFeatures(api.CoreFeaturesV2).WithMemoryLimitPages(256))
	tb.Cleanup(func() {
		if err := r.Close(context.WithoutCancel(ctx)); err != nil {
			tb.Error(err)
		}
	})
	return r
}

// load instantiates a module in a runtime of its own.
func (e engine) load(tb testing.TB, module []byte) api.Module {
	tb.Helper()
	m, err := e.runtime(tb).InstantiateWithConfig(tb.Context(), module, wazero.NewModuleConfig().WithName(""))
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// metered rewrites a module that must be accepted.
func metered(tb testing.TB, module []byte, o Options) []byte {
	tb.Helper()
	out, _, err := Rewrite(module, o)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// fuelOf returns the exported fuel of an instance.
func fuelOf(tb testing.TB, m api.Module) api.MutableGlobal {
	tb.Helper()
	fuel, ok := m.ExportedGlobal(DefaultGlobal).(api.MutableGlobal)
	if !ok {
		tb.Fatalf("%s is not exported as a mutable global", DefaultGlobal)
	}
	return fuel
}

// outcome is the end of a call: results, or the first line of a trap.
type outcome struct {
	results []uint64
	trap    string
}

func call1(ctx context.Context, m api.Module, name string, args ...uint64) outcome {
	f := m.ExportedFunction(name)
	results, err := f.Call(ctx, args...)
	if err != nil {
		trap, _, _ := strings.Cut(err.Error(), "\n")
		return outcome{trap: trap}
	}
	for i, typ := range f.Definition().ResultTypes() {
		results[i] = canonical(typ, results[i])
	}
	return outcome{results: results}
}

// canonical makes all NaNs one: their bits are the only thing that WebAssembly leaves open.
func canonical(typ api.ValueType, v uint64) uint64 {
	switch {
	case typ == api.ValueTypeF32 && math.IsNaN(float64(api.DecodeF32(v))):
		return uint64(math.Float32bits(float32(math.NaN())))
	case typ == api.ValueTypeF64 && math.IsNaN(api.DecodeF64(v)):
		return math.Float64bits(math.NaN())
	}
	return v
}

// trial is an original module together with one or more metered versions.
type trial struct {
	raw     api.Module
	metered []api.Module
}

func newTrial(tb testing.TB, e engine, module []byte, ways ...Options) trial {
	tb.Helper()
	all := trial{raw: e.load(tb, module)}
	for _, o := range ways {
		o.Fuel = MaxFuel
		all.metered = append(all.metered, e.load(tb, metered(tb, module, o)))
	}
	return all
}

// same calls a function of all, fails unless they end in the same way and with the same memory,
// and returns the fuel that each metered one used.
func (tr trial) same(tb testing.TB, name string, args ...uint64) []int64 {
	tb.Helper()
	want := call1(tb.Context(), tr.raw, name, args...)
	var fuel []int64
	for _, m := range tr.metered {
		left := fuelOf(tb, m)
		left.Set(MaxFuel)
		got := call1(tb.Context(), m, name, args...)
		if got.trap != want.trap || !slices.Equal(got.results, want.results) {
			tb.Errorf("%s: metered %x %s, unmetered %x %s", name, got.results, got.trap, want.results, want.trap)
		}
		if !bytes.Equal(contents(m), contents(tr.raw)) {
			tb.Errorf("%s: memories differ", name)
		}
		used := int64(MaxFuel - left.Get())
		if used <= 0 {
			tb.Errorf("%s: used %d fuel", name, used)
		}
		fuel = append(fuel, used)
	}
	return fuel
}

func contents(m api.Module) []byte {
	if m.Memory() == nil {
		return nil
	}
	b, _ := m.Memory().Read(0, m.Memory().Size())
	return b
}
