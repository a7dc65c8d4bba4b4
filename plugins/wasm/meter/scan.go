package meter

import "math"

const (
	noPoint = -1 // of a class in code that cannot be reached
	itself  = -1 // parent of a class that depends on none
)

// point is a position where a charge may be inserted: the beginning of a class, or
// a bulk instruction.
type point struct {
	at     int // offset in the module, before which the charge is inserted
	depth  int // number of open labels
	parent int // class that is executed before this one at least as often and can pay for it, or itself
	// due means that it is charged whatever it costs: function entries and loop heads.
	due    bool
	bulk   bulk
	units  uint64 // price of its own instructions
	folded uint64 // price of other classes that are charged here
}

// frame is an open block, loop, if, or the function.
type frame struct {
	op    byte
	arity int // number of values that it takes and returns
	// outside is the class before the frame; noPoint if the frame cannot be reached.
	outside int
	// escape is the outermost frame to which a branch inside leaves; frames are counted from 0, the function.
	escape int
	// reached reports whether a branch leads to its label.
	reached bool
	// then is, in an else, the class in which the first arm ended.
	then int
}

// scanner divides the code of a function into classes. It is reused for the next function, so that its slices grow only once.
type scanner struct {
	m *module
	reader
	locals int // parameters included
	points []point
	frames []frame
	loops  int // open ones
	effort effort
	total  int // effort of all functions, in units
	class  int // class of the instruction being read; noPoint: it cannot be reached
	bulks  bool
}

// scan reads the instructions of a function up to its end. locals counts its locals including parameters; declared counts those that are
// declared.
func (s *scanner) scan(locals, declared, results int) {
	s.locals, s.loops, s.bulks = locals, 0, false
	s.effort = effort{}
	s.points, s.frames = s.points[:0], s.frames[:0]
	s.frames = append(s.frames, frame{op: opBlock, arity: results, outside: noPoint, escape: math.MaxInt})
	s.begin(itself, true)
	s.charge(unitsEntry + uint64(declared))
	for len(s.frames) > 0 && s.err == nil && s.effort.instructions <= maxInstructions {
		s.instruction()
	}
	s.checkEffort()
	if !s.done() {
		s.failf(s.pos, "code goes on after the function's end")
	}
	if !s.m.options.exact {
		s.fold()
	}
}

// begin starts a class here.
func (s *scanner) begin(parent int, due bool) {
	s.class = len(s.points)
	s.effort.blocks++
	s.effort.merges += 1 + s.loops
	s.points = append(s.points, point{at: s.pos, depth: len(s.frames), parent: parent, due: due})
}

// branchOff starts a class that depends on the present one, if the present one can be reached.
func (s *scanner) branchOff() {
	if s.class != noPoint {
		s.begin(s.class, false)
	}
}

func (s *scanner) charge(units uint64) {
	if s.class != noPoint {
		s.points[s.class].units += units
	}
}

func (s *scanner) instruction() {
	at := s.pos
	s.effort.instructions++
	op := s.byte()
	i := opcodes[op]
	if i.shape == prefixed {
		i = s.prefixed(op, at)
	}
	if i.bulk != noBulk && s.class != noPoint {
		s.bulks = true
		s.points = append(s.points, point{at: at, depth: len(s.frames), parent: itself, bulk: i.bulk})
	}
	s.charge(uint64(i.units))
	switch i.shape {
	case plain:
	case unknown:
		s.refuse(op, at)
	case blockStart, elseOrEnd, branch, table, stop:
		s.control(op, i.shape)
	default:
		s.immediates(i.shape)
	}
}

// prefixed reads the second half of an opcode, which must be in its shortest form: engines interpret longer ones differently.
func (s *scanner) prefixed(prefix byte, at int) instruction {
	start := s.pos
	op := s.u32()
	if s.err != nil {
		return instruction{}
	}
	shortest := 1
	if op >= 0x80 {
		shortest = 2
	}
	if prefix == opVector && op > 0xff {
		s.failf(at, "relaxed vectors (opcode %#x %#x) cannot be metered", prefix, op)
		return instruction{}
	}
	if op > 0xff || s.pos-start != shortest {
		s.failf(at, "opcode %#x %#x is unknown or overlong", prefix, op)
		return instruction{}
	}
	t := &miscOpcodes
	if prefix == opVector {
		t = &vectorOpcodes
	}
	if t[op].shape == unknown {
		s.failf(at, "opcode %#x %#x is unknown", prefix, op)
	}
	return t[op]
}

func (s *scanner) refuse(op byte, at int) {
	what := "an unknown feature"
	switch op {
	case 0x06, 0x07, 0x08, 0x09, 0x0a, 0x18, 0x19, 0x1f:
		what = "exceptions"
	case 0x12, 0x13:
		what = "tail calls"
	case 0x14, 0x15, 0xd4, 0xd5, 0xd6:
		what = "typed function references"
	case 0xd3, 0xfb:
		what = "garbage collection"
	case 0xfe:
		what = "threads"
	}
	s.failf(at, "%s (opcode %#x) cannot be metered", what, op)
}

// fold moves the charges of cheap classes to the point of the class that they depend on. A class comes after the one that it depends on, so
// the loop goes backwards.
func (s *scanner) fold() {
	for i := len(s.points) - 1; i > 0; i-- {
		p := &s.points[i]
		if p.due || p.parent == itself {
			continue
		}
		parent := &s.points[p.parent]
		if sum := p.units + p.folded; parent.folded+sum <= foldLimit {
			parent.folded += sum
			p.units, p.folded = 0, 0
		}
	}
}
