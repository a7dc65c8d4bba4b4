package meter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// sample is an instruction with its operand and result types, one letter each: i and l integers of 32 and 64 bits, f and d floating point, v a
// vector.
type sample struct {
	name    string
	code    []byte // opcode and immediates
	in, out string
}

// numericSamples are all instructions of one byte on numbers, loads and stores.
func numericSamples() []sample {
	var all []sample
	for _, g := range []struct {
		from, to int
		in, out  string
	}{
		{0x45, 0x45, "i", "i"},
		{0x46, 0x4f, "ii", "i"},
		{0x50, 0x50, "l", "i"},
		{0x51, 0x5a, "ll", "i"},
		{0x5b, 0x60, "ff", "i"},
		{0x61, 0x66, "dd", "i"},
		{0x67, 0x69, "i", "i"},
		{0x6a, 0x78, "ii", "i"},
		{0x79, 0x7b, "l", "l"},
		{0x7c, 0x8a, "ll", "l"},
		{0x8b, 0x91, "f", "f"},
		{0x92, 0x98, "ff", "f"},
		{0x99, 0x9f, "d", "d"},
		{0xa0, 0xa6, "dd", "d"},
		{0xa7, 0xa7, "l", "i"},
		{0xa8, 0xa9, "f", "i"},
		{0xaa, 0xab, "d", "i"},
		{0xac, 0xad, "i", "l"},
		{0xae, 0xaf, "f", "l"},
		{0xb0, 0xb1, "d", "l"},
		{0xb2, 0xb3, "i", "f"},
		{0xb4, 0xb5, "l", "f"},
		{0xb6, 0xb6, "d", "f"},
		{0xb7, 0xb8, "i", "d"},
		{0xb9, 0xba, "l", "d"},
		{0xbb, 0xbb, "f", "d"},
		{0xbc, 0xbc, "f", "i"},
		{0xbd, 0xbd, "d", "l"},
		{0xbe, 0xbe, "i", "f"},
		{0xbf, 0xbf, "l", "d"},
		{0xc0, 0xc1, "i", "i"},
		{0xc2, 0xc4, "l", "l"},
	} {
		for op := g.from; op <= g.to; op++ {
			all = append(all, sample{fmt.Sprintf("%#02x", op), join(op), g.in, g.out})
		}
	}
	for i, types := range []string{ // loads from 0x28, then stores
		"i i", "i l", "i f", "i d", "i i", "i i", "i i", "i i", "i l", "i l", "i l", "i l", "i l", "i l",
		"ii ", "il ", "if ", "id ", "ii ", "ii ", "il ", "il ", "il ",
	} {
		in, out, _ := strings.Cut(types, " ")
		all = append(all, sample{fmt.Sprintf("%#02x", 0x28+i), join(0x28+i, 0, u32(300)), in, out})
	}
	return all
}

