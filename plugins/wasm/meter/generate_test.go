package meter

import (
	"math/rand/v2"
	"slices"
)

// A program is a random module that is valid and ends: functions of random types that call each other,
// also through the table and recursively, with blocks, loops, branches and everything
// that the samples have. Every loop and function takes one off a budget and
// leaves when it is spent.
const (
	budgetGlobal = 0 // i32
	countGlobal  = 1 // i64: units executed so far, if the program counts
	stateGlobals = 2 // i32, i64, f32, f64, v128
)

const programBudget = 300

// generator makes one program. With counting, the same program also counts the instructions that it executes, to compare the charges with.
type generator struct {
	r        *rand.Rand
	counting bool
	programs []signature // of all functions
	samples  map[ValueType][]sample
	effects  []sample // that give nothing

	code   []byte
	locals []ValueType
	labels []label
	result []ValueType // of the function
	size   int         // how much more code it should make
}

// label is an open block: what a branch to it carries.
type label struct{ types []ValueType }

var valueTypes = []ValueType{I32, I64, F32, F64, V128}

// program makes the program that a seed stands for.
func program(seed uint64, counting bool) assembly { return drawn(rand.NewPCG(seed, 7), counting) }

// drawn makes a program by choices from a source.
func drawn(choices rand.Source, counting bool) assembly {
	g := &generator{r: rand.New(choices), counting: counting, samples: make(map[ValueType][]sample)}
	for _, s := range slices.Concat(numericSamples(), vectorSamples()) {
		if showsNaN(s) {
			continue
		}
		if s.out == "" {
			g.effects = append(g.effects, s)
			continue
		}
		out := letters[rune(s.out[0])]
		g.samples[out] = append(g.samples[out], s)
	}
	return g.assembly()
}

// showsNaN reports whether an instruction lets a program see the bits of a NaN, the only respect in which engines may differ.
func showsNaN(s sample) bool {
	op := s.code[0]
	if op != opVector {
		return slices.Contains([]byte{0x38, 0x39, 0x98, 0xa6, 0xbc, 0xbd}, op) // stores, copysign, reinterpret
	}
	op = s.code[1]
	return op >= 0xe0 && op <= 0xf7 || slices.Contains([]byte{0x13, 0x14, 0x20, 0x22, 0x5e, 0x5f, 0x67, 0x68, 0x69, 0x6a, 0x74, 0x75, 0x7a, 0x94}, op)
}

func (g *generator) assembly() assembly {
	a := assembly{
		memory:    join(1, 1, 2),
		tables:    [][]byte{join(FuncRef, 1, 8, 12)},
		dataCount: true,
		data:      [][]byte{join(1, named("some passive data to be copied")), join(0, i32(100), opEnd, named("and some active"))},
		exports:   [][]byte{join(named("memory"), Memory, 0), join(named("count"), Global, countGlobal)},
		globals:   [][]byte{join(I32, 1, i32(programBudget), opEnd), join(I64, 1, i64(0), opEnd)},
	}
	for _, t := range valueTypes {
		a.globals = append(a.globals, join(t, 1, g.constant(t), opEnd))
	}
	for range 2 + g.r.IntN(4) {
		g.programs = append(g.programs, signature{params: g.types(3), results: g.types(3)})
	}
	var refs [][]byte
	for i := range g.programs {
		a.functions = append(a.functions, g.function(i))
		refs = append(refs, u32(i))
	}
	a.elements = [][]byte{join(0, i32(0), opEnd, vector(refs...)), join(1, 0, vector(refs...))}
	return a
}

func (g *generator) types(limit int) []ValueType {
	types := make([]ValueType, g.r.IntN(limit+1))
	for i := range types {
		types[i] = g.anyType()
	}
	return types
}

func (g *generator) anyType() ValueType { return valueTypes[g.r.IntN(len(valueTypes))] }

func (g *generator) constant(t ValueType) []byte {
	for letter, typ := range letters {
		if typ == t {
			return constant(g.r, letter)
		}
	}
	panic("no letter for " + t.String())
}

func (g *generator) function(i int) function {
	sig := g.programs[i]
	f := function{params: sig.params, results: sig.results, locals: append(g.types(5), I32, I32)}
	if !slices.Contains(slices.Concat(sig.params, sig.results), V128) {
		f.export = "f" + string(rune('0'+i))
	}
	g.code, g.locals, g.labels = nil, slices.Concat(sig.params, f.locals[:len(f.locals)-1]), []label{{sig.results}}
	g.result, g.size = sig.results, 40+g.r.IntN(150)
	g.count(unitsEntry + len(f.locals))
	g.spend(0, sig.results)
	for g.size > 0 {
		g.statement()
	}
	g.values(sig.results)
	f.body = g.code
	return f
}

