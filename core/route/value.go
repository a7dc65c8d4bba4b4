package route

import (
	"encoding/binary"
	"math"

	"github.com/curfewmq/curfew/core/amqp"
)

// scalar is a header's value in the form in which headers exchanges compare it: by the value that RabbitMQ decodes, not by its type on the wire. All
// integers form one class, including timestamps, in seconds. Float and double form another class, strings and binaries a
// third. Tables and arrays are equal if their encodings are. The zero scalar means no value.
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
