package meter

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand"
	"os"
	"testing"
	"time"
)

func TestZBulk(t *testing.T) {
	if os.Getenv("CAL") == "" {
		t.Skip("calibration")
	}
	den := math.Float64frombits(0x000fffffffffff00)
	rep := func(n int, b []byte) []byte {
		var o []byte
		for range n {
			o = append(o, b...)
		}
		return o
	}
	loop := func(b []byte) []byte {
		return join(opLoop, emptyBlock, b, get(1), i32(1), 0x6a, tee(1), get(0), 0x49, opBrIf, 0, opEnd)
	}
	a := assembly{
		memory:    join(1, 256, 2, 128, 2),
		functions: []function{{params: []ValueType{I32}, results: []ValueType{I32}, body: get(0)}},
		tables:    [][]byte{join(FuncRef, 1, u32(40000), u32(60000))},
		elements: [][]byte{join(1, 0, vector(func() (v [][]byte) {
			for range 30000 {
				v = append(v, u32(0))
			}
			return
		}()...))},
		exports: [][]byte{join(named("memory"), Memory, 0)}, dataCount: true, data: [][]byte{join(1, named(string(make([]byte, 100000))))},
	}
	a.memory = join(1, 0x80, 2, 0x80, 2)
	add := func(name string, b []byte) {
		a.functions = append(a.functions, function{export: name, params: []ValueType{I32}, locals: []ValueType{I32, I32, I64, F32, F64, V128}, body: b})
	}
	add("denormal mul", join(f64(den), set(5), loop(rep(32, join(get(5), f64(1.0000000001), 0xa2, set(5)))))) // stays denormal
	add("denormal add", join(f64(den), set(5), loop(rep(32, join(get(5), f64(den), 0xa1, f64(den), 0xa0, set(5))))))
	add("denormal div", join(f64(den), set(5), loop(rep(32, join(get(5), f64(1.0000000001), 0xa3, set(5))))))
	add("denormal vec mul", join(v128(0x000fffffffffff00, 0x000fffffffffff00), set(6), loop(rep(32, join(get(6), v128(math.Float64bits(1.0000001), math.Float64bits(1.0000001)), opVector, u32(0xf2), set(6))))))
	add("denormal promote", join(f32(1e-40), set(4), loop(rep(32, join(get(4), 0xbb, 0xb6, set(4))))))
	add("denormal sqrt", join(loop(rep(32, join(f64(den), 0x9f, set(5), get(5), f64(1), 0xa0, set(5))))))
	add("chase", join(loop(join(get(2), rep(32, join(0x28, 2, 0)), set(2)))))
	add("stores", join(loop(rep(32, join(get(2), i64(1), 0x37, 3, 0, get(2), i32(4096+64), 0x6a, i32(0xfffff0), 0x71, set(2))))))
	add("fill 16M", join(loop(join(i32(0), i32(1), i32(16<<20), opMisc, 11, 0))))
	add("fill 64K", join(loop(join(i32(0), i32(1), i32(1<<16), opMisc, 11, 0))))
	add("copy 8M", join(loop(join(i32(0), i32(8<<20), i32(8<<20), opMisc, 10, 0, 0))))
	add("copy 8M back", join(loop(join(i32(8), i32(0), i32(8<<20), opMisc, 10, 0, 0))))
	add("init 100k", join(loop(join(i32(0), i32(0), i32(100000), opMisc, 8, 0, 0))))
	add("table.fill", join(loop(join(i32(0), opRefNull, FuncRef, i32(40000), opMisc, 17, 0))))
	add("table.copy", join(loop(join(i32(0), i32(20000), i32(20000), opMisc, 14, 0, 0))))
	add("table.init", join(loop(join(i32(0), i32(0), i32(30000), opMisc, 12, 0, 0))))
	add("fill 0", join(loop(rep(32, join(i32(0), i32(1), i32(0), opMisc, 11, 0)))))
	add("table.fill 0", join(loop(rep(32, join(i32(0), opRefNull, FuncRef, i32(0), opMisc, 17, 0)))))
	add("table.copy 0", join(loop(rep(32, join(i32(0), i32(0), i32(0), opMisc, 14, 0, 0)))))
	add("table.init 0", join(loop(rep(32, join(i32(0), i32(0), i32(0), opMisc, 12, 0, 0)))))
	add("init 0", join(loop(rep(32, join(i32(0), i32(0), i32(0), opMisc, 8, 0, 0)))))
	add("copy 0", join(loop(rep(32, join(i32(0), i32(0), i32(0), opMisc, 10, 0, 0)))))
	add("call", join(loop(rep(32, join(get(2), opCall, 0, set(2))))))
	add("call_indirect", join(i32(0), opRefFunc, 0, 0x26, 0, loop(rep(32, join(get(2), i32(0), opCallIndirect, 0, 0, set(2))))))
	add("grow 0", join(loop(rep(32, join(i32(0), opMemoryGrow, 0, 0x1a)))))
	add("grow fail", join(loop(rep(32, join(i32(1), opMemoryGrow, 0, 0x1a)))))
	add("table.grow fail", join(loop(rep(32, join(opRefNull, FuncRef, i32(30000), opMisc, 15, 0, 0x1a)))))
	var ten []byte
	ten = rep(1000, join(get(2), opCall, 0, set(2)))
	_ = ten
	m := engines[0].load(t, metered(t, a.bytes(), Options{}))
	fuel := fuelOf(t, m)
	for i, f := range a.functions[1:] {
		_ = i
		if f.export == "chase" { // one cycle over 16 MiB, a line each
			n := 16 << 20 / 64
			p := rand.Perm(n)
			mem, _ := m.Memory().Read(0, m.Memory().Size())
			for i := range p {
				binary.LittleEndian.PutUint32(mem[p[i]*64:], uint32(p[(i+1)%n]*64))
			}
			fuel.Set(MaxFuel)
			call1(t.Context(), m, "chase", 10000)
		}
		best := time.Hour
		var used uint64
		var o outcome
		n := uint64(100)
		if f.export == "chase" || f.export == "stores" {
			n = 10000
		}
		for range 5 {
			fuel.Set(MaxFuel)
			t0 := time.Now()
			o = call1(t.Context(), m, f.export, n)
			best = min(best, time.Since(t0))
			used = MaxFuel - fuel.Get()
		}
		fmt.Printf("%-34s ns/unit %.3f  ns/iteration %.1f %s\n", f.export, float64(best.Nanoseconds())/float64(used), float64(best.Nanoseconds())/float64(n), o.trap)
	}
}
