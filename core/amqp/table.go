package amqp

import (
	"encoding/binary"
	"fmt"
	"math"
)

// MaxTableDepth is how deep tables and arrays may be nested, the outermost one included.
const MaxTableDepth = 32

// Table is a field table. It keeps the order of its fields, their exact types, and duplicate keys.
//
// The values and their types on the wire [AMQP 4.2.1, RabbitMQ: amqp-0-9-1-errata.html#section_3]:
//
//	bool t    int8 b    int16 s    int32 I    int64 l (L is read as the same)    float32 f    float64 d    Decimal D
//	          uint8 B   uint16 u   uint32 i   Timestamp T                        string S     []byte x
//	nil V     Table F   Array A
type Table []Field

// Field is one field of a [Table].
type Field struct {
	Key   string
	Value any
}

// Array is a field array. It may hold the same values as a [Table].
type Array []any

// Timestamp is in seconds since 1970 [AMQP 4.2.5.4].
type Timestamp uint64

// Decimal is Value divided by ten to the power of Scale.
type Decimal struct {
	Scale uint8
	Value uint32
}

// Lookup returns the value of the first field with this key.
func (t Table) Lookup(key string) (any, bool) {
	for i := range t {
		if t[i].Key == key {
			return t[i].Value, true
		}
	}
	return nil, false
}

// ParseTable decodes the table at the start of b, which begins with its length, and returns its size n. The result does not alias b.
func ParseTable(b []byte) (t Table, n int, err error) {
	t, n, perr := parseTable(b)
	if perr != nil {
		return nil, 0, perr
	}
	return t, n, nil
}

func parseTable(b []byte) (Table, int, *Error) {
	raw, n, err := cutRawTable(b)
	if err != nil {
		return nil, 0, err
	}
	return decodeTable(raw), n, nil
}

// decodeTable decodes a table without its length. The caller has checked b.
func decodeTable(b []byte) Table {
	t := make(Table, 0, countFields(b))
	for len(b) > 0 {
		key, kind, val, n, _ := cutField(b)
		t = append(t, Field{Key: string(key), Value: decodeValue(kind, val)})
		b = b[n:]
	}
	return t
}

func decodeArray(b []byte) Array {
	a := make(Array, 0, countValues(b))
	for len(b) > 0 {
		kind, val, n, _ := cutValue(b)
		a = append(a, decodeValue(kind, val))
		b = b[n:]
	}
	return a
}

// decodeValue decodes a value of this kind. The caller has checked val.
func decodeValue(kind byte, val []byte) any {
	switch kind {
	case 't':
		return val[0] != 0
	case 'b':
		return int8(val[0])
	case 'B':
		return val[0]
	case 's':
		return int16(be16(val))
	case 'u':
		return be16(val)
	case 'I':
		return int32(be32(val))
	case 'i':
		return be32(val)
	case 'l', 'L':
		return int64(be64(val))
	case 'f':
		return math.Float32frombits(be32(val))
	case 'd':
		return math.Float64frombits(be64(val))
	case 'D':
		return Decimal{Scale: val[0], Value: be32(val[1:])}
	case 'T':
		return Timestamp(be64(val))
	case 'S':
		return string(val)
	case 'x':
		return append([]byte{}, val...)
	case 'A':
		return decodeArray(val)
	case 'F':
		return decodeTable(val)
	}
	return nil
}

// AppendTable appends t with its length. It panics on a value whose type is not listed at [Table], which is a fault of the caller.
// It cuts keys to 255 bytes.
func AppendTable(dst []byte, t Table) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for i := range t {
		dst = appendShortstr(dst, t[i].Key)
		dst = appendValue(dst, t[i].Value)
	}
	return endLong(dst, start)
}

func appendArray(dst []byte, a Array) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for _, v := range a {
		dst = appendValue(dst, v)
	}
	return endLong(dst, start)
}

// endLong stores the number of bytes after start+4 in the four octets at start.
func endLong(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

func appendValue(dst []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return append(dst, 't', packBits(v))
	case int8:
		return append(dst, 'b', byte(v))
	case uint8:
		return append(dst, 'B', v)
	case int16:
		return binary.BigEndian.AppendUint16(append(dst, 's'), uint16(v))
	case uint16:
		return binary.BigEndian.AppendUint16(append(dst, 'u'), v)
	case int32:
		return binary.BigEndian.AppendUint32(append(dst, 'I'), uint32(v))
	case uint32:
		return binary.BigEndian.AppendUint32(append(dst, 'i'), v)
	case int64:
		return binary.BigEndian.AppendUint64(append(dst, 'l'), uint64(v))
	case float32:
		return binary.BigEndian.AppendUint32(append(dst, 'f'), math.Float32bits(v))
	case float64:
		return binary.BigEndian.AppendUint64(append(dst, 'd'), math.Float64bits(v))
	case Decimal:
		return binary.BigEndian.AppendUint32(append(dst, 'D', v.Scale), v.Value)
	case Timestamp:
		return binary.BigEndian.AppendUint64(append(dst, 'T'), uint64(v))
	case string:
		return appendLongstr(append(dst, 'S'), v)
	case []byte:
		return appendLongstr(append(dst, 'x'), v)
	case Array:
		return appendArray(append(dst, 'A'), v)
	case Table:
		return AppendTable(append(dst, 'F'), v)
	case nil:
		return append(dst, 'V')
	}
	panic(fmt.Sprintf("amqp: a %T in a table has no type on the wire", v))
}

// AMQPType returns RabbitMQ's name for the type.
func (Table) AMQPType() string { return TypeName(Table{}) }

// AMQPType returns RabbitMQ's name for the type.
func (Array) AMQPType() string { return TypeName(Array{}) }

// AMQPType returns RabbitMQ's name for the type.
func (Timestamp) AMQPType() string { return TypeName(Timestamp(0)) }

// AMQPType returns RabbitMQ's name for the type.
func (Decimal) AMQPType() string { return TypeName(Decimal{}) }

// MaxArguments bounds the fields and elements in the arguments of a declaration, a binding
// or a consumer, and in the properties of a client. These are kept for as long as their
// object exists, and a field of two bytes takes sixteen times as much memory.
const MaxArguments = 1024

// Fields returns the number of fields and elements of a table, including those of nested tables and arrays.
func (t Table) Fields() int {
	n := len(t)
	for i := range t {
		n += inner(t[i].Value)
	}
	return n
}

func inner(v any) int {
	switch v := v.(type) {
	case Table:
		return v.Fields()
	case Array:
		n := len(v)
		for i := range v {
			n += inner(v[i])
		}
		return n
	}
	return 0
}

// TypeName returns RabbitMQ's name for the type of a table value, as used in its error texts; "" for values that a [Table] cannot hold.
func TypeName(v any) string {
	switch v.(type) {
	case bool:
		return "bool"
	case int8:
		return "byte"
	case uint8:
		return "unsignedbyte"
	case int16:
		return "short"
	case uint16:
		return "unsignedshort"
	case int32:
		return "signedint"
	case uint32:
		return "unsignedint"
	case int64:
		return "long"
	case float32:
		return "float"
	case float64:
		return "double"
	case Decimal:
		return "decimal"
	case Timestamp:
		return "timestamp"
	case string:
		return "longstr"
	case []byte:
		return "binary"
	case Array:
		return "array"
	case Table:
		return "table"
	case nil:
		return "void"
	}
	return ""
}

// Integer returns the value of a table field of any integer type; false for other types.
func Integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int8:
		return int64(v), true
	case uint8:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}
