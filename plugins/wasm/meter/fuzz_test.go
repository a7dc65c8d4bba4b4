package meter

import (
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
)

// FuzzRewrite feeds arbitrary bytes. A module that Rewrite accepts is valid for wazero after the rewrite if and only if it was before:
// nothing is broken, and nothing invalid becomes valid by naming the rewrite's additions. A valid module behaves the same with metering.
func FuzzRewrite(f *testing.F) {
	for _, module := range corpus() {
		if len(module) < 2000 { // large ones take long to mutate and to minimize
			f.Add(module)
		}
	}
	r := engines[1].runtime(f)
	f.Fuzz(func(t *testing.T, module []byte) {
		if len(module) > 1<<16 {
			return
		}
		checkModule(t, r, module)
	})
}

func compiles(t *testing.T, r wazero.Runtime, module []byte) error {
	t.Helper()
	m, err := r.CompileModule(t.Context(), module)
	if err != nil {
		return err
	}
	return m.Close(t.Context())
}

// corpus contains modules with all features, valid and invalid.
func corpus() [][]byte {
	var all [][]byte
	samples := slices.Concat(numericSamples(), vectorSamples(), otherSamples())
	for some := range slices.Chunk(samples, 20) {
		a, _ := everything(some, 1)
		all = append(all, a.bytes())
	}
	for seed := range uint64(5) {
		all = append(all, program(seed, false).bytes())
	}
	for _, tc := range refusals() {
		all = append(all, tc.module)
	}
	return append(all, kitchenSink().bytes())
}

// withoutCustoms drops custom sections, as the rewrite does, so that faults in them do not matter. The module must have been accepted.
func withoutCustoms(module []byte) []byte {
	out := append([]byte(nil), module[:8]...)
	r := &reader{b: module, pos: 8, end: len(module)}
	for !r.done() {
		start := r.pos
		id := r.byte()
		r.skip(int(r.u32()))
		if id != customSection {
			out = append(out, module[start:r.pos]...)
		}
	}
	return out
}
