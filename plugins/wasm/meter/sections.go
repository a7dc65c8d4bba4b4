package meter

import "slices"

func (m *module) typeEntry(r *reader) {
	at := r.pos
	switch form := r.byte(); form {
	case 0x60:
	case 0x4e, 0x4f, 0x50, 0x5e, 0x5f:
		r.failf(at, "garbage collection (type form %#x) cannot be metered", form)
	default:
		r.failf(at, "type form %#x is unknown", form)
	}
	m.types = append(m.types, signature{params: m.values(r, "parameters"), results: m.values(r, "results")})
}

func (m *module) values(r *reader, what string) []ValueType {
	n := r.count(what, 1, maxValues)
	types := make([]ValueType, 0, n)
	for range n {
		types = append(types, r.valueType())
	}
	return types
}

func (r *reader) valueType() ValueType {
	at := r.pos
	switch t := ValueType(r.byte()); t {
	case I32, I64, F32, F64, V128, FuncRef, ExternRef:
		return t
	case 0x69:
		r.failf(at, "exceptions (type exnref) cannot be metered")
	case 0x63, 0x64:
		r.failf(at, "typed function references (type %#x) cannot be metered", byte(t))
	default:
		r.failf(at, "value type %#x is unknown", byte(t))
	}
	return 0
}

func (r *reader) refType() ValueType {
	at := r.pos
	t := r.valueType()
	if r.err == nil && t != FuncRef && t != ExternRef {
		r.failf(at, "%s is not a reference type", t)
	}
	return t
}

func (m *module) importEntry(r *reader) {
	i := Import{Module: r.name(), Name: r.name()}
	at := r.pos
	kind := Kind(r.byte())
	switch kind {
	case Func:
		i.Type = m.addFunction(r)
	case Table:
		i.Type = m.addTable(r)
		m.importRefs = true
	case Memory:
		i.Type = m.addMemory(r)
	case Global:
		i.Type = m.addGlobal(r)
	case 4:
		r.failf(at, "exceptions (an imported tag) cannot be metered")
	default:
		r.failf(at, "%s of an import is unknown", kind)
	}
	if r.err != nil {
		return
	}
	m.imported[kind]++
	m.info.Imports = append(m.info.Imports, i)
}

func (m *module) functionEntry(r *reader) { m.addFunction(r) }

func (m *module) addFunction(r *reader) Type {
	i := r.index("type", len(m.types))
	m.functions = append(m.functions, i)
	return m.functionType(len(m.functions) - 1)
}

func (m *module) functionType(f int) Type {
	if int(m.functions[f]) >= len(m.types) {
		return Type{} // has been reported
	}
	t := m.types[m.functions[f]]
	return Type{Kind: Func, Params: t.params, Results: t.results}
}

func (m *module) tableEntry(r *reader) {
	m.addTable(r)
	t := &m.tables[len(m.tables)-1]
	t.Limits = t.Limits.clamp(max(t.Limits.Min, m.options.TableElements))
}

func (m *module) addTable(r *reader) Type {
	if r.pos < r.end && r.b[r.pos] == 0x40 {
		r.failf(r.pos, "typed function references (a table with an initializer) cannot be metered")
	}
	t := Type{Kind: Table, Value: r.refType(), Limits: r.limits("table")}
	m.tables = append(m.tables, t)
	return t
}

func (m *module) memoryEntry(r *reader) {
	at := r.pos
	l := m.addMemory(r).Limits
	if limit := m.options.MemoryPages; l.Min > limit {
		r.failf(at, "memory starts with %d pages; accepted are up to %d", l.Min, limit)
		return
	}
	if l.Max > 65536 {
		r.failf(at, "memory of up to %d pages is more than 65536", l.Max)
		return
	}
	m.memories[len(m.memories)-1] = l.clamp(m.options.MemoryPages)
}

func (m *module) addMemory(r *reader) Type {
	at := r.pos
	l := r.limits("memory")
	m.memories = append(m.memories, l)
	if len(m.memories) > 1 {
		r.failf(at, "several memories cannot be metered")
	}
	return Type{Kind: Memory, Limits: l}
}

func (r *reader) limits(what string) Limits {
	at := r.pos
	flags := r.byte()
	switch {
	case flags&^1 == 0:
	case flags&^3 == 0:
		r.failf(at, "threads (a shared %s) cannot be metered", what)
	case flags&^7 == 0:
		r.failf(at, "memory64 (a %s with 64-bit addresses) cannot be metered", what)
	default:
		r.failf(at, "limits %#x of a %s are unknown", flags, what)
	}
	l := Limits{Min: r.u32(), Bounded: flags&1 != 0}
	if l.Bounded {
		l.Max = r.u32()
		if l.Max < l.Min {
			r.failf(at, "%s starts with %d, which is above its maximum of %d", what, l.Min, l.Max)
		}
	}
	return l
}

func (m *module) globalEntry(r *reader) {
	m.addGlobal(r)
	m.constant(r)
}

func (m *module) addGlobal(r *reader) Type {
	t := Type{Kind: Global, Value: r.valueType()}
	at := r.pos
	mutable := r.byte()
	if mutable > 1 {
		r.failf(at, "mutability %#x of a global is unknown", mutable)
	}
	t.Mutable = mutable == 1
	m.globals = append(m.globals, t)
	return t
}

