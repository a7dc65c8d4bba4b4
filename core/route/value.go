package route

import (
	"encoding/binary"
	"math"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// scalar is a header's value in the form in which headers exchanges compare it: by the
// value that RabbitMQ decodes, not by its type on the wire. All integers form one class,
// including timestamps, in seconds. Float and double form another class, strings and
// binaries a third. Tables and arrays are equal if their encodings are. The zero scalar
// means no value.
type scalar struct {
	class  byte
	number uint64
	text   string
}

// The classes. Tables, arrays, booleans, decimals and void use their type octet.
const (
	classInteger = 'I'
	classLarge   = 'T' // integers that do not fit into int64
	classFloat   = 'd'
	classText    = 'S'
)

func scalarOf(f amqp.RawField) scalar {
	if f.Type == 'V' {
		return scalar{}
	}
	class, number, text := read(f)
	return scalar{class, number, string(text)}
}

// holds reports whether f has this value. A scalar without a value holds for any f.
func (v *scalar) holds(f amqp.RawField) bool {
	if *v == (scalar{}) {
		return true
	}
	class, number, text := read(f)
	return v.class == class && v.number == number && v.text == string(text)
}

// read returns the parts of a field's scalar. text aliases the field.
func read(f amqp.RawField) (class byte, number uint64, text []byte) {
	v := f.Value
	switch f.Type {
	case 'b':
		return classInteger, uint64(int8(v[0])), nil
	case 'B':
		return classInteger, uint64(v[0]), nil
	case 's':
		return classInteger, uint64(int16(binary.BigEndian.Uint16(v))), nil
	case 'u':
		return classInteger, uint64(binary.BigEndian.Uint16(v)), nil
	case 'I':
		return classInteger, uint64(int32(binary.BigEndian.Uint32(v))), nil
	case 'i':
		return classInteger, uint64(binary.BigEndian.Uint32(v)), nil
	case 'l', 'L':
		return classInteger, binary.BigEndian.Uint64(v), nil
	case 'T':
		return readTimestamp(binary.BigEndian.Uint64(v))
	case 'f':
		return classFloat, math.Float64bits(float64(math.Float32frombits(binary.BigEndian.Uint32(v)))), nil
	case 'd':
		return classFloat, binary.BigEndian.Uint64(v), nil
	case 'S', 'x':
		return classText, 0, v
	case 't':
		return f.Type, min(uint64(v[0]), 1), nil
	}
	return f.Type, 0, v // void, decimal, table, array
}

func readTimestamp(seconds uint64) (class byte, number uint64, text []byte) {
	if seconds > math.MaxInt64 {
		return classLarge, seconds, nil
	}
	return classInteger, seconds, nil
}

// Router matches the messages of an exchange instead of its table. The table calls it while adding or removing a binding.
type Router[D comparable] interface {
	// Bind adds a binding to the destination with this number.
	Bind(n hook.Destination, b Binding[D])
	// Unbind removes a binding.
	Unbind(n hook.Destination, b Binding[D])
}

// NewPlugin returns an empty table of kind [Plugin] for an exchange with this router.
func NewPlugin[D comparable](r Router[D]) *Table[D] {
	t := New[D](Plugin)
	t.numbers.router = r
	return t
}

// numbering numbers the destinations of an exchange, so that its router can name them and they can be looked up without a map. A number is
// reused after the last binding to its destination has been removed. Without a router, nothing is numbered.
type numbering[D comparable] struct {
	router       Router[D]
	destinations []numbered[D] // by number
	free         []hook.Destination
}

type numbered[D comparable] struct {
	destination D
	bound       bool
}

// add numbers the destination of a linked binding, and passes the binding to the router.
func (x *numbering[D]) add(b *binding[D]) {
	if x.router == nil {
		return
	}
	if b.next != nil { // the destination has other bindings
		b.slot = b.next.slot
	} else {
		b.slot = int(x.take(b.destination))
	}
	x.router.Bind(hook.Destination(b.slot), b.export())
}

// remove removes a binding from the router. more reports that its destination has other bindings.
func (x *numbering[D]) remove(b *binding[D], more bool) {
	if x.router == nil {
		return
	}
	n := hook.Destination(b.slot)
	x.router.Unbind(n, b.export())
	if !more {
		x.destinations[n] = numbered[D]{}
		x.free = append(x.free, n)
	}
}

func (x *numbering[D]) take(d D) hook.Destination {
	if last := len(x.free) - 1; last >= 0 {
		n := x.free[last]
		x.free = x.free[:last]
		x.destinations[n] = numbered[D]{d, true}
		return n
	}
	x.destinations = append(x.destinations, numbered[D]{d, true})
	return hook.Destination(len(x.destinations) - 1)
}

// Translate appends to dst the destinations with these numbers, and reports whether there
// are any. It skips destinations that are already in dst, and counts numbers without a
// destination. Like Match, it may run concurrently.
func (t *Table[D]) Translate(dst []D, numbers []hook.Destination) (_ []D, matched bool, invalid int) {
	g := collector[D]{dst: dst, seenSets: &t.seenSets}
	all := t.numbers.destinations
	for _, n := range numbers {
		if n < 0 || int(n) >= len(all) || !all[n].bound {
			invalid++
			continue
		}
		g.add(all[n].destination)
	}
	return g.finish(), g.matched, invalid
}
