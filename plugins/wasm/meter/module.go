package meter

import (
	"bytes"
	"fmt"
	"slices"
)

// Limits on the content of a module. Real modules, including a Go program of 8 MiB, stay far below. An engine allocates many times the
// bytes of each entry, so these limits, not the module's size, bound the memory for loading it.
const (
	maxTypes     = 10_000
	maxValues    = 1_000 // parameters, or results, of a function
	maxImports   = 1_000
	maxFunctions = 100_000
	maxTables    = 16
	maxGlobals   = 10_000
	maxExports   = 10_000
	maxSegments  = 100_000 // data segments, or element segments
	maxElements  = 500_000 // in all element segments
)

// The sections, numbered as in the binary format.
const (
	customSection = iota
	typeSection
	importSection
	functionSection
	tableSection
	memorySection
	globalSection
	exportSection
	startSection
	elementSection
	codeSection
	dataSection
	dataCountSection
	tagSection
)

// order is the order of sections: data count comes before the code.
var order = [...]byte{
	typeSection, importSection, functionSection, tableSection, memorySection, globalSection,
	exportSection, startSection, elementSection, dataCountSection, codeSection, dataSection,
}

// module is a parsed module: the positions of its sections, and the index spaces.
type module struct {
	b       []byte
	options Options
	info    Info

	// sections has the entries of each section, without the count before them.
	sections [tagSection]span
	names    span // of the custom section "name"

	types     []signature
	functions []uint32 // the type of each, imported ones first
	tables    []Type   // imported ones first
	memories  []Limits // imported one first; at most one
	globals   []Type   // imported ones first

	imported   [Global + 1]int // number of imports of each kind
	elements   int             // in all element segments
	segments   int             // of data, as announced by the data count section; -1: it is absent
	importRefs bool            // imports may be called through a table

	// Types of blocks that the rewrite adds after the module's own types.
	resultTypes map[string]int // of functions without parameters, by their results
	newTypes    []byte         // entries for the type section
	added       int            // number of added types
}

// span is a range of the module that contains count entries.
type span struct {
	start, end, count int
	present           bool
}

type signature struct{ params, results []ValueType }

func (s signature) arity() int { return len(s.params) + len(s.results) }

// instead describes input that is not a module.
func instead(b []byte) string {
	switch head := bytes.TrimSpace(b[:min(len(b), 256)]); {
	case len(b) == 0:
		return "it is empty"
	case bytes.HasPrefix(b, []byte("\x00asm\x0d")):
		return "it is a component"
	case bytes.HasPrefix(b, []byte("\x00asm")) && len(b) < 8:
		return "it is cut off"
	case bytes.HasPrefix(b, []byte("\x00asm")):
		return fmt.Sprintf("its version is % x", b[4:8])
	case bytes.HasPrefix(head, []byte("(")), bytes.HasPrefix(head, []byte(";;")):
		return "it is in the text format, which wat2wasm translates"
	}
	return fmt.Sprintf("it begins with %q", b[:min(len(b), 8)])
}

// parse checks everything except the code, which meterCode checks.
func parse(b []byte, o Options) (*module, error) {
	m := &module{b: b, options: o, segments: -1}
	r := &reader{b: b, end: len(b), function: -1}
	if len(b) < 8 || string(b[:8]) != "\x00asm\x01\x00\x00\x00" {
		r.failf(0, "not a WebAssembly module of version 1 in the binary format: %s", instead(b))
		return nil, r.err
	}
	r.pos = 8
	last := -1
	for !r.done() {
		last = m.section(r, last)
	}
	m.finish(r)
	return m, r.err
}

// section reads one section. last and the result are positions in order, of the
// previous section and of this one.
func (m *module) section(r *reader, last int) int {
	at := r.pos
	id := r.byte()
	size := r.u32()
	body := r.within(int(size))
	if id == customSection {
		m.custom(&body)
		r.join(&body)
		return last
	}
	place := slices.Index(order[:], id)
	switch {
	case id == tagSection:
		r.failf(at, "exceptions (a tag section) cannot be metered")
		return last
	case place < 0:
		r.failf(at, "section %d is unknown", id)
		return last
	case place <= last:
		r.failf(at, "section %d is out of order or repeated", id)
		return last
	}
	m.contents(id, &body)
	if !body.done() {
		body.failf(body.pos, "section %d goes on after its last entry", id)
	}
	r.join(&body)
	return place
}

func (m *module) contents(id byte, r *reader) {
	if id == startSection {
		m.info.Start = true
		m.sections[id] = span{r.pos, r.end, 0, true}
		r.index("function", len(m.functions))
		return
	}
	if id == dataCountSection {
		m.sections[id] = span{r.pos, r.end, 0, true}
		m.segments = int(r.u32())
		return
	}
	entry, what, size, limit := m.entries(id)
	n := r.count(what, size, limit)
	m.sections[id] = span{r.pos, r.end, n, true}
	for i := 0; i < n && r.err == nil; i++ {
		entry(r)
	}
}

// entries returns the reader for a section's entries, the entries' name, the smallest size of an entry in bytes, and
// the maximum number of entries.
func (m *module) entries(id byte) (entry func(*reader), what string, size, limit int) {
	switch id {
	case typeSection:
		return m.typeEntry, "types", 3, maxTypes
	case importSection:
		return m.importEntry, "imports", 4, maxImports
	case functionSection:
		return m.functionEntry, "functions", 1, maxFunctions
	case tableSection:
		return m.tableEntry, "tables", 3, maxTables
	case memorySection:
		return m.memoryEntry, "memories", 2, maxTables
	case globalSection:
		return m.globalEntry, "globals", 4, maxGlobals
	case exportSection:
		return m.exportEntry, "exports", 3, maxExports
	case elementSection:
		return m.elementEntry, "element segments", 2, maxSegments
	case codeSection:
		return m.codeEntry, "function bodies", 3, maxFunctions
	default:
		return m.dataEntry, "data segments", 2, maxSegments
	}
}

// custom records the position of the functions' names and which compiler made the module, and drops all other custom sections.
func (m *module) custom(r *reader) {
	switch name := r.name(); {
	case r.err != nil:
	case name == "name":
		m.names = span{start: r.pos, end: r.end, present: true}
	case name == "producers":
		m.info.Go = m.info.Go || bytes.Contains(m.b[r.pos:r.end], []byte("Go cmd/compile"))
	}
	r.pos = r.end
}

// finish makes the checks that need all sections.
func (m *module) finish(r *reader) {
	bodies, defined := m.sections[codeSection].count, len(m.functions)-m.imported[Func]
	if bodies != defined {
		r.failf(r.end, "there are %d functions and %d function bodies", defined, bodies)
	}
	if n := m.sections[dataSection].count; m.segments >= 0 && n != m.segments {
		r.failf(r.end, "there are %d data segments where %d are announced", n, m.segments)
	}
	m.checkTables(r)
	m.info.Functions, m.info.Tables, m.info.Globals = len(m.functions), len(m.tables), len(m.globals)
	if len(m.memories) > 0 {
		m.info.Memory = &m.memories[0]
	}
}

func (m *module) checkTables(r *reader) {
	total := uint64(0)
	for _, t := range m.tables {
		total += uint64(t.Limits.Min)
	}
	if limit := m.options.TableElements; total > uint64(limit) {
		r.failf(m.sections[tableSection].start, "tables start with %d elements; accepted are up to %d", total, limit)
	}
}