// constant reads a constant expression: a single instruction and end.
func (m *module) constant(r *reader) {
	at := r.pos
	switch op := r.byte(); op {
	case opI32Const:
		r.skipLEB(5)
	case opI64Const:
		r.skipLEB(10)
	case opF32Const:
		r.skip(4)
	case opF64Const:
		r.skip(8)
	case opGlobalGet:
		r.index("imported global", m.imported[Global])
	case opRefNull:
		r.refType()
	case opRefFunc:
		m.reference(r)
	case opVector:
		m.vectorConstant(r)
	default:
		r.failf(at, "opcode %#x in a constant expression is unknown", op)
	}
	at = r.pos
	if op := r.byte(); r.err == nil && op != opEnd {
		r.failf(at, "extended constant expressions (opcode %#x) cannot be metered", op)
	}
}

func (m *module) vectorConstant(r *reader) {
	at := r.pos
	if op := r.byte(); r.err == nil && op != vecConst {
		r.failf(at, "vector opcode %#x in a constant expression is unknown", op)
	}
	r.skip(16)
}

// reference reads the index of a referenced function.
func (m *module) reference(r *reader) {
	i := r.index("function", len(m.functions))
	if int(i) < m.imported[Func] {
		m.importRefs = true
	}
}

func (m *module) exportEntry(r *reader) {
	at := r.pos
	e := Export{Name: r.name()}
	if e.Name == m.options.Global {
		r.failf(at, "export %q is reserved for the fuel", e.Name)
		return
	}
	kindAt := r.pos
	switch kind := Kind(r.byte()); kind {
	case Func:
		i := r.index("function", len(m.functions))
		if r.err == nil {
			m.importRefs = m.importRefs || int(i) < m.imported[Func]
			e.Type = m.functionType(int(i))
		}
	case Table:
		e.Type = indexed(r, "table", m.tables)
	case Memory:
		e.Type = Type{Kind: Memory, Limits: indexed(r, "memory", m.memories)}
	case Global:
		e.Type = indexed(r, "global", m.globals)
	default:
		r.failf(kindAt, "%s of an export is unknown", kind)
	}
	m.info.Exports = append(m.info.Exports, e)
}

func indexed[T any](r *reader, what string, all []T) (t T) {
	i := r.index(what, len(all))
	if r.err != nil {
		return t
	}
	return all[i]
}

// elementEntry reads an element segment. Its first number is a set of flags:
// 1 passive or declarative, 2 explicit table (or declarative), 4 expressions instead of indexes.
func (m *module) elementEntry(r *reader) {
	at := r.pos
	flags := r.u32()
	if flags > 7 {
		r.failf(at, "element segment of kind %d is unknown", flags)
		return
	}
	if flags&1 == 0 {
		if flags&2 != 0 {
			r.index("table", len(m.tables))
		}
		m.constant(r)
	}
	if flags&3 != 0 {
		m.elementKind(r, flags&4 != 0)
	}
	entry := m.reference
	size := 1
	if flags&4 != 0 {
		entry, size = m.constant, 3
	}
	n := r.count("elements", size, maxElements-m.elements)
	m.elements += n
	for i := 0; i < n && r.err == nil; i++ {
		entry(r)
	}
}

func (m *module) elementKind(r *reader, expressions bool) {
	if expressions {
		r.refType()
		return
	}
	at := r.pos
	if kind := r.byte(); kind != 0 {
		r.failf(at, "element kind %#x is unknown", kind)
	}
}

// codeEntry skips a body: meterCode reads it when all sections are known.
func (m *module) codeEntry(r *reader) { r.bytes("bytes of a function body") }

// dataEntry reads a data segment: 0 active, 1 passive, 2 active with a memory index.
func (m *module) dataEntry(r *reader) {
	at := r.pos
	kind := r.u32()
	if kind > 2 {
		r.failf(at, "data segment of kind %d is unknown", kind)
		return
	}
	if kind == 2 {
		r.index("memory", len(m.memories))
	}
	if kind != 1 {
		m.constant(r)
	}
	r.bytes("bytes of a data segment")
}

// functionNames returns the encoded functions' names of the custom section. It returns
// nothing if they are absent or malformed, because only stack traces use them.
func (m *module) functionNames() []byte {
	r := &reader{b: m.b, pos: m.names.start, end: m.names.end, function: -1}
	for !r.done() {
		id := r.byte()
		body := r.within(int(r.u32()))
		if r.err == nil && id == 1 {
			return m.checkedNames(&body)
		}
	}
	return nil
}

func (m *module) checkedNames(r *reader) []byte {
	names := r.b[r.pos:r.end]
	n := r.count("names", 2, maxFunctions)
	last := -1
	for i := 0; i < n && r.err == nil; i++ {
		at := r.pos
		f := int(r.index("function", len(m.functions)))
		if f <= last {
			r.failf(at, "function %d is named out of order", f)
		}
		last = f
		r.name()
	}
	if r.err != nil || !r.done() {
		return nil
	}
	return slices.Clone(names)
}
