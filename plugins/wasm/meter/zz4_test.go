package meter

import (
	"fmt"
	"os"
	"sort"
	"testing"
	"time"
)

func TestZCal(t *testing.T) {
	if os.Getenv("CAL") == "" {
		t.Skip("calibration")
	}
	vals := map[rune][]byte{'i': i32(7), 'l': i64(7), 'f': f32(1.5), 'd': f64(1.5), 'v': v128(0x3ff8000000000000, 0x3ff8000000000000)}
	loc := map[rune]int{'i': 2, 'l': 3, 'f': 4, 'd': 5, 'v': 6}
	sink := map[rune][]byte{'i': join(0x73), 'l': join(0x85), 'f': join(0x92), 'd': join(0xa0), 'v': join(opVector, 0x51)}
	a := assembly{
		memory:    join(1, 1, 3),
		functions: []function{{params: []ValueType{I32}, results: []ValueType{I32}, body: join(get(0), i32(3), 0x6c)}},
		tables:    [][]byte{join(FuncRef, 1, u32(4), u32(10)), join(ExternRef, 1, u32(2), u32(10))},
		globals:   [][]byte{join(I64, 1, i64(42), opEnd)},
		elements:  [][]byte{join(0, i32(0), opEnd, vector(u32(0), u32(0))), join(1, 0, vector(u32(0), u32(0)))},
		data:      [][]byte{join(1, named("passive"))}, dataCount: true,
	}
	var names []string
	samples := append(append(numericSamples(), vectorSamples()...), otherSamples()...)
	for _, s := range samples {
		f := function{export: s.name, params: []ValueType{I32}, locals: []ValueType{I32, I32, I64, F32, F64, V128}}
		var one []byte
		chain := s.out != "" && s.in != "" && s.in[0] == s.out[0]
		for i, l := range s.in {
			if i == 0 && chain {
				one = append(one, get(loc[l])...)
			} else {
				one = append(one, vals[l]...)
			}
		}
		one = append(one, s.code...)
		if s.name == "return" {
			continue
		}
		if s.out != "" {
			l := rune(s.out[0])
			if !chain {
				one = join(one, get(loc[l]), sink[l])
			}
			one = join(one, set(loc[l]))
		}
		var body []byte
		for l, v := range vals {
			body = join(body, v, set(loc[l]))
		}
		body = join(body, opLoop, emptyBlock)
		for range 32 {
			body = append(body, one...)
		}
		f.body = join(body, get(1), i32(1), 0x6a, tee(1), get(0), 0x49, opBrIf, 0, opEnd)
		a.functions = append(a.functions, f)
		names = append(names, s.name)
	}
	m := engines[0].load(t, metered(t, a.bytes(), Options{}))
	fuel := fuelOf(t, m)
	type res struct {
		n       string
		per, ns float64
		trap    string
	}
	var rs []res
	for _, n := range names {
		best := time.Hour
		var used uint64
		var o outcome
		fuel.Set(MaxFuel)
		call1(t.Context(), m, n, 10)
		for range 15 {
			fuel.Set(MaxFuel)
			t0 := time.Now()
			o = call1(t.Context(), m, n, 200)
			best = min(best, time.Since(t0))
			used = MaxFuel - fuel.Get()
		}
		rs = append(rs, res{n, float64(best.Nanoseconds()) / float64(used), float64(best.Nanoseconds()) / 6400, o.trap})
	}
	sort.Slice(rs, func(i, j int) bool { return rs[i].per > rs[j].per })
	for i, r := range rs {
		if i < 110 || r.trap != "" {
			fmt.Printf("%-34s ns/unit %.3f  ns/op %.1f %s\n", r.n, r.per, r.ns, r.trap)
		}
	}
	fmt.Println("median", rs[len(rs)/2].per)
}
