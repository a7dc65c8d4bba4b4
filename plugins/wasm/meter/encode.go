package meter

// emptyBlock is the type of a block without parameters and results.
const emptyBlock = 0x40

// meterCode returns the metered entries of the code section. It adds the types that
// it needs.
func (m *module) meterCode() ([]byte, error) {
	section := m.sections[codeSection]
	r := reader{b: m.b, pos: section.start, end: section.end, function: -1}
	s := &scanner{m: m}
	out := make([]byte, 0, 2*(section.end-section.start))
	var body []byte
	for i := range section.count {
		f := m.imported[Func] + i
		inner := r.within(int(r.u32()))
		inner.function = f
		s.reader = inner
		body = s.meter(body[:0], f)
		if s.err != nil {
			return nil, s.err
		}
		out = appendU32(out, uint32(len(body)))
		out = append(out, body...)
	}
	return out, nil
}

// meter appends the metered body of function f to b. It looks like this, so that
// running out of fuel is a branch that is never taken to the end of the function:
//
//	(block $exhausted
//	  (block (result …)
//	    the function's own instructions, with charges)
//	  return)
//	unreachable
func (s *scanner) meter(b []byte, f int) []byte {
	signature := s.m.types[s.m.functions[f]]
	start := s.pos
	groups, declared := s.declarations()
	entries := s.b[start:s.pos]
	code := s.pos
	s.scan(len(signature.params)+declared, declared, len(signature.results))
	if s.err != nil {
		return nil
	}
	b = s.appendLocals(b, entries, groups)
	b = append(b, opBlock, emptyBlock, opBlock)
	b = s.m.appendResultType(b, signature.results)
	for _, p := range s.points {
		b = append(b, s.b[code:p.at]...)
		code = p.at
		b = s.appendCharge(b, p)
	}
	b = append(b, s.b[code:s.end]...)
	return append(b, opReturn, opEnd, opUnreachable, opEnd)
}

// declarations reads the locals that a function declares: groups of a number and a type.
func (s *scanner) declarations() (groups, locals int) {
	groups = s.count("groups of locals", 2, maxLocals)
	for i := 0; i < groups && s.err == nil; i++ {
		at := s.pos
		n := s.u32()
		if int64(n) > int64(maxLocals-locals) {
			s.failf(at, "there are more than %d locals", maxLocals)
			return 0, 0
		}
		locals += int(n)
		s.valueType()
	}
	return groups, locals
}

// appendLocals appends the declared locals and, if bulk instructions need it, one
// i32 for their length.
func (s *scanner) appendLocals(b, entries []byte, groups int) []byte {
	if !s.bulks {
		return append(b, entries...)
	}
	prefix := len(appendU32(nil, uint32(groups)))
	b = appendU32(b, uint32(groups+1))
	b = append(b, entries[prefix:]...)
	return append(b, 1, byte(I32))
}

// appendCharge appends the instructions that subtract units from the fuel and leave
// the function if it is exhausted.
func (s *scanner) appendCharge(b []byte, p point) []byte {
	units := p.units + p.folded
	if p.bulk == noBulk && units == 0 && !p.due {
		return b
	}
	fuel := uint32(len(s.m.globals))
	if p.bulk != noBulk {
		b = appendU32(append(b, opLocalTee), uint32(s.locals))
	}
	b = appendU32(append(b, opGlobalGet), fuel)
	if p.bulk != noBulk {
		b = appendLength(b, p.bulk, uint32(s.locals))
	} else {
		b = appendS64(append(b, opI64Const), int64(max(units, 1)))
	}
	b = append(b, opI64Sub)
	b = appendU32(append(b, opGlobalSet), fuel)
	b = appendU32(append(b, opGlobalGet), fuel)
	b = append(b, opI64Const, 0, opI64LtS, opBrIf)
	return appendU32(b, uint32(p.depth))
}

// appendLength appends the units for a length, an unsigned number in a local.
func appendLength(b []byte, kind bulk, local uint32) []byte {
	b = appendU32(append(b, opLocalGet), local)
	b = append(b, opI64ExtendU)
	switch kind {
	case bulkBytes: // eight for a unit
		b = append(b, opI64Const, 3, opI64ShrU)
	case bulkPages: // 65536 bytes each
		b = append(b, opI64Const, 13, opI64Shl)
	}
	return b
}
