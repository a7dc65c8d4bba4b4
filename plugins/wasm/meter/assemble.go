package meter

// assemble returns the module with metered code and the fuel.
func (m *module) assemble(code []byte) []byte {
	out := make([]byte, 0, len(m.b)+len(code)+256)
	out = append(out, m.b[:8]...)
	for _, id := range order {
		out = m.appendSection(out, id, code)
	}
	if names := m.functionNames(); names != nil {
		out = appendNames(out, names)
	}
	return out
}

func (m *module) appendSection(out []byte, id byte, code []byte) []byte {
	s := m.sections[id]
	entries := m.b[s.start:s.end]
	switch id {
	case typeSection:
		return appendEntries(out, id, s.count+m.added, entries, m.newTypes)
	case tableSection:
		return appendEntries(out, id, s.count, m.tableEntries(), nil)
	case memorySection:
		return appendEntries(out, id, s.count, m.memoryEntries(), nil)
	case globalSection:
		return appendEntries(out, id, s.count+1, entries, m.fuel())
	case exportSection:
		return appendEntries(out, id, s.count+1, entries, m.fuelExport())
	case codeSection:
		return appendEntries(out, id, s.count, code, nil)
	case startSection, dataCountSection:
		if !s.present {
			return out
		}
		return append(appendU32(append(out, id), uint32(len(entries))), entries...)
	}
	return appendEntries(out, id, s.count, entries, nil)
}

// appendEntries appends a section of count entries, or nothing if there are none.
func appendEntries(out []byte, id byte, count int, entries, more []byte) []byte {
	if count == 0 {
		return out
	}
	n := appendU32(nil, uint32(count))
	out = appendU32(append(out, id), uint32(len(n)+len(entries)+len(more)))
	out = append(out, n...)
	out = append(out, entries...)
	return append(out, more...)
}

func (m *module) tableEntries() (b []byte) {
	for _, t := range m.tables[m.imported[Table]:] {
		b = appendLimits(append(b, byte(t.Value)), t.Limits)
	}
	return b
}

func (m *module) memoryEntries() (b []byte) {
	for _, l := range m.memories[m.imported[Memory]:] {
		b = appendLimits(b, l)
	}
	return b
}

func appendLimits(b []byte, l Limits) []byte {
	return appendU32(appendU32(append(b, 1), l.Min), l.Max)
}

// fuel is the entry of the global: a mutable i64.
func (m *module) fuel() []byte {
	b := []byte{byte(I64), 1, opI64Const}
	return append(appendS64(b, m.options.Fuel), opEnd)
}

func (m *module) fuelExport() []byte {
	b := appendName(nil, m.options.Global)
	return appendU32(append(b, byte(Global)), uint32(len(m.globals)))
}

// appendResultType appends the type of a block without parameters and with those results.
func (m *module) appendResultType(b []byte, results []ValueType) []byte {
	switch len(results) {
	case 0:
		return append(b, emptyBlock)
	case 1:
		return append(b, byte(results[0]))
	}
	return appendS64(b, int64(m.resultType(results)))
}

// resultType returns the index of the function type with those results and no parameters.
func (m *module) resultType(results []ValueType) int {
	if m.resultTypes == nil {
		m.resultTypes = make(map[string]int)
		for i, t := range m.types {
			if len(t.params) == 0 {
				m.resultTypes[key(t.results)] = i
			}
		}
	}
	i, ok := m.resultTypes[key(results)]
	if !ok {
		i = len(m.types) + m.added
		m.added++
		m.resultTypes[key(results)] = i
		m.newTypes = appendU32(append(m.newTypes, 0x60, 0), uint32(len(results)))
		m.newTypes = append(m.newTypes, key(results)...)
	}
	return i
}

func key(types []ValueType) string {
	b := make([]byte, 0, len(types))
	for _, t := range types {
		b = append(b, byte(t))
	}
	return string(b)
}

// appendNames appends a section "name" with nothing but the functions' names.
func appendNames(out, names []byte) []byte {
	content := appendU32(append(appendName(nil, "name"), 1), uint32(len(names)))
	content = append(content, names...)
	out = appendU32(append(out, customSection), uint32(len(content)))
	return append(out, content...)
}

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
