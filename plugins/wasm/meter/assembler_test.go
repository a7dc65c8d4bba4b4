package meter

import (
	"encoding/binary"
	"math"
)

// A module assembler for tests, so that they need no toolchain. Code is bytes:
// join takes opcodes as numbers and everything else as what u32, s64 and the like return.

func join(parts ...any) (b []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = append(b, byte(p))
		case ValueType:
			b = append(b, byte(p))
		case Kind:
			b = append(b, byte(p))
		case []byte:
			b = append(b, p...)
		case string:
			b = append(b, p...)
		default:
			panic("join: give it bytes")
		}
	}
	return b
}

func u32(v int) []byte   { return appendU32(nil, uint32(v)) }
func s64(v int64) []byte { return appendS64(nil, v) }

func i32(v int64) []byte { return join(opI32Const, s64(v)) }
func i64(v int64) []byte { return join(opI64Const, s64(v)) }

func f32(v float32) []byte {
	return binary.LittleEndian.AppendUint32([]byte{opF32Const}, math.Float32bits(v))
}

func f64(v float64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{opF64Const}, math.Float64bits(v))
}

func v128(lo, hi uint64) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{opVector, vecConst}, lo)
	return binary.LittleEndian.AppendUint64(b, hi)
}

func get(local int) []byte { return join(opLocalGet, u32(local)) }
func set(local int) []byte { return join(0x21, u32(local)) }
func tee(local int) []byte { return join(opLocalTee, u32(local)) }

func vector(entries ...[]byte) []byte {
	b := u32(len(entries))
	for _, e := range entries {
		b = append(b, e...)
	}
	return b
}

func named(name string) []byte { return appendName(nil, name) }

func typesOf(types []ValueType) []byte {
	b := u32(len(types))
	for _, t := range types {
		b = append(b, byte(t))
	}
	return b
}

func funcType(params, results []ValueType) []byte {
	return join(0x60, typesOf(params), typesOf(results))
}

// function is a function of a test module. Its body goes without the last end.
type function struct {
	params, results []ValueType
	locals          []ValueType
	body            []byte
	export          string
}

// assembly is a test module. Functions get the types 0, 1, … in their order, imports those
// behind them, and after them come types.
type assembly struct {
	imports   []hostFunction
	types     [][]byte
	functions []function
	tables    [][]byte
	memory    []byte
	globals   [][]byte
	exports   [][]byte
	start     []byte
	elements  [][]byte
	data      [][]byte
	dataCount bool
	customs   [][]byte // at the end
}

type hostFunction struct {
	module, name    string
	params, results []ValueType
}

func section(id int, content []byte) []byte { return join(id, u32(len(content)), content) }

func sectionOf(id int, entries [][]byte) []byte {
	if len(entries) == 0 {
		return nil
	}
	return section(id, vector(entries...))
}

func (a assembly) bytes() []byte {
	var types, imports, declared, bodies [][]byte
	exports := a.exports
	for i, f := range a.functions {
		types = append(types, funcType(f.params, f.results))
		declared = append(declared, u32(i))
		bodies = append(bodies, f.encode())
		if f.export != "" {
			exports = append(exports, join(named(f.export), 0, u32(len(a.imports)+i)))
		}
	}
	for _, h := range a.imports {
		imports = append(imports, join(named(h.module), named(h.name), 0, u32(len(types))))
		types = append(types, funcType(h.params, h.results))
	}
	b := join("\x00asm\x01\x00\x00\x00", sectionOf(typeSection, append(types, a.types...)), sectionOf(importSection, imports),
		sectionOf(functionSection, declared), sectionOf(tableSection, a.tables))
	if a.memory != nil {
		b = append(b, section(memorySection, vector(a.memory))...)
	}
	b = join(b, sectionOf(globalSection, a.globals), sectionOf(exportSection, exports))
	if a.start != nil {
		b = append(b, section(startSection, a.start)...)
	}
	b = append(b, sectionOf(elementSection, a.elements)...)
	if a.dataCount {
		b = append(b, section(dataCountSection, u32(len(a.data)))...)
	}
	b = join(b, sectionOf(codeSection, bodies), sectionOf(dataSection, a.data))
	for _, c := range a.customs {
		b = append(b, section(customSection, c)...)
	}
	return b
}

func (f function) encode() []byte {
	var locals [][]byte
	for _, t := range f.locals {
		locals = append(locals, []byte{1, byte(t)})
	}
	body := join(vector(locals...), f.body, opEnd)
	return join(u32(len(body)), body)
}

// one returns a module of a memory and one function, which it exports as "run".
func one(f function) assembly {
	f.export = "run"
	return assembly{memory: []byte{0, 1}, functions: []function{f}}
}
