package amqp

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
)

// RawTable is an encoded field table without its four octets of length: for each field a
// key (short string), a type octet and a value. Tables that this package returns have been
// checked. On other bytes every method stays within bounds, and ignores everything after an
// error.
type RawTable []byte

// RawField is one field of a [RawTable]; Key and Value alias it. Value omits the length prefix of strings, arrays and tables.
type RawField struct {
	Key   []byte
	Type  byte
	Value []byte
}

// ParseRawTable checks the table at the start of b, which begins with its length, and returns its size n. The result aliases b. It is
// for tests only, which compare its results with those of [ParseTable].
func ParseRawTable(b []byte) (t RawTable, n int, err error) {
	raw, n, rerr := cutRawTable(b)
	if rerr != nil {
		return nil, 0, rerr
	}
	return raw, n, nil
}

// All yields the fields in their order.
func (t RawTable) All() iter.Seq[RawField] {
	return func(yield func(RawField) bool) {
		for rest := t; len(rest) > 0; {
			key, kind, val, n, err := cutField(rest)
			if err != nil || !yield(RawField{key, kind, val}) {
				return
			}
			rest = rest[n:]
		}
	}
}

// LookupRaw returns the first field with this key, without allocating.
func (t RawTable) LookupRaw(key string) (RawField, bool) {
	for rest := t; len(rest) > 0; {
		k, kind, val, n, err := cutField(rest)
		if err != nil {
			return RawField{}, false
		}
		if string(k) == key {
			return RawField{k, kind, val}, true
		}
		rest = rest[n:]
	}
	return RawField{}, false
}

// Lookup decodes the first field with this key.
func (t RawTable) Lookup(key string) (v any, ok bool, err error) {
	f, ok := t.LookupRaw(key)
	if !ok {
		return nil, false, nil
	}
	v, err = f.Decode()
	return v, err == nil, err
}

// LookupBytes returns the first field with this key if it is a long string, without allocating.
func (t RawTable) LookupBytes(key string) ([]byte, bool) {
	f, ok := t.LookupRaw(key)
	if !ok || f.Type != 'S' {
		return nil, false
	}
	return f.Value, true
}

// Decode decodes the whole table.
func (t RawTable) Decode() (Table, error) {
	if err := checkTable(t, 1); err != nil {
		return nil, err
	}
	return decodeTable(t), nil
}

// Append appends t with its length.
func (t RawTable) Append(dst []byte) []byte { return appendLongstr(dst, []byte(t)) }

// Decode returns the Go value of f: see [Table].
func (f RawField) Decode() (any, error) {
	if err := checkNested(f.Type, f.Value, 1); err != nil {
		return nil, err
	}
	return decodeValue(f.Type, f.Value), nil
}

// Int returns the value of an integer, a boolean (0 or 1) or a timestamp, in milliseconds. Int, Float and Text do not allocate.
func (f RawField) Int() (int64, bool) {
	v := f.Value
	switch f.Type {
	case 't':
		return int64(min(v[0], 1)), true
	case 'b':
		return int64(int8(v[0])), true
	case 'B':
		return int64(v[0]), true
	case 's':
		return int64(int16(be16(v))), true
	case 'u':
		return int64(be16(v)), true
	case 'I':
		return int64(int32(be32(v))), true
	case 'i':
		return int64(be32(v)), true
	case 'l', 'L':
		return int64(be64(v)), true
	case 'T':
		return millis(be64(v))
	}
	return 0, false
}

// millis converts a timestamp to milliseconds; false if they overflow.
func millis(seconds uint64) (int64, bool) {
	if seconds > math.MaxInt64/1000 {
		return 0, false
	}
	return int64(seconds) * 1000, true
}

// Float returns the value of a floating-point number.
func (f RawField) Float() (float64, bool) {
	switch f.Type {
	case 'f':
		return float64(math.Float32frombits(be32(f.Value))), true
	case 'd':
		return math.Float64frombits(be64(f.Value)), true
	}
	return 0, false
}

// Text returns the value of a string or a binary; it aliases the table.
func (f RawField) Text() ([]byte, bool) { return f.Value, f.Type == 'S' || f.Type == 'x' }

// Append appends f as a field of a table.
func (f RawField) Append(dst []byte) []byte {
	dst = append(appendShortstr(dst, f.Key), f.Type)
	if fixedSize(f.Type) == sizePrefixed {
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(f.Value)))
	}
	return append(dst, f.Value...)
}

func cutRawTable(b []byte) (RawTable, int, *Error) {
	raw, n, err := cutLongTable(b)
	if err == nil {
		err = checkTable(raw, 1)
	}
	if err != nil {
		return nil, 0, err
	}
	return raw, n, nil
}

// cutLongTable is cutRawTable without the check of the fields.
func cutLongTable(b []byte) (RawTable, int, *Error) {
	if len(b) < 4 {
		return nil, 0, Errorf(ReplySyntaxError, "table length needs 4 octets, %d left", len(b))
	}
	size := uint64(be32(b))
	if size > uint64(len(b)-4) {
		return nil, 0, Errorf(ReplySyntaxError, "table of %d octets, %d left", size, len(b)-4)
	}
	n := 4 + int(size)
	return RawTable(b[4:n:n]), n, nil
}

