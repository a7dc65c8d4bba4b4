package meter

// immediates reads the immediates of an opcode.
func (s *scanner) immediates(sh shape) {
	switch sh {
	case call:
		s.call()
	case callIndirect:
		s.callIndirect()
	case local:
		s.index("local", s.locals)
	case global:
		s.index("global", len(s.m.globals))
	case index1:
		s.u32()
	case index2:
		s.u32()
		s.u32()
	case memoryAccess:
		s.memoryArgument()
	case memoryAccessLane:
		s.memoryArgument()
		s.byte()
	case lane:
		s.byte()
	case zero1:
		s.zero()
	case zero2:
		s.zero()
		s.zero()
	case indexZero1:
		s.u32()
		s.zero()
	case leb32:
		s.skipLEB(5)
	case leb64:
		s.skipLEB(10)
	case bytes4:
		s.skip(4)
	case bytes8:
		s.skip(8)
	case bytes16:
		s.skip(16)
	case selectTyped:
		s.selectTyped()
	case refNull:
		s.refType()
	case refFunc:
		s.index("function", len(s.m.functions))
	}
}

// memoryArgument reads alignment and offset. A flag in the alignment would announce the
// index of a memory.
func (s *scanner) memoryArgument() {
	at := s.pos
	if align := s.u32(); align >= 0x40 {
		s.failf(at, "several memories (alignment %#x) cannot be metered", align)
	}
	s.u32()
}

// zero reads the index of the only memory.
func (s *scanner) zero() {
	at := s.pos
	if b := s.byte(); s.err == nil && b != 0 {
		s.failf(at, "several memories (memory %d) cannot be metered", b)
	}
}

func (s *scanner) selectTyped() {
	at := s.pos
	if n := s.byte(); s.err == nil && n != 1 {
		s.failf(at, "select of %d types is unknown", n)
	}
	s.valueType()
}

func (s *scanner) call() {
	f := s.index("function", len(s.m.functions))
	if s.err != nil {
		return
	}
	s.effort.instructions += s.m.types[s.m.functions[f]].arity()
	if int(f) < s.m.imported[Func] {
		s.charge(uint64(s.m.options.HostCall))
	}
}

func (s *scanner) callIndirect() {
	t := s.index("type", len(s.m.types))
	s.index("table", len(s.m.tables))
	if s.err != nil {
		return
	}
	s.effort.instructions += s.m.types[t].arity()
	if s.m.importRefs {
		s.charge(uint64(s.m.options.HostCall))
	}
}

// blockType reads nothing, a value type, or the index of a function type, a signed
// LEB128 of 33 bits that is not negative. It returns how many values the block takes and gives.
func (s *scanner) blockType() (arity int) {
	if s.done() {
		s.byte()
		return 0
	}
	at, c := s.pos, s.b[s.pos]
	switch {
	case c == emptyBlock:
		s.pos++
		return 0
	case c&0xc0 == 0x40:
		s.valueType()
		return 1
	}
	t := s.unsigned33()
	if s.err == nil && t >= uint64(len(s.m.types)) {
		s.failf(at, "type %d does not exist: there are %d", t, len(s.m.types))
	}
	if s.err != nil {
		return 0
	}
	return s.m.types[t].arity()
}

func (s *scanner) unsigned33() (v uint64) {
	start := s.pos
	for shift := 0; shift < 35; shift += 7 {
		c := s.byte()
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			if c&0x40 != 0 || v >= 1<<32 {
				break
			}
			return v
		}
	}
	s.failf(start, "block type is malformed")
	return 0
}
