// Package wasmtest assembles small WebAssembly modules, so that tests need no toolchain. A [Builder] collects imports and functions, and
// knows the types of the functions of policy_v1. Code consists of bytes, made by the functions of instructions.go:
//
//	b := wasmtest.New()
//	b.Batch(64)
//	b.Each(abi.OnEnqueue, wasmtest.Keep(wasmtest.LocalGet(wasmtest.Now), wasmtest.I64(1000), wasmtest.I64Add))
//	module := b.Bytes()
package wasmtest

import (
	"slices"

	"github.com/curfewmq/curfew/sdk/abi"
)

// Builder builds a module. Imports come before functions.
type Builder struct {
	types     [][]byte
	imports   [][]byte
	functions []function
	exports   [][]byte
	data      [][]byte
	start     int // -1: none
	pages     [2]int
	globals   int
}

type function struct {
	kind   int // of types
	locals []abi.Value
	body   []byte
}

// New returns a builder of a module with a memory of one page, which may grow to
// sixteen.
func New() *Builder { return &Builder{start: -1, pages: [2]int{1, 16}} }

// Memory makes the memory start with low pages and grow to high.
func (b *Builder) Memory(low, high int) { b.pages = [2]int{low, high} }

// Global adds a mutable i64 of 0 and returns its index.
func (b *Builder) Global() int {
	b.globals++
	return b.globals - 1
}

// Import adds a function that the module imports, and returns its index.
func (b *Builder) Import(module, name string, s abi.Signature) int {
	if len(b.functions) > 0 {
		panic("wasmtest: imports come before functions")
	}
	b.imports = append(b.imports, slices.Concat(text(module), text(name), []byte{0}, u32(b.kind(s))))
	return len(b.imports) - 1
}

// Host imports a function of policy_v1.
func (b *Builder) Host(name string) int {
	return b.Import(abi.Name, name, signature(abi.Imports(), name))
}

// Func adds a function and returns its index.
func (b *Builder) Func(s abi.Signature, locals []abi.Value, body ...[]byte) int {
	b.functions = append(b.functions, function{b.kind(s), locals, slices.Concat(body...)})
	return len(b.imports) + len(b.functions) - 1
}

// Export exports a function.
func (b *Builder) Export(name string, index int) {
	b.exports = append(b.exports, slices.Concat(text(name), []byte{0}, u32(index)))
}

// Has adds and exports a function of policy_v1.
func (b *Builder) Has(name string, body ...[]byte) int {
	i := b.Func(signature(abi.Exports(), name), nil, body...)
	b.Export(name, i)
	return i
}

// HasLocals is Has for a function with locals.
func (b *Builder) HasLocals(name string, locals []abi.Value, body ...[]byte) int {
	i := b.Func(signature(abi.Exports(), name), locals, body...)
	b.Export(name, i)
	return i
}

// Buffer is the address of Batch's records and verdicts; memory at Scratch is free for the test.
const (
	Buffer  = 4096
	Scratch = 128
)

// Batch adds the handshake of a module that takes n messages at once. The memory after Buffer must be large enough for them.
func (b *Builder) Batch(n int) {
	b.Has(abi.Name, I32(n))
	b.Has(abi.ExportBuffer, I32(Buffer))
}

// Single adds the handshake of a module that takes one message at a time.
func (b *Builder) Single() { b.Has(abi.Name, I32(0)) }

// Locals of a function that Each adds.
const (
	Now     = 0 // i64: the parameter
	Count   = 1 // i32: the parameter
	Index   = 2 // i32: of the message
	Record  = 3 // i32: where its record is
	Verdict = 4 // i32: where its verdict is
	Temp    = 5 // i64: for the body
)

