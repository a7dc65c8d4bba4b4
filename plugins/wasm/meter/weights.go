package meter

// Opcodes that are treated specially, or written.
const (
	opUnreachable  = 0x00
	opNop          = 0x01
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opSelectTyped  = 0x1c
	opLocalGet     = 0x20
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI64LtS       = 0x53
	opI64Sub       = 0x7d
	opI64Shl       = 0x86
	opI64ShrU      = 0x88
	opI64ExtendU   = 0xad
	opRefNull      = 0xd0
	opRefFunc      = 0xd2
	opMisc         = 0xfc
	opVector       = 0xfd
	vecConst       = 0x0c
)

// shape describes the immediates of an opcode.
type shape byte

const (
	unknown shape = iota
	plain         // nothing
	blockStart
	elseOrEnd
	branch
	table // of labels
	stop  // return, unreachable
	call
	callIndirect
	local
	global
	index1 // an index that the validator checks
	index2
	memoryAccess // alignment and offset
	memoryAccessLane
	lane
	zero1 // a reserved byte
	zero2
	indexZero1
	leb32
	leb64
	bytes4
	bytes8
	bytes16
	selectTyped
	refNull
	refFunc
	prefixed
)

// instruction describes an opcode for the scanner.
type instruction struct {
	shape shape
	units uint8
	// bulk is how the topmost operand, a length, is charged.
	bulk bulk
}

// bulk says how to convert a length to units, as a shift in bits: eight bytes cost one unit, a page of memory 8192, an element one.
type bulk int8

const (
	noBulk bulk = iota
	bulkBytes
	bulkElements
	bulkPages
)

// Prices of instructions that do not cost one unit. They follow the worst times measured
// with wazero's compiler, including denormal numbers: a unit takes at most about a
// nanosecond, and usually a quarter of that. There are two exceptions. A load that misses
// all caches takes as long as hundreds of others; the size of a guest's memory limits such
// loads. And memory.grow charges only a part of the first access to a page.
const (
	unitsMemory   = 2 // loads and stores
	unitsMultiply = 2
	unitsFloat    = 3 // floating point except comparisons
	unitsDivide   = 8
	unitsRoot     = 16 // and floating-point division
	unitsVector   = 2
	unitsLanes    = 4 // of vectors, if it takes several machine instructions
	unitsConvert  = 8 // of vectors, likewise
	unitsLaneRoot = 32
	unitsCall     = 4
	unitsIndirect = 12
	unitsEntry    = 16
	unitsBulk     = 32 // in addition to the length
	unitsRef      = 64
	unitsGrow     = 255 // in addition to the length
)

// The tables of opcodes: one-byte opcodes, those after 0xfc and those after 0xfd.
var (
	opcodes       = oneByteOpcodes()
	miscOpcodes   = miscellaneous()
	vectorOpcodes = vectors()
)

func fill(t *[256]instruction, from, to int, i instruction) {
	for op := from; op <= to; op++ {
		t[op] = i
	}
}

func oneByteOpcodes() (t [256]instruction) {
	t[opUnreachable] = instruction{shape: stop}
	t[opNop] = instruction{shape: plain}
	fill(&t, opBlock, opIf, instruction{shape: blockStart})
	t[opIf].units = 1
	t[opElse] = instruction{shape: elseOrEnd}
	t[opEnd] = instruction{shape: elseOrEnd}
	fill(&t, opBr, opBrIf, instruction{shape: branch, units: 1})
	t[opBrTable] = instruction{shape: table, units: 2}
	t[opReturn] = instruction{shape: stop, units: 1}
	t[opCall] = instruction{shape: call, units: unitsCall}
	t[opCallIndirect] = instruction{shape: callIndirect, units: unitsIndirect}
	fill(&t, 0x1a, 0x1b, instruction{shape: plain, units: 1}) // drop, select
	t[opSelectTyped] = instruction{shape: selectTyped, units: 1}
	fill(&t, opLocalGet, opLocalTee, instruction{shape: local, units: 1})
	fill(&t, opGlobalGet, opGlobalSet, instruction{shape: global, units: 1})
	fill(&t, 0x25, 0x26, instruction{shape: index1, units: 2}) // table.get, table.set
	fill(&t, 0x28, 0x35, instruction{shape: memoryAccess, units: unitsMemory})
	fill(&t, 0x36, 0x3e, instruction{shape: memoryAccess, units: unitsMemory})
	t[0x3f] = instruction{shape: zero1, units: 1} // memory.size
	t[opMemoryGrow] = instruction{shape: zero1, units: unitsGrow, bulk: bulkPages}
	t[opI32Const] = instruction{shape: leb32, units: 1}
	t[opI64Const] = instruction{shape: leb64, units: 1}
	t[opF32Const] = instruction{shape: bytes4, units: 1}
	t[opF64Const] = instruction{shape: bytes8, units: 1}
	numeric(&t)
	t[opRefNull] = instruction{shape: refNull, units: 1}
	t[0xd1] = instruction{shape: plain, units: 1} // ref.is_null
	t[opRefFunc] = instruction{shape: refFunc, units: unitsRef}
	t[opMisc] = instruction{shape: prefixed}
	t[opVector] = instruction{shape: prefixed}
	return t
}