// otherSamples are saturating conversions, parametric instructions, references, and what
// bulk memory and reference types brought, on the module of TestEveryInstruction.
func otherSamples() []sample {
	var all []sample
	for op, types := range []string{"fi", "fi", "di", "di", "fl", "fl", "dl", "dl"} {
		all = append(all, sample{fmt.Sprintf("0xfc %d", op), join(opMisc, op), types[:1], types[1:]})
	}
	return append(all,
		sample{"drop", join(0x1a), "i", ""},
		sample{"select", join(0x1b), "iii", "i"},
		sample{"select (f64)", join(opSelectTyped, 1, F64), "ddi", "d"},
		sample{"select (v128)", join(opSelectTyped, 1, V128), "vvi", "v"},
		sample{"nop", join(opNop), "", ""},
		sample{"f32.const", f32(1.5), "", "f"},
		sample{"f64.const", f64(-1.5), "", "d"},
		sample{"i64.const", i64(-1 << 62), "", "l"},
		sample{"global.get and set", join(opGlobalGet, 0, opGlobalSet, 0), "", ""},
		sample{"memory.size", join(0x3f, 0), "", "i"},
		sample{"memory.grow", join(opMemoryGrow, 0), "i", "i"},
		sample{"memory.init", join(i32(1), i32(2), opMisc, 8, 0, 0), "i", ""},
		sample{"data.drop", join(opMisc, 9, 0), "", ""},
		sample{"memory.copy", join(i32(9), i32(5), opMisc, 10, 0, 0), "i", ""},
		sample{"memory.fill", join(i32(9), opMisc, 11, 0), "ii", ""},
		sample{"table.init", join(i32(0), i32(1), opMisc, 12, 1, 0), "i", ""},
		sample{"elem.drop", join(opMisc, 13, 1), "", ""},
		sample{"table.copy", join(i32(0), i32(1), opMisc, 14, 0, 0), "i", ""},
		sample{"table.grow", join(0x1a, opRefFunc, 0, i32(2), opMisc, 15, 0), "i", "i"},
		sample{"table.size", join(opMisc, 16, 1), "", "i"},
		sample{"table.fill", join(opRefNull, ExternRef, i32(1), opMisc, 17, 1), "i", ""},
		sample{"table.get, ref.is_null", join(0x25, 0, 0xd1), "i", "i"},
		sample{"table.set", join(opRefNull, FuncRef, 0x26, 0), "i", ""},
		sample{"ref.func", join(opRefFunc, 0, 0xd1), "", "i"},
		sample{"call", join(opCall, 0), "i", "i"},
		sample{"call_indirect", join(0x1a, i32(0), opCallIndirect, 0, 0), "ii", "i"},
		sample{"block", join(opBlock, I32, i32(4), opEnd), "", "i"},
		sample{"block of a function type", join(opBlock, 0, i32(1), 0x6a, opEnd), "i", "i"},
		sample{"loop", join(opLoop, 0, opEnd), "i", "i"},
		sample{"if", join(opIf, I64, i64(1), opElse, i64(2), opEnd), "i", "l"},
		sample{"br, unreachable code behind", join(opBlock, emptyBlock, opBr, 0, opUnreachable, opMemoryGrow, 0, 0x1a, opEnd), "", ""},
		sample{"br_if", join(opBlock, I32, i32(3), get(0), opBrIf, 0, i32(1), 0x6a, opEnd), "", "i"},
		sample{"br_table", join(opBlock, emptyBlock, opBlock, emptyBlock, opLoop, emptyBlock, get(0), opBrTable, 2, 1, 2, 1, opEnd, opEnd, opEnd), "", ""},
		sample{"return", join(opReturn), "", ""},
	)
}

// vectorSamples are all instructions after 0xfd.
func vectorSamples() []sample {
	var all []sample
	add := func(from, to int, in, out string, immediates ...any) {
		for op := from; op <= to; op++ {
			all = append(all, sample{fmt.Sprintf("0xfd %#02x", op), join(opVector, u32(op), join(immediates...)), in, out})
		}
	}
	add(0x00, 0x0a, "i", "v", 0, 16) // loads
	add(0x0b, 0x0b, "iv", "", 4, 16)
	add(0x0c, 0x0c, "", "v", "0123456789abcdef")
	add(0x0d, 0x0d, "vv", "v", "\x00\x01\x02\x1f\x1e\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f")
	add(0x0e, 0x0e, "vv", "v")
	for op, in := range []string{0: "i", 1: "i", 2: "i", 3: "l", 4: "f", 5: "d"} {
		add(0x0f+op, 0x0f+op, in, "v")
	}
	for i, types := range []string{
		"v i", "v i", "vi v", "v i", "v i", "vi v", "v i", "vi v", "v l", "vl v", "v f", "vf v", "v d", "vd v",
	} {
		in, out, _ := strings.Cut(types, " ")
		add(0x15+i, 0x15+i, in, out, 1) // extract and replace a lane
	}
	add(0x54, 0x57, "iv", "v", 0, 8, 1) // load and store of a lane
	add(0x58, 0x5b, "iv", "", 0, 8, 1)
	add(0x5c, 0x5d, "i", "v", 2, 8)
	add(0x52, 0x52, "vvv", "v")
	for _, g := range [][2]int{
		{0x23, 0x4c},
		{0x4e, 0x51},
		{0x65, 0x66},
		{0x6e, 0x73},
		{0x76, 0x79},
		{0x7b, 0x7b},
		{0x82, 0x82},
		{0x85, 0x86},
		{0x8e, 0x93},
		{0x95, 0x99},
		{0x9b, 0x9f},
		{0xae, 0xae},
		{0xb1, 0xb1},
		{0xb5, 0xba},
		{0xbc, 0xbf},
		{0xce, 0xce},
		{0xd1, 0xd1},
		{0xd5, 0xdf},
		{0xe4, 0xeb},
		{0xf0, 0xf7},
	} {
		add(g[0], g[1], "vv", "v")
	}
	for _, g := range [][2]int{
		{0x4d, 0x4d},
		{0x5e, 0x62},
		{0x67, 0x6a},
		{0x74, 0x75},
		{0x7a, 0x7a},
		{0x7c, 0x81},
		{0x87, 0x8a},
		{0x94, 0x94},
		{0xa0, 0xa1},
		{0xa7, 0xaa},
		{0xc0, 0xc1},
		{0xc7, 0xca},
		{0xe0, 0xe1},
		{0xe3, 0xe3},
		{0xec, 0xed},
		{0xef, 0xef},
		{0xf8, 0xff},
	} {
		add(g[0], g[1], "v", "v")
	}
	for _, op := range []int{0x53, 0x63, 0x64, 0x83, 0x84, 0xa3, 0xa4, 0xc3, 0xc4} {
		add(op, op, "v", "i")
	}
	for _, op := range []int{0x6b, 0x8b, 0xab, 0xcb} {
		add(op, op+2, "vi", "v")
	}
	return all
}

