package meter

import (
	"errors"
	"strings"
	"testing"
)

type refusal struct {
	name     string
	module   []byte
	function int // in whose code it is, or -1
	want     string
}

// body returns a module of a memory and the function run(i32), which has those instructions.
func body(parts ...any) []byte {
	return one(function{params: []ValueType{I32}, body: join(parts...)}).bytes()
}

func header(sections ...[]byte) []byte {
	b := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range sections {
		b = append(b, s...)
	}
	return b
}

func refusals() []refusal {
	return []refusal{
		{"nothing", nil, -1, "not a WebAssembly module of version 1 in the binary format: it is empty"},
		{"a component", []byte("\x00asm\x0d\x00\x01\x00"), -1, "it is a component"},
		{"of another version", []byte("\x00asm\x02\x00\x00\x00"), -1, "its version is 02 00 00 00"},
		{"half a header", []byte("\x00asm"), -1, "it is cut off"},
		{"text", []byte("\n;; a comment\n(module)"), -1, "it is in the text format, which wat2wasm translates"},
		{"something else", []byte("\x7fELF\x02\x01\x01\x00\x00"), -1, `it begins with "\x7fELF`},
		{"cut off", header([]byte{1}), -1, "ends in the middle"},
		{"section longer than the module", header([]byte{1, 100, 0}), -1, "100 bytes are announced where there are 1"},
		{"section size of six bytes", header([]byte("\x01\x80\x80\x80\x80\x80\x00")), -1, "does not fit in 32 bits"},
		{"section size of 36 bits", header([]byte("\x01\xff\xff\xff\xff\x7f")), -1, "does not fit in 32 bits"},
		{"unknown section", header(section(14, nil)), -1, "section 14 is unknown"},
		{"section twice", header(section(1, []byte{0}), section(1, []byte{0})), -1, "section 1 is out of order or repeated"},
		{"sections out of order", header(section(3, []byte{0}), section(1, []byte{0})), -1, "section 1 is out of order"},
		{"section with a rest", header(section(1, []byte{0, 0})), -1, "goes on after its last entry"},
		{"custom section without a name", header(section(0, nil)), -1, "ends in the middle"},
		{"four billion types", header(section(1, []byte("\xff\xff\xff\xff\x0f"))), -1, "4294967295 types are announced"},
		{"types beyond the limit", header(section(1, join(u32(20_000), make([]byte, 60_000)))), -1, "20000 types are too many"},
		{"four billion imports", header(section(2, []byte("\xff\xff\xff\xff\x0f"))), -1, "imports are announced"},
		{"four billion locals", header(section(1, vector(funcType(nil, nil))), section(3, []byte{1, 0}), section(10, vector(join(8, 1, "\xff\xff\xff\xff\x0f", I32, opEnd)))), 0, "more than 10000 locals"},
		{"bodies missing", header(section(1, vector(funcType(nil, nil))), section(3, []byte{1, 0})), -1, "1 functions and 0 function bodies"},
		{"data segments missing", header(section(12, []byte{3})), -1, "0 data segments where 3 are announced"},
		{"large memory", assembly{memory: []byte{0, 0x81, 2}}.bytes(), -1, "memory starts with 257 pages; accepted are up to 256"},
		{"large tables", assembly{tables: [][]byte{join(FuncRef, 0, u32(40_000)), join(FuncRef, 0, u32(40_000))}}.bytes(), -1, "tables start with 80000 elements"},
		{"name that is not UTF-8", assembly{exports: [][]byte{join(named("\xff"), Global, 0)}}.bytes(), -1, "is not UTF-8"},
		{"export by the fuel's name", assembly{exports: [][]byte{join(named(DefaultGlobal), Func, 0)}}.bytes(), -1, `"curfew_fuel" is reserved`},

		{"threads: shared memory", assembly{memory: []byte{3, 1, 1}}.bytes(), -1, "threads (a shared memory)"},
		{"threads: atomics", body(opMemAtomic, 3, 0), 0, "threads (opcode 0xfe)"},
		{"memory64", assembly{memory: []byte{4, 1}}.bytes(), -1, "memory64 (a memory"},
		{"table64", assembly{tables: [][]byte{join(FuncRef, 4, 1)}}.bytes(), -1, "memory64 (a table"},
		{"several memories", header(section(5, []byte{2, 0, 1, 0, 1})), -1, "several memories"},
		{"several memories: store", body(i32(0), i32(0), 0x36, 0x40, 1, 0), 0, "several memories"},
		{"several memories: fill", body(i32(0), i32(0), i32(0), opMisc, 11, 1), 0, "several memories (memory 1)"},
		{"tail calls", body(0x12, 0), 0, "tail calls (opcode 0x12)"},
		{"tail calls: indirect", body(i32(0), 0x13, 0, 0), 0, "tail calls (opcode 0x13)"},
		{"exceptions: tag section", header(section(13, []byte{0})), -1, "exceptions (a tag section)"},
		{"exceptions: try", body(0x06, emptyBlock, opEnd), 0, "exceptions (opcode 0x6)"},
		{"exceptions: try_table", body(0x1f, emptyBlock, 0, opEnd), 0, "exceptions (opcode 0x1f)"},
		{"exceptions: exnref", header(section(1, vector(join(0x60, 1, 0x69, 0)))), -1, "exceptions (type exnref)"},
		{"exceptions: imported tag", header(section(2, vector(join(named("m"), named("t"), 4, 0, 0)))), -1, "exceptions (an imported tag)"},
		{"garbage collection: rec group", header(section(1, vector(join(0x4e, 1, 0x60, 0, 0)))), -1, "garbage collection (type form 0x4e)"},
		{"garbage collection: struct", header(section(1, vector(join(0x5f, 0, 0)))), -1, "garbage collection (type form 0x5f)"},
		{"garbage collection: ref.eq", body(0xd3), 0, "garbage collection (opcode 0xd3)"},
		{"garbage collection: prefix", body(0xfb, 0), 0, "garbage collection (opcode 0xfb)"},
		{"function references: type", header(section(1, vector(join(0x60, 1, 0x63, 0, 0)))), -1, "typed function references"},
		{"function references: call_ref", body(0x14, 0), 0, "typed function references (opcode 0x14)"},
		{"function references: table", assembly{tables: [][]byte{join(0x40, 0, FuncRef, 0, 1, opRefNull, FuncRef, opEnd)}}.bytes(), -1, "a table with an initializer"},
		{"extended constants", assembly{globals: [][]byte{join(I32, 0, i32(1), i32(2), 0x6a, opEnd)}}.bytes(), -1, "extended constant expressions"},
		{"relaxed vectors", body(opVector, u32(0x100)), 0, "relaxed vectors"},

		{"unknown opcode", body(0x27), 0, "an unknown feature (opcode 0x27)"},
		{"unknown opcode behind 0xfc", body(opMisc, 18), 0, "opcode 0xfc 0x12 is unknown"},
		{"unknown opcode behind 0xfd", body(opVector, u32(0x9a)), 0, "opcode 0xfd 0x9a is unknown"},
		// wazero takes 0x80 alone for i16x8.abs and goes on with the byte after it.
		{"overlong opcode behind 0xfd", body(opVector, 0x8c, 0, v128(0, 0)), 0, "unknown or overlong"},
		{"overlong opcode behind 0xfc", body(opMisc, 0x8b, 0, 0), 0, "unknown or overlong"},
		{"select of two types", body(opSelectTyped, 2, I32, I32), 0, "select of 2 types"},
		{"negative block type", body(opBlock, 0xc0, 0x7f, opEnd), 0, "block type is malformed"},
		{"block type of 33 bits", body(opBlock, "\x80\x80\x80\x80\x10", opEnd), 0, "block type is malformed"},
		{"constant of six bytes", body(opI32Const, "\x80\x80\x80\x80\x80\x00", 0x1a), 0, "longer than 5 bytes"},
		{"code behind the end", body(opEnd), 0, "code goes on after the function's end"},
		{"no end", header(section(1, vector(funcType(nil, nil))), section(3, []byte{1, 0}), section(10, vector(join(2, 0, opNop)))), 0, "ends in the middle"},
		{"else without if", body(opBlock, emptyBlock, opElse, opEnd), 0, "else stands outside of an if"},
		{"second else", body(i32(0), opIf, emptyBlock, opElse, opElse, opEnd), 0, "else stands outside of an if"},

		// A module must not be able to name the rewrite's additions.
		{"the fuel, in code", body(opGlobalGet, 0, 0x1a), 0, "global 0 does not exist"},
		{"the fuel, exported", assembly{exports: [][]byte{join(named("x"), Global, 0)}}.bytes(), -1, "global 0 does not exist"},
		{"the fuel, in a constant", assembly{globals: [][]byte{join(I64, 0, opGlobalGet, 1, opEnd)}}.bytes(), -1, "imported global 1 does not exist"},
		{"the length's local", body(i32(0), set(1), i32(0), i32(0), i32(0), opMisc, 11, 0), 0, "local 1 does not exist"},
		{"the label behind the function", body(opBr, 1), 0, "label 1 does not exist"},
		{"the label behind the function, in a table", body(opBlock, emptyBlock, i32(0), opBrTable, 1, 0, 3, opEnd), 0, "label 3 does not exist"},
		{"an added type", assembly{functions: []function{{results: []ValueType{I32, I64}, params: []ValueType{I32}, body: join(opBlock, 1, opUnreachable, opEnd)}}}.bytes(), 0, "type 1 does not exist"},

		{"complex: instructions", body(rep(80_000, join(opNop))), 0, "too complex to compile: 75001 instructions"},
		{"complex: blocks", body(rep(8_000, join(opBlock, emptyBlock, get(0), opBrIf, 0, opEnd))), 0, "too complex to compile"},
		{"complex: nested loops over locals", one(function{params: []ValueType{I32}, locals: make1000(I64), body: join(rep(40, join(opLoop, emptyBlock)), rep(40, []byte{opEnd}))}).bytes(), 0, "too complex to compile"},
		{"complex: labels", body(get(0), opBrTable, u32(9_000), rep(9_001, []byte{0})), 0, "too complex to compile"},
		{"complex: many values", assembly{functions: []function{{params: make1000(I32), results: make1000(I32), body: join(opUnreachable, rep(100, join(opCall, 0)))}}}.bytes(), 0, "too complex to compile"},
	}
}

