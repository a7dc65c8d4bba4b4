package meter

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

func TestZRun(t *testing.T) {
	ctx := context.Background()
	b, _ := os.ReadFile("/tmp/meter/go.wasm")
	out, _, err := Rewrite(b, Options{Fuel: 1e18})
	if err != nil {
		t.Fatal(err)
	}
	type g struct {
		m api.Module
		f map[string]api.Function
	}
	mk := func(b []byte) g {
		r := wazero.NewRuntime(ctx)
		wasi_snapshot_preview1.MustInstantiate(ctx, r)
		m, err := r.InstantiateWithConfig(ctx, b, wazero.NewModuleConfig().WithStartFunctions("_initialize"))
		if err != nil {
			t.Fatal(err)
		}
		return g{m, map[string]api.Function{"work": m.ExportedFunction("work"), "spin": m.ExportedFunction("spin"), "deadline": m.ExportedFunction("deadline")}}
	}
	raw, met := mk(b), mk(out)
	fuel := met.m.ExportedGlobal("curfew_fuel")
	for _, c := range []struct {
		n    string
		a    []uint64
		reps int
	}{{"work", []uint64{20}, 1}, {"spin", []uint64{1000}, 10}, {"deadline", []uint64{1000, 10, 20, 3, 0, 0}, 100}} {
		mr, mm := time.Hour, time.Hour
		st := make([]uint64, 8)
		for range 60 {
			t0 := time.Now()
			for range c.reps {
				copy(st, c.a)
				raw.f[c.n].CallWithStack(ctx, st)
			}
			mr = min(mr, time.Since(t0)/time.Duration(c.reps))
			t0 = time.Now()
			for range c.reps {
				copy(st, c.a)
				met.f[c.n].CallWithStack(ctx, st)
			}
			mm = min(mm, time.Since(t0)/time.Duration(c.reps))
		}
		f0 := fuel.Get()
		met.f[c.n].Call(ctx, c.a...)
		fmt.Println(c.n, "raw", mr, "metered", mm, "fuel", f0-fuel.Get(), "ns/fuel", float64(mm)/float64(f0-fuel.Get()))
	}
}