// emit appends an instruction.
func (g *generator) emit(parts ...any) {
	code := join(parts...)
	i := opcodes[code[0]]
	switch code[0] {
	case opMisc:
		i = miscOpcodes[code[1]]
	case opVector:
		i = vectorOpcodes[code[1]]
	}
	g.count(int(i.units))
	g.countLength(i.bulk)
	g.code = append(g.code, code...)
	g.size--
}

func (g *generator) count(units int) {
	if g.counting && units > 0 {
		g.code = join(g.code, opGlobalGet, countGlobal, i64(int64(units)), 0x7c, opGlobalSet, countGlobal)
	}
}

// countLength counts the charge for the length on top of the stack, using the local after those of the program.
func (g *generator) countLength(kind bulk) {
	shift, scratch := map[bulk]int{bulkBytes: -3, bulkElements: 0, bulkPages: 13}[kind], len(g.locals)
	if !g.counting || kind == noBulk {
		return
	}
	g.code = join(g.code, tee(scratch), opGlobalGet, countGlobal, get(scratch), opI64ExtendU)
	if shift < 0 {
		g.code = join(g.code, i64(int64(-shift)), 0x88)
	} else {
		g.code = join(g.code, i64(int64(shift)), 0x86)
	}
	g.code = join(g.code, 0x7c, opGlobalSet, countGlobal)
}

// spend takes one off the budget, or branches to a label, which takes those values.
func (g *generator) spend(depth int, carried []ValueType) {
	g.emit(opGlobalGet, budgetGlobal)
	g.emit(0x45) // i32.eqz
	g.emit(opIf, emptyBlock)
	for _, t := range carried {
		g.emit(g.constant(t))
	}
	g.emit(opBr, u32(depth+1))
	g.emit(opEnd)
	g.emit(opGlobalGet, budgetGlobal)
	g.emit(i32(1))
	g.emit(0x6b)
	g.emit(opGlobalSet, budgetGlobal)
}

func (g *generator) values(types []ValueType) {
	for _, t := range types {
		g.value(t)
	}
}

// value pushes a value.
func (g *generator) value(t ValueType) {
	if g.size <= 0 {
		g.emit(g.constant(t))
		return
	}
	switch g.r.IntN(12) {
	case 0, 1:
		g.emit(g.constant(t))
	case 2, 3:
		if i := slices.Index(g.locals, t); i >= 0 {
			g.emit(get(i))
			return
		}
		g.emit(opGlobalGet, stateGlobals+slices.Index(valueTypes, t))
	case 4:
		g.either(t)
	case 5:
		g.block([]ValueType{t}, func() { g.value(t) })
	case 6:
		g.value(t)
		g.value(t)
		g.value(I32)
		g.emit(opSelectTyped, 1, t)
	default:
		g.sample(g.samples[t])
	}
}

// sample pushes an instruction's operands and executes it. Addresses it keeps within the memory.
func (g *generator) sample(all []sample) {
	s := all[g.r.IntN(len(all))]
	for i, letter := range s.in {
		g.value(letters[letter])
		if shape := g.shape(s); i == 0 && (shape == memoryAccess || shape == memoryAccessLane) {
			g.emit(i32(0xfff))
			g.emit(0x71)
		}
	}
	g.emit(s.code)
}

func (g *generator) shape(s sample) shape {
	if s.code[0] == opVector {
		return vectorOpcodes[s.code[1]].shape
	}
	return opcodes[s.code[0]].shape
}

// either pushes a value from one of two arms.
func (g *generator) either(t ValueType) {
	g.value(I32)
	g.emit(opIf, t)
	g.labels = append(g.labels, label{[]ValueType{t}})
	g.value(t)
	g.emit(opElse)
	g.maybe(g.statement)
	g.value(t)
	g.emit(opEnd)
	g.labels = g.labels[:len(g.labels)-1]
}

func (g *generator) maybe(f func()) {
	if g.r.IntN(2) == 0 {
		f()
	}
}

// block puts something in a block that leaves at most one value.
func (g *generator) block(types []ValueType, inside func()) {
	typ := any(emptyBlock)
	if len(types) == 1 {
		typ = types[0]
	}
	g.emit(opBlock, typ)
	g.labels = append(g.labels, label{types})
	g.statement()
	inside()
	g.emit(opEnd)
	g.labels = g.labels[:len(g.labels)-1]
}

// statement appends code that leaves the stack as it was.
func (g *generator) statement() {
	switch g.r.IntN(16) {
	case 0, 1, 2:
		i := g.r.IntN(len(g.locals))
		g.value(g.locals[i])
		g.emit(set(i))
	case 3:
		i := g.r.IntN(len(valueTypes))
		g.value(valueTypes[i])
		g.emit(opGlobalSet, stateGlobals+i)
	case 4, 5:
		g.sample(g.effects)
	case 6:
		g.condition()
	case 7:
		g.loop()
	case 8:
		g.block(nil, func() { g.maybe(g.statement) })
	case 9:
		g.condition()
	case 10:
		g.branch()
	case 11:
		g.table()
	case 12, 13:
		g.call()
	case 14:
		g.bulk()
	default:
		g.leave()
	}
}

