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