const opMemAtomic = 0xfe

func make1000(t ValueType) []ValueType {
	types := make([]ValueType, 1000)
	for i := range types {
		types[i] = t
	}
	return types
}

func rep(n int, b []byte) (out []byte) {
	for range n {
		out = append(out, b...)
	}
	return out
}

func TestRefusals(t *testing.T) {
	for _, tc := range refusals() {
		t.Run(tc.name, func(t *testing.T) {
			out, _, err := Rewrite(tc.module, Options{})
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %d bytes and error %v, want an *Error", len(out), err)
			}
			if e.Function != tc.function || !strings.Contains(e.Error(), tc.want) {
				t.Errorf("got %q, want function %d and %q", e, tc.function, tc.want)
			}
			if e.Offset < 0 || e.Offset > len(tc.module) {
				t.Errorf("offset %d in %d bytes", e.Offset, len(tc.module))
			}
		})
	}
}

func TestModuleTooLarge(t *testing.T) {
	_, _, err := Rewrite(make([]byte, 101), Options{ModuleBytes: 100})
	if err == nil || !strings.Contains(err.Error(), "module of 101 bytes is too large; accepted are up to 100") {
		t.Errorf("got %v", err)
	}
}

func TestOptionsOutOfRange(t *testing.T) {
	for _, tc := range []struct {
		name    string
		options Options
		want    string
	}{
		{"negative fuel", Options{Fuel: -1}, "fuel: -1 is out of range"},
		{"fuel that charges could wrap", Options{Fuel: MaxFuel + 1}, "accepted are 0 to 4611686018427387904"},
		{"memory beyond 32 bits", Options{MemoryPages: 65537}, "memory: 65537 pages are out of range"},
	} {
		if _, _, err := Rewrite(kitchenSink().bytes(), tc.options); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}