func (g *generator) condition() {
	g.value(I32)
	g.emit(opIf, emptyBlock)
	g.labels = append(g.labels, label{})
	g.arm()
	if g.r.IntN(2) == 0 {
		g.emit(opElse)
		g.arm()
	}
	g.emit(opEnd)
	g.labels = g.labels[:len(g.labels)-1]
}

// arm is one branch of a condition: it may end with a branch instruction, followed by dead code.
func (g *generator) arm() {
	g.statement()
	if g.r.IntN(2) > 0 {
		return
	}
	depth := g.r.IntN(len(g.labels))
	g.values(g.labels[len(g.labels)-1-depth].types)
	g.emit(opBr, u32(depth))
	g.maybe(g.statement)
}

// loop goes round while the budget lasts and a random condition holds.
func (g *generator) loop() {
	g.emit(opBlock, emptyBlock)
	g.emit(opLoop, emptyBlock)
	g.labels = append(g.labels, label{}, label{})
	g.spend(1, nil)
	g.statement()
	g.maybe(g.statement)
	g.value(I32)
	g.emit(opBrIf, 0)
	g.maybe(g.statement)
	g.emit(opEnd)
	g.emit(opEnd)
	g.labels = g.labels[:len(g.labels)-2]
}

// branch leaves for any label, if a condition holds.
func (g *generator) branch() {
	depth := g.r.IntN(len(g.labels))
	types := g.labels[len(g.labels)-1-depth].types
	g.values(types)
	g.value(I32)
	g.emit(opBrIf, u32(depth))
	for range types {
		g.emit(0x1a)
	}
}

// table branches to one of the labels without values, or continues.
func (g *generator) table() {
	g.emit(opBlock, emptyBlock)
	g.labels = append(g.labels, label{})
	var targets [][]byte
	for depth := range g.labels {
		if len(g.labels[len(g.labels)-1-depth].types) == 0 {
			targets = append(targets, u32(depth))
		}
	}
	g.value(I32)
	g.emit(i32(7))
	g.emit(0x71)
	g.emit(opBrTable, vector(targets...), targets[g.r.IntN(len(targets))])
	g.emit(opEnd)
	g.labels = g.labels[:len(g.labels)-1]
}

// call calls a function, directly or through the table, where it may be another type's.
func (g *generator) call() {
	i := g.r.IntN(len(g.programs))
	g.values(g.programs[i].params)
	if g.r.IntN(3) > 0 {
		g.emit(opCall, u32(i))
	} else {
		g.emit(i32(int64(i)))
		g.maybe(func() {
			g.value(I32)
			g.emit(i32(1))
			g.emit(0x71)
			g.emit(0x6a)
		})
		g.emit(opCallIndirect, u32(i), 0)
	}
	for range g.programs[i].results {
		g.emit(0x1a)
	}
}

// bulk executes an instruction that is charged by a length: one that is in bounds, mostly.
func (g *generator) bulk() {
	length := func(limit int64) {
		g.value(I32)
		g.emit(i32(limit - 1))
		g.emit(0x71)
	}
	switch g.r.IntN(8) {
	case 0:
		length(2)
		g.emit(opMemoryGrow, 0)
		g.emit(0x1a)
	case 1:
		length(4096)
		length(256)
		length(1 << uint(g.r.IntN(17)))
		g.emit(opMisc, 11, 0)
	case 2:
		length(4096)
		length(4096)
		length(1 << uint(g.r.IntN(17)))
		g.emit(opMisc, 10, 0, 0)
	case 3:
		length(4096)
		length(4)
		length(32)
		g.emit(opMisc, 8, 0, 0)
	case 4:
		length(4)
		length(2)
		length(4)
		g.emit(opMisc, 12, 1, 0)
	case 5:
		length(4)
		length(4)
		length(4)
		g.emit(opMisc, 14, 0, 0)
	case 6:
		g.emit(opRefNull, FuncRef)
		length(4)
		g.emit(opMisc, 15, 0)
		g.emit(0x1a)
	default:
		length(8)
		g.emit(opRefFunc, 0)
		length(4)
		g.emit(opMisc, 17, 0)
	}
}

// leave ends the function, or everything, in an arm that is seldom taken; dead code may follow.
func (g *generator) leave() {
	g.value(I32)
	g.emit(i32(31))
	g.emit(0x71)
	g.emit(0x45)
	g.emit(opIf, emptyBlock)
	g.labels = append(g.labels, label{})
	switch g.r.IntN(4) {
	case 0:
		g.emit(opUnreachable)
	default:
		g.values(g.result)
		g.emit(opReturn)
	}
	g.maybe(g.statement)
	g.emit(opEnd)
	g.labels = g.labels[:len(g.labels)-1]
}
