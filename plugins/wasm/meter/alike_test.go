package meter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// FuzzMeter draws programs from bytes. Unedited programs behave the same with and without metering and pay for all executed instructions, in
// both engines. With edits, three bytes each that give position and value, programs may be invalid or endless; if they are valid, they
// behave the same for as long as their fuel lasts.
func FuzzMeter(f *testing.F) {
	for seed := range uint8(8) {
		f.Add(bytes.Repeat([]byte{seed * 31, 255 - seed, 17}, 30), []byte(nil))
		f.Add([]byte{seed}, []byte{seed * 7, 1, 0x6a, 255 - seed, 0, opReturn})
	}
	r := engines[1].runtime(f)
	f.Fuzz(func(t *testing.T, drawing, edits []byte) {
		if len(drawing) > 1<<10 || len(edits) > 3<<5 {
			return
		}
		a := drawn(newDrawing(drawing), false)
		module := a.bytes()
		if _, _, err := Rewrite(module, Options{}); err != nil {
			checkRefusal(t, module, err)
			return
		}
		if len(edits) < 3 {
			checkProgram(t, a, drawn(newDrawing(drawing), true))
			return
		}
		for e := range slices.Chunk(edits, 3) {
			if len(e) == 3 {
				module[int(binary.LittleEndian.Uint16(e))%len(module)] = e[2]
			}
		}
		checkModule(t, r, module)
	})
}

// checkRefusal requires that a valid module is refused only because of its size.
func checkRefusal(t *testing.T, module []byte, err error) {
	t.Helper()
	if !strings.Contains(err.Error(), "too complex to compile") {
		t.Fatalf("a program of %d bytes is refused: %v", len(module), err)
	}
}

// drawing is a source of choices that are bytes at first, so that a fuzzer that changes one changes one
// choice, and random afterwards.
type drawing struct {
	bytes  []byte
	random *rand.PCG
}

func newDrawing(b []byte) *drawing { return &drawing{b, rand.NewPCG(uint64(len(b)), 9)} }

// Uint64 implements [rand.Source]. A byte is in the highest bits and in the lowest: which ones count depends on
// how many choices there are.
func (d *drawing) Uint64() uint64 {
	n := d.random.Uint64()
	if len(d.bytes) == 0 {
		return n
	}
	b := uint64(d.bytes[0])
	d.bytes = d.bytes[1:]
	return n<<8>>16<<8 | b<<56 | b
}

// checkModule rewrites arbitrary bytes. An accepted module is valid in r if and only if it was before the rewrite, and then behaves
// the same.
func checkModule(t *testing.T, r wazero.Runtime, module []byte) {
	t.Helper()
	out, info, err := Rewrite(module, Options{})
	if err != nil {
		if e := (*Error)(nil); errors.As(err, &e) && (e.Offset < 0 || e.Offset > len(module)) {
			t.Fatalf("error at offset %d of %d bytes", e.Offset, len(module))
		}
		return
	}
	plain := withoutCustoms(module)
	before, after := compiles(t, r, plain), compiles(t, r, out)
	if (before == nil) != (after == nil) {
		t.Fatalf("before the rewrite: %v; after: %v", before, after)
	}
	if before == nil && len(info.Imports) == 0 {
		checkAlike(t, plain, info)
	}
}

const (
	// enough is the fuel of a call in checkAlike. It also bounds the call of the unmetered program.
	enough = 50_000
	// calls is how many functions checkAlike calls. All of them cannot make a table so large that the limit
	// on its size makes a difference.
	calls  = 8
	tables = 65536 + calls*enough
)

// checkAlike calls the functions of a valid module without imports, as long as none runs out of fuel. It does so
// in the interpreter, where even the bits of a NaN and the depth of calls are the same.
func checkAlike(t *testing.T, module []byte, info Info) {
	t.Helper()
	o := Options{Fuel: enough, TableElements: tables}
	ample, err := instance(t.Context(), engines[1].runtime(t), metered(t, module, o))
	if err != nil {
		return // it would not start, or used up its fuel at that
	}
	scant, err := instance(t.Context(), engines[1].runtime(t), metered(t, module, o))
	if err != nil {
		t.Fatalf("instantiated once, and then not: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // in case the fuel does not bound it
	defer cancel()
	raw, err := instance(ctx, stoppable(t), module)
	if err != nil {
		t.Fatalf("metered it starts, unmetered: %v", err)
	}
	for i, name := range callable(info) {
		if !callAlike(ctx, t, raw, ample, scant, name, i == 0) {
			return
		}
	}
}

// stoppable is a runtime in which calls end when their context does.
func stoppable(t *testing.T) wazero.Runtime {
	t.Helper()
	config := engines[1].config().WithCoreFeatures(api.CoreFeaturesV2).WithMemoryLimitPages(256).WithCloseOnContextDone(true)
	r := wazero.NewRuntimeWithConfig(t.Context(), config)
	t.Cleanup(func() { _ = r.Close(context.WithoutCancel(t.Context())) }) // its context may have stopped it before
	return r
}

func instance(ctx context.Context, r wazero.Runtime, module []byte) (api.Module, error) {
	return r.InstantiateWithConfig(ctx, module, wazero.NewModuleConfig().WithName(""))
}

// callable are functions that can be called from outside: by their exports, without vectors and references.
func callable(info Info) []string {
	var names []string
	for _, e := range info.Exports {
		odd := func(v ValueType) bool { return v < F64 }
		ok := e.Type.Kind == Func && !slices.ContainsFunc(slices.Concat(e.Type.Params, e.Type.Results), odd)
		if ok && len(names) < calls {
			names = append(names, e.Name)
		}
	}
	return names
}

// callAlike calls a function with ample fuel, with exactly the fuel it needs, and without metering, and reports whether to continue. The first
// time it also tries one unit too few.
func callAlike(ctx context.Context, t *testing.T, raw, ample, scant api.Module, name string, first bool) bool {
	t.Helper()
	args := make([]uint64, len(raw.ExportedFunction(name).Definition().ParamTypes()))
	for i := range args {
		args[i] = uint64(i * 5)
	}
	left := fuelOf(t, ample)
	left.Set(enough)
	got := call1(ctx, ample, name, args...)
	used := enough - int64(left.Get())
	if used > enough {
		return false
	}
	want := call1(ctx, raw, name, args...)
	if got.trap != want.trap || !slices.Equal(got.results, want.results) || !bytes.Equal(contents(ample), contents(raw)) {
		t.Errorf("%s: metered %x %s, unmetered %x %s, same memory: %t", name, got.results, got.trap, want.results, want.trap,
			bytes.Equal(contents(ample), contents(raw)))
	}
	if first {
		checkScant(ctx, t, scant, name, args, used, want)
	}
	return !t.Failed()
}

// checkScant calls a function with one unit of fuel less than it needs, which stops it, or with exactly as much, which does not. One
// call cannot test both, because a stopped instance cannot be used again.
func checkScant(ctx context.Context, t *testing.T, m api.Module, name string, args []uint64, used int64, want outcome) {
	t.Helper()
	left := fuelOf(t, m)
	tooFew := used%2 == 1
	if tooFew {
		left.Set(uint64(used - 1))
	} else {
		left.Set(uint64(used))
	}
	got := call1(ctx, m, name, args...)
	stopped := int64(left.Get()) < 0
	if stopped != tooFew || !stopped && got.trap != want.trap {
		t.Errorf("%s: used %d, with too few of them: %t, stopped: %t, %s", name, used, tooFew, stopped, got.trap)
	}
}