// Each adds a hook that executes body for each message and returns 0.
func (b *Builder) Each(h abi.Hook, body ...[]byte) int {
	advance := slices.Concat(
		LocalGet(Index), I32(1), I32Add, LocalSet(Index),
		LocalGet(Record), I32(abi.RecordSize), I32Add, LocalSet(Record),
		LocalGet(Verdict), I32(abi.VerdictSize), I32Add, LocalSet(Verdict))
	return b.HasLocals(h.String(), []abi.Value{abi.I32, abi.I32, abi.I32, abi.I64},
		I32(Buffer), LocalSet(Record),
		I32(Buffer), LocalGet(Count), I32(abi.RecordSize), I32Mul, I32Add, LocalSet(Verdict),
		Block(Loop(
			LocalGet(Index), LocalGet(Count), I32GeU, BrIf(1),
			slices.Concat(body...), advance, Br(0))),
		I32(0))
}

// Keep is code for Each: keep the message until the time that the code until pushes.
func Keep(until ...[]byte) []byte {
	return slices.Concat(
		LocalGet(Verdict), I32(abi.Keep), I32Store(abi.VerdictAction),
		LocalGet(Verdict), slices.Concat(until...), I64Store(abi.VerdictUntil))
}

// TrialStart is when a host's trials begin, in milliseconds. They take less than an hour of their clock.
const TrialStart = 1_767_571_200_000

// Later is code for Each: execute body, except during a trial. A module that fails in its trial is refused.
func Later(body ...[]byte) []byte {
	const hour = 3_600_000
	return slices.Concat(LocalGet(Now), I64(TrialStart), I64Sub, I64(hour), I64GeU, If(body...))
}

// Act is code for Each: a verdict that consists only of an action.
func Act(action int) []byte {
	return slices.Concat(LocalGet(Verdict), I32(action), I32Store(abi.VerdictAction))
}

// Data puts bytes into the memory.
func (b *Builder) Data(at int, content string) {
	b.data = append(b.data, slices.Concat([]byte{0}, I32(at), end, text(content)))
}

// Text puts a string into the memory and returns code for its address and length.
func (b *Builder) Text(at int, s string) []byte {
	b.Data(at, s)
	return slices.Concat(I32(at), I32(len(s)))
}

// Start sets the start function.
func (b *Builder) Start(index int) { b.start = index }

// kind returns the index of a type.
func (b *Builder) kind(s abi.Signature) int {
	b.types = append(b.types, slices.Concat([]byte{0x60}, values(s.Params), values(s.Results)))
	return len(b.types) - 1
}

func signature(functions []abi.Function, name string) abi.Signature {
	i := slices.IndexFunc(functions, func(f abi.Function) bool { return f.Name == name })
	if i < 0 {
		panic("wasmtest: policy_v1 has no " + name)
	}
	return functions[i].Signature
}

// Bytes returns the module.
func (b *Builder) Bytes() []byte {
	var kinds, bodies, globals [][]byte
	for _, f := range b.functions {
		kinds, bodies = append(kinds, u32(f.kind)), append(bodies, f.encode())
	}
	for range b.globals {
		globals = append(globals, slices.Concat([]byte{byte(abi.I64), 1}, I64(0), end))
	}
	exports := append(slices.Clone(b.exports), slices.Concat(text("memory"), []byte{2, 0}))
	m := slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), section(1, b.types), section(2, b.imports), section(3, kinds))
	m = slices.Concat(m, section(5, [][]byte{slices.Concat([]byte{1}, u32(b.pages[0]), u32(b.pages[1]))}), section(6, globals), section(7, exports))
	if b.start >= 0 {
		m = slices.Concat(m, []byte{8}, sized(u32(b.start)))
	}
	return slices.Concat(m, section(10, bodies), section(11, b.data))
}

func (f function) encode() []byte {
	locals := make([][]byte, len(f.locals))
	for i, t := range f.locals {
		locals[i] = []byte{1, byte(t)}
	}
	return sized(slices.Concat(vector(locals), f.body, end))
}

func section(id byte, entries [][]byte) []byte {
	if len(entries) == 0 {
		return nil
	}
	return append([]byte{id}, sized(vector(entries))...)
}

func vector(entries [][]byte) []byte { return append(u32(len(entries)), slices.Concat(entries...)...) }

func sized(b []byte) []byte { return append(u32(len(b)), b...) }

func text(s string) []byte { return sized([]byte(s)) }

func values(vs []abi.Value) []byte {
	b := u32(len(vs))
	for _, v := range vs {
		b = append(b, byte(v))
	}
	return b
}