// checkTable checks a table at the given depth; the outermost table has depth 1.
func checkTable(b []byte, depth int) *Error {
	for len(b) > 0 {
		key, kind, val, n, err := cutField(b)
		if err != nil {
			return err
		}
		if err := checkNested(kind, val, depth); err != nil {
			return inField(key, err)
		}
		b = b[n:]
	}
	return nil
}

func checkArray(b []byte, depth int) *Error {
	for len(b) > 0 {
		kind, val, n, err := cutValue(b)
		if err == nil {
			err = checkNested(kind, val, depth)
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// checkNested checks a value inside a table or array at the given depth.
func checkNested(kind byte, val []byte, depth int) *Error {
	if kind != 'F' && kind != 'A' {
		return nil
	}
	if depth >= MaxTableDepth {
		return Errorf(ReplySyntaxError, "tables and arrays nested more than %d deep", MaxTableDepth)
	}
	if kind == 'F' {
		return checkTable(val, depth+1)
	}
	return checkArray(val, depth+1)
}

// cutField returns the first field of b, which is not empty; n is its size.
func cutField(b []byte) (key []byte, kind byte, val []byte, n int, err *Error) {
	k := 1 + int(b[0])
	if k >= len(b) {
		return nil, 0, nil, 0, Errorf(ReplySyntaxError, "field of %d octets: key and type need %d", len(b), k+1)
	}
	key = b[1:k:k]
	kind, val, n, err = cutValue(b[k:])
	if err != nil {
		return nil, 0, nil, 0, inField(key, err)
	}
	return key, kind, val, k + n, nil
}

// inField adds the name of the field to err. Every level of nesting does this, as long as
// the reason at the end still fits into a reply text.
func inField(key []byte, err *Error) *Error {
	const most = 200
	if text := fmt.Sprintf("field %q: %s", key, err.Text); len(text) <= most {
		err.Text = text
	}
	return err
}

// cutValue returns the first value of b, which is not empty and starts with a type octet; n is the size of both.
func cutValue(b []byte) (kind byte, val []byte, n int, err *Error) {
	kind, n = b[0], 1
	size := fixedSize(kind)
	switch {
	case size == sizeUnknown:
		return 0, nil, 0, Errorf(ReplySyntaxError, "unknown field type %q", kind)
	case size == sizePrefixed && len(b) < 5:
		return 0, nil, 0, Errorf(ReplySyntaxError, "field type %q: length needs 4 octets, %d left", kind, len(b)-1)
	case size == sizePrefixed:
		size, n = int(be32(b[1:])), 5
	}
	if size > len(b)-n {
		return 0, nil, 0, Errorf(ReplySyntaxError, "field type %q needs %d octets, %d left", kind, size, len(b)-n)
	}
	end := n + size
	return kind, b[n:end:end], end, nil
}

const (
	sizeUnknown  = -1
	sizePrefixed = -2
)

// fixedSize returns the size of a value of this type, or one of the constants above.
func fixedSize(kind byte) int { return int(fieldSizes[kind]) }

var fieldSizes = func() (sizes [256]int8) {
	for i := range sizes {
		sizes[i] = sizeUnknown
	}
	for size, kinds := range map[int8]string{0: "V", 1: "tbB", 2: "su", 4: "Iif", 5: "D", 8: "lLdT", sizePrefixed: "SxAF"} {
		for _, kind := range []byte(kinds) {
			sizes[kind] = size
		}
	}
	return sizes
}()

func countFields(b []byte) (count int) {
	for ; len(b) > 0; count++ {
		_, _, _, n, _ := cutField(b)
		b = b[n:]
	}
	return count
}

func countValues(b []byte) (count int) {
	for ; len(b) > 0; count++ {
		_, _, n, _ := cutValue(b)
		b = b[n:]
	}
	return count
}

// Names is a set of keys that are looked up together, in one pass over a table. It does not change.
type Names struct {
	keys    []string
	lengths uint64 // a bit for each length of a key; the last one stands for all longer keys
}

// NewNames returns Names with these keys, which must be different.
func NewNames(keys ...string) *Names {
	n := &Names{keys: keys}
	for _, k := range keys {
		n.lengths |= lengthBit(len(k))
	}
	return n
}

func lengthBit(n int) uint64 { return 1 << min(n, 63) }

// Len returns the number of keys.
func (n *Names) Len() int { return len(n.keys) }

// Find sets found[i] to the first field with the i-th key of the names, and reports whether it found any. Elements without a field stay
// unchanged. It does not allocate.
func (t RawTable) Find(n *Names, found []RawField) (some bool) {
	for rest := t; len(rest) > 0; {
		k, kind, val, size, err := cutField(rest)
		if err != nil {
			return some
		}
		if n.lengths&lengthBit(len(k)) != 0 {
			some = n.match(RawField{k, kind, val}, found) || some
		}
		rest = rest[size:]
	}
	return some
}

func (n *Names) match(f RawField, found []RawField) bool {
	for i, key := range n.keys {
		if string(f.Key) != key {
			continue
		}
		if found[i].Key == nil {
			found[i] = f
		}
		return true
	}
	return false
}
