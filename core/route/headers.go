package route

import (
	"bytes"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
)

// pattern is what a binding of a headers exchange asks for.
type pattern struct {
	any        bool // one condition is enough
	conditions []condition
	anchor     int // all: the condition the binding is listed under
}

// condition asks for a header, and for a value unless that is the zero scalar:
// a binding argument without a value asks for presence alone.
type condition struct {
	name  string
	value scalar
}

// compile reads the encoded arguments of a binding. Those that start with x-
// are no conditions, except that with the two -with-x modes only x-match itself
// is none. Without x-match every condition must hold.
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

// index finds the bindings of a headers exchange by the conditions that a
// message's headers meet. A binding that needs all its conditions is listed
// under one of them, its anchor, and checked when that is met; a binding that
// needs any is listed under each.
type index[D comparable] struct {
	names  map[string]*column[D]
	always set[D] // needs all, and has no conditions
}

// column is the bindings with a condition on one header.
type column[D comparable] struct {
	present set[D]
	values  map[scalar]set[D]
}

type set[D comparable] map[*binding[D]]struct{}

func (x *index[D]) add(b *binding[D]) {
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

func (x *index[D]) remove(b *binding[D]) {
	p := b.pattern
	if p.any {
		for _, c := range p.conditions {
			x.strike(c, b)
		}
		return
	}
	if len(p.conditions) == 0 {
		delete(x.always, b)
		return
	}
	x.strike(p.conditions[p.anchor], b)
}

// rarest returns the condition that the fewest bindings are listed under.
func (x *index[D]) rarest(conditions []condition) int {
	best, fewest := 0, -1
	for i, c := range conditions {
		listed := len(x.names[c.name].set(c.value))
		if fewest < 0 || listed < fewest {
			best, fewest = i, listed
		}
	}
	return best
}

func (x *index[D]) list(c condition, b *binding[D]) {
	if x.names == nil {
		x.names = map[string]*column[D]{}
	}
	col := x.names[c.name]
	if col == nil {
		col = &column[D]{values: map[scalar]set[D]{}}
		x.names[c.name] = col
	}
	if c.value == (scalar{}) {
		col.present.put(b)
		return
	}
	s := col.values[c.value]
	s.put(b)
	col.values[c.value] = s
}

func (x *index[D]) strike(c condition, b *binding[D]) {
	col := x.names[c.name]
	if col == nil { // the same condition twice
		return
	}
	s := col.set(c.value)
	delete(s, b)
	if len(s) == 0 {
		delete(col.values, c.value)
	}
	if len(col.present) == 0 && len(col.values) == 0 {
		delete(x.names, c.name)
	}
}

// set returns the bindings listed under a value, or under presence for the zero
// scalar.
func (c *column[D]) set(v scalar) set[D] {
	if c == nil {
		return nil
	}
	if v == (scalar{}) {
		return c.present
	}
	return c.values[v]
}

func (s *set[D]) put(b *binding[D]) {
	if *s == nil {
		*s = set[D]{}
	}
	(*s)[b] = struct{}{}
}

func (x *index[D]) match(out *gather[D], headers func() amqp.RawTable) {
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
		collect(out, fs, col.present)
		class, number, text := read(f)
		collect(out, fs, col.values[scalar{class, number, string(text)}])
	}
	fs.release()
}

// collect adds the destinations of bindings of which one condition is met.
func collect[D comparable](out *gather[D], fs *fields, listed set[D]) {
	for b := range listed {
		if b.pattern.any || fs.meet(b.pattern.conditions) {
			out.add(b.destination)
		}
	}
}