func numeric(t *[256]instruction) {
	fill(t, 0x45, 0xc4, instruction{shape: plain, units: 1})
	fill(t, 0x8b, 0xa6, instruction{shape: plain, units: unitsFloat})
	fill(t, 0xa8, 0xab, instruction{shape: plain, units: unitsFloat}) // conversions from and to it
	fill(t, 0xae, 0xbb, instruction{shape: plain, units: unitsFloat})
	weigh(t, unitsMultiply, 0x6c, 0x7e)
	weigh(t, unitsDivide, 0x6d, 0x6e, 0x6f, 0x70, 0x7f, 0x80, 0x81, 0x82)
	weigh(t, unitsRoot, 0x91, 0x95, 0x9f, 0xa3)
}

// weigh sets the prices of opcodes.
func weigh(t *[256]instruction, units uint8, ops ...byte) {
	for _, op := range ops {
		t[op].units = units
	}
}

func miscellaneous() (t [256]instruction) {
	fill(&t, 0, 7, instruction{shape: plain, units: unitsConvert})           // trunc_sat
	t[8] = instruction{shape: indexZero1, units: unitsBulk, bulk: bulkBytes} // memory.init
	t[9] = instruction{shape: index1, units: 2}                              // data.drop
	t[10] = instruction{shape: zero2, units: unitsBulk, bulk: bulkBytes}     // memory.copy
	t[11] = instruction{shape: zero1, units: unitsBulk, bulk: bulkBytes}     // memory.fill
	t[12] = instruction{shape: index2, units: unitsBulk, bulk: bulkElements} // table.init
	t[13] = instruction{shape: index1, units: 2}                             // elem.drop
	t[14] = instruction{shape: index2, units: unitsBulk, bulk: bulkElements} // table.copy
	t[15] = instruction{shape: index1, units: unitsGrow, bulk: bulkElements} // table.grow
	t[16] = instruction{shape: index1, units: 2}                             // table.size
	t[17] = instruction{shape: index1, units: unitsBulk, bulk: bulkElements} // table.fill
	return t
}

func vectors() (t [256]instruction) {
	fill(&t, 0x00, 0xff, instruction{shape: plain, units: unitsVector})
	fill(&t, 0x00, 0x0b, instruction{shape: memoryAccess, units: unitsVector}) // loads, v128.store
	t[vecConst] = instruction{shape: bytes16, units: 1}
	t[0x0d] = instruction{shape: bytes16, units: unitsVector}                      // i8x16.shuffle
	fill(&t, 0x15, 0x22, instruction{shape: lane, units: unitsVector})             // extract, replace
	fill(&t, 0x54, 0x5b, instruction{shape: memoryAccessLane, units: unitsVector}) // load and store of a lane
	fill(&t, 0x5c, 0x5d, instruction{shape: memoryAccess, units: unitsVector})     // load with zero
	weigh(&t, unitsLanes, 0x62, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x74, 0x75, 0x7a, 0x7c, 0x7d, 0x7e, 0x7f,
		0x82, 0x94, 0x9c, 0x9d, 0x9e, 0x9f, 0xb5, 0xba, 0xbc, 0xbd, 0xbe, 0xbf, 0xcc, 0xd5, 0xdc, 0xdd, 0xde, 0xdf,
		0xe4, 0xe5, 0xe6, 0xe8, 0xe9, 0xf0, 0xf1, 0xf2, 0xf4, 0xf5)
	weigh(&t, unitsConvert, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff)
	weigh(&t, unitsRoot, 0xe3, 0xef)
	weigh(&t, unitsLaneRoot, 0xe7, 0xf3) // division
	unassigned := []byte{
		0x9a, 0xa2, 0xa5, 0xa6, 0xaf, 0xb0, 0xb2, 0xb3, 0xb4, 0xbb, 0xc2, 0xc5, 0xc6,
		0xcf, 0xd0, 0xd2, 0xd3, 0xd4, 0xe2, 0xee,
	}
	for _, op := range unassigned {
		t[op] = instruction{}
	}
	return t
}

// Limits on the effort of compiling a function. An engine's compiler needs far more than linear time and memory for some functions: a few
// kilobytes of nested loops over a thousand locals keep wazero's compiler busy for minutes, and it cannot be interrupted. Compilers
// of real languages stay below a third of these limits.
const (
	maxLocals       = 10_000 // declared by a function
	maxLabels       = 10_000 // of a br_table
	maxInstructions = 75_000 // of a function: compiling one may take five kilobytes
	// maxFunctionEffort and maxModuleEffort are in units of 2 µs of wazero's compiler.
	maxFunctionEffort = 600_000
	maxModuleEffort   = 12_000_000
)

// effort estimates the effort of compiling a function.
type effort struct {
	instructions int // including values that calls and branches carry
	blocks       int // basic blocks: dominators take time in proportion to their square
	merges       int // points where a local may be merged, multiplied by the loops around them
}

// units returns the estimate for a function with that many locals.
func (e effort) units(locals int) int {
	return 50 + e.instructions/2 + e.blocks*e.blocks/100 + e.merges*locals
}

// checkEffort adds a function's effort to the total and checks both against their limits.
func (s *scanner) checkEffort() {
	units := s.effort.units(s.locals)
	if units > maxFunctionEffort || s.effort.instructions > maxInstructions {
		s.failf(s.end, "function is too complex to compile: %d instructions, %d blocks, %d locals",
			s.effort.instructions, s.effort.blocks, s.locals)
		return
	}
	s.total += units
	if s.total > maxModuleEffort {
		s.failf(s.end, "module is too complex to compile")
	}
}