var letters = map[rune]ValueType{'i': I32, 'l': I64, 'f': F32, 'd': F64, 'v': V128}

// constant pushes a value of the type that the letter stands for, as likely as not a
// remarkable one.
func constant(r *rand.Rand, letter rune) []byte {
	integers := []int64{0, 1, 2, 7, 64, 300, 65535, 65536, -1, 1<<31 - 1, -1 << 31, 1 << 32, 1<<63 - 1, -1 << 63}
	n := integers[r.IntN(len(integers))]
	if r.IntN(3) == 0 {
		n = r.Int64N(1000)
	}
	floats := []float64{0, 1, -1.5, 1e10, -1e20, 0.1, math.Inf(1), math.Inf(-1), math.NaN(), 1e-310}
	x := floats[r.IntN(len(floats))]
	switch letter {
	case 'i':
		return i32(int64(int32(n)))
	case 'l':
		return i64(n)
	case 'f':
		return f32(float32(x))
	case 'd':
		return f64(x)
	default:
		return v128(r.Uint64(), uint64(n))
	}
}

// calls returns a function that executes a sample on constants and returns the result; a vector, which the host cannot receive, is stored
// at 4096.
func (s sample) calls(r *rand.Rand, name string) function {
	f := function{export: name, params: []ValueType{I32}}
	for _, letter := range s.in {
		f.body = append(f.body, constant(r, letter)...)
	}
	f.body = append(f.body, s.code...)
	switch s.out {
	case "":
	case "v":
		f.locals = []ValueType{V128}
		f.body = join(f.body, set(1), i32(4096), get(1), opVector, 0x0b, 0, 0)
	default:
		f.results = []ValueType{letters[rune(s.out[0])]}
	}
	return f
}

// everything returns a module with a function, a memory, a table of each type, a
// global and segments, and behind them functions that execute each sample, each as often as told.
func everything(samples []sample, times int) (a assembly, names []string) {
	a = assembly{
		functions: []function{{params: []ValueType{I32}, results: []ValueType{I32}, body: join(get(0), i32(3), 0x6c)}},
		tables:    [][]byte{join(FuncRef, 1, u32(4), u32(10)), join(ExternRef, 1, u32(2), u32(10))},
		memory:    join(1, 1, 3),
		globals:   [][]byte{join(I64, 1, i64(42), opEnd)},
		exports:   [][]byte{join(named("memory"), Memory, 0)},
		elements:  [][]byte{join(0, i32(0), opEnd, vector(u32(0), u32(0))), join(1, 0, vector(u32(0), u32(0)))},
		data:      [][]byte{join(1, named("passive"))},
		dataCount: true,
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range samples {
		for i := range times {
			name := fmt.Sprintf("%s, %d", s.name, i)
			names = append(names, name)
			a.functions = append(a.functions, s.calls(r, name))
		}
	}
	return a, names
}

// Every instruction has the same result with metering, in both engines.
func TestEveryInstruction(t *testing.T) {
	for _, group := range []struct {
		name    string
		samples []sample
		count   int
	}{
		{"numbers and memory", numericSamples(), 128 + 23},
		{"vectors", vectorSamples(), 236},
		{"others", otherSamples(), 0},
	} {
		if group.count > 0 && len(group.samples) != group.count {
			t.Errorf("%s: %d samples, want %d", group.name, len(group.samples), group.count)
		}
		a, names := everything(group.samples, 6)
		for _, e := range engines {
			t.Run(group.name+", "+e.name, func(t *testing.T) {
				all := newTrial(t, e, a.bytes(), Options{})
				for _, name := range names {
					all.same(t, name, 1)
				}
			})
		}
	}
}
