package route

import (
	"bytes"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
)

// pattern is the requirement of a headers exchange's binding on a message.
type pattern struct {
	any        bool // one condition is enough
	conditions []condition
	anchor     int // otherwise: index of the condition under which the binding is listed
}

// condition requires a header and, unless value is the zero scalar, that value. A binding argument without a value requires
// only the header.
type condition struct {
	name  string
	value scalar
}

// compile parses the encoded arguments of a binding. Arguments that begin with "x-" are not conditions; in the two -with-x modes
// only x-match is excluded. Without x-match all conditions must be met.
func compile(args amqp.RawTable) *pattern {
	mode, _ := args.LookupBytes(matchArg)
	p := &pattern{any: bytes.HasPrefix(mode, []byte("any"))}
	withX := bytes.HasSuffix(mode, []byte("-with-x"))
	for f := range args.All() {
		name := string(f.Key)
		if name == matchArg || !withX && strings.HasPrefix(name, "x-") {
			continue
		}
		p.conditions = append(p.conditions, condition{name, scalarOf(f)})
	}
	return p
}

// headersIndex finds bindings by the conditions that a message's headers meet. A binding that requires all its conditions is
// listed under only one of them, its anchor, and checked when the anchor is met. A binding that requires any condition is listed under
// each of its conditions.
type headersIndex[D comparable] struct {
	names  map[string]column[D]
	always set[D] // bindings that require all conditions and have none
}

// column has the bindings with a condition on one header, by the required value. The zero scalar has the bindings that require
// only the header.
type column[D comparable] map[scalar]set[D]

type set[D comparable] map[*binding[D]]struct{}

func (x *headersIndex[D]) add(b *binding[D]) {
	p := compile(amqp.RawTable(b.args))
	b.pattern = p
	if p.any {
		for _, c := range p.conditions {
			x.list(c, b)
		}
		return
	}
	if len(p.conditions) == 0 {
		x.always.put(b)
		return
	}
	p.anchor = x.rarest(p.conditions)
	x.list(p.conditions[p.anchor], b)
}

func (x *headersIndex[D]) remove(b *binding[D]) {
	p := b.pattern
	if p.any {
		for _, c := range p.conditions {
			x.unlist(c, b)
		}
		return
	}
	if len(p.conditions) == 0 {
		delete(x.always, b)
		return
	}
	x.unlist(p.conditions[p.anchor], b)
}

// rarest returns the index of the condition under which the fewest bindings are listed.
func (x *headersIndex[D]) rarest(conditions []condition) int {
	best, fewest := 0, -1
	for i, c := range conditions {
		listed := len(x.names[c.name][c.value])
		if fewest < 0 || listed < fewest {
			best, fewest = i, listed
		}
	}
	return best
}

func (x *headersIndex[D]) list(c condition, b *binding[D]) {
	if x.names == nil {
		x.names = map[string]column[D]{}
	}
	col := x.names[c.name]
	if col == nil {
		col = column[D]{}
		x.names[c.name] = col
	}
	s := col[c.value]
	s.put(b)
	col[c.value] = s
}

func (x *headersIndex[D]) unlist(c condition, b *binding[D]) {
	col := x.names[c.name] // nil, like the set, the second time if a binding has the same condition twice
	delete(col[c.value], b)
	if len(col[c.value]) == 0 {
		delete(col, c.value)
	}
	if len(col) == 0 {
		delete(x.names, c.name)
	}
}

func (s *set[D]) put(b *binding[D]) {
	if *s == nil {
		*s = set[D]{}
	}
	(*s)[b] = struct{}{}
}

func (x *headersIndex[D]) match(out *collector[D], headers func() amqp.RawTable) {
	for b := range x.always {
		out.add(b.destination)
	}
	if headers == nil || len(x.names) == 0 {
		return
	}
	fs := scan(headers())
	for i, f := range fs.list {
		col := x.names[string(f.Key)]
		if col == nil || fs.repeated(i) {
			continue
		}
		collect(out, fs, col[scalar{}])
		class, number, text := read(f)
		collect(out, fs, col[scalar{class, number, string(text)}])
	}
	fs.release()
}

// collect adds the destinations of listed bindings, one condition of which is met; it checks the other conditions where they are required.
func collect[D comparable](out *collector[D], fs *fields, listed set[D]) {
	for b := range listed {
		if b.pattern.any || fs.meetsAll(b.pattern.conditions) {
			out.add(b.destination)
		}
	}
}

// fields are the headers of one message. If a header is repeated, the last one counts.
type fields struct {
	list   []amqp.RawField
	sorted bool // list is sorted by key, because it is long
}

var fieldsPool = sync.Pool{New: func() any { return new(fields) }}

// scan splits a table into its fields, which alias it. The caller must release the result.
func scan(t amqp.RawTable) *fields {
	fs := fieldsPool.Get().(*fields)
	for f := range t.All() {
		fs.list = append(fs.list, f)
	}
	fs.sorted = len(fs.list) > maxLinear
	if fs.sorted {
		slices.SortStableFunc(fs.list, func(a, b amqp.RawField) int { return bytes.Compare(a.Key, b.Key) })
	}
	return fs
}

// release returns fs to the pool, without references to the message and without unusually large memory.
func (fs *fields) release() {
	const large = 1024
	clear(fs.list)
	fs.list = fs.list[:0]
	if cap(fs.list) <= large {
		fieldsPool.Put(fs)
	}
}

// find returns the index of a header; -1 if it is missing.
func (fs *fields) find(name string) int {
	i := len(fs.list) - 1
	if fs.sorted {
		i = sort.Search(len(fs.list), func(i int) bool { return string(fs.list[i].Key) > name }) - 1
		if i >= 0 && string(fs.list[i].Key) != name {
			return -1
		}
		return i
	}
	for i >= 0 && string(fs.list[i].Key) != name {
		i--
	}
	return i
}

// repeated reports whether a later field has the same key as field i.
func (fs *fields) repeated(i int) bool {
	key, later := fs.list[i].Key, fs.list[i+1:]
	if fs.sorted && len(later) > 1 {
		later = later[:1]
	}
	return slices.ContainsFunc(later, func(f amqp.RawField) bool { return bytes.Equal(f.Key, key) })
}

// meetsAll reports whether the headers meet all conditions.
func (fs *fields) meetsAll(conditions []condition) bool {
	for i := range conditions {
		c := &conditions[i]
		at := fs.find(c.name)
		if at < 0 || !c.value.holds(fs.list[at]) {
			return false
		}
	}
	return true
}
