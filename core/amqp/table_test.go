package amqp

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// allTypes has every type a table can hold, in an order of its own and with a key that comes twice.
func allTypes() Table {
	return Table{
		{"bool", true},
		{"byte", int8(-128)},
		{"unsignedbyte", uint8(255)},
		{"short", int16(-2)},
		{"unsignedshort", uint16(65535)},
		{"signedint", int32(math.MinInt32)},
		{"unsignedint", uint32(math.MaxUint32)},
		{"long", int64(math.MinInt64)},
		{"float", float32(1.5)},
		{"double", math.Pi},
		{"decimal", Decimal{Scale: 2, Value: 314}},
		{"timestamp", Timestamp(1700000000)},
		{"longstr", "a string"},
		{"binary", []byte{0, 1, 2}},
		{"array", Array{int32(1), "two", Array{}, Table{{"x", nil}}, nil}},
		{"table", Table{{"inner", Table{}}, {"", "empty key"}}},
		{"void", nil},
		{"bool", false},
	}
}

func TestTableSurvivesTheWire(t *testing.T) {
	for _, in := range []Table{{}, allTypes(), {{strings.Repeat("k", 255), strings.Repeat("v", 70000)}}} {
		b := AppendTable([]byte("before"), in)
		got, n, err := ParseTable(append(b[6:], "after"...))
		if err != nil || n != len(b)-6 {
			t.Fatalf("%d of %d bytes, error %v", n, len(b)-6, err)
		}
		if !reflect.DeepEqual(got, in) {
			t.Errorf("got %v, want %v", got, in)
		}
		raw, n, err := ParseRawTable(b[6:])
		if err != nil || n != len(b)-6 || !bytes.Equal(raw.Append(nil), b[6:]) {
			t.Errorf("raw: %d bytes, error %v", n, err)
		}
	}
}

func TestTableBytes(t *testing.T) {
	for _, c := range []struct {
		value any
		wire  string
	}{
		{true, "t\x01"},
		{int8(-1), "b\xff"},
		{uint8(1), "B\x01"},
		{int16(-2), "s\xff\xfe"},
		{uint16(2), "u\x00\x02"},
		{int32(-3), "I\xff\xff\xff\xfd"},
		{uint32(3), "i\x00\x00\x00\x03"},
		{int64(4), "l\x00\x00\x00\x00\x00\x00\x00\x04"},
		{float32(1), "f\x3f\x80\x00\x00"},
		{float64(1), "d\x3f\xf0\x00\x00\x00\x00\x00\x00"},
		{Decimal{1, 5}, "D\x01\x00\x00\x00\x05"},
		{Timestamp(6), "T\x00\x00\x00\x00\x00\x00\x00\x06"},
		{"s", "S\x00\x00\x00\x01s"},
		{[]byte("x"), "x\x00\x00\x00\x01x"},
		{Array{nil}, "A\x00\x00\x00\x01V"},
		{Table{{"k", nil}}, "F\x00\x00\x00\x03\x01kV"},
		{nil, "V"},
	} {
		want := "\x00\x00\x00" + string(rune(len(c.wire)+2)) + "\x01k" + c.wire
		if got := AppendTable(nil, Table{{"k", c.value}}); string(got) != want {
			t.Errorf("%T: got %q, want %q", c.value, got, want)
		}
		if got := TypeName(c.value); got == "" {
			t.Errorf("%T has no name", c.value)
		}
	}
}

func TestTypeName(t *testing.T) {
	for _, f := range allTypes() {
		if got := TypeName(f.Value); got != f.Key {
			t.Errorf("%T: got %q, want %q", f.Value, got, f.Key)
		}
	}
	if got := TypeName(struct{}{}); got != "" {
		t.Errorf("a struct is a %q", got)
	}
}

func TestInteger(t *testing.T) {
	want := map[string]int64{
		"byte": -128, "unsignedbyte": 255, "short": -2, "unsignedshort": 65535,
		"signedint": math.MinInt32, "unsignedint": math.MaxUint32, "long": math.MinInt64,
	}
	for _, f := range allTypes() {
		got, ok := Integer(f.Value)
		if w, isInt := want[f.Key]; ok != isInt || got != w {
			t.Errorf("%s: got %d %t, want %d %t", f.Key, got, ok, w, isInt)
		}
	}
}

// RabbitMQ reads L as a signed 64-bit number and any octet but 0 as true.
func TestTableReadsOtherSpellings(t *testing.T) {
	got, _, err := ParseTable([]byte("\x00\x00\x00\x0f\x01aL\xff\xff\xff\xff\xff\xff\xff\xff\x01bt\x07"))
	if want := (Table{{"a", int64(-1)}, {"b", true}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, error %v, want %v", got, err, want)
	}
}

func TestTableLookup(t *testing.T) {
	in := allTypes()
	raw := RawTable(AppendTable(nil, in)[4:])
	for _, f := range in[:len(in)-1] { // the last one repeats a key
		if v, ok := in.Lookup(f.Key); !ok || !reflect.DeepEqual(v, f.Value) {
			t.Errorf("%s: got %v %t", f.Key, v, ok)
		}
		v, ok, err := raw.Lookup(f.Key)
		if err != nil || !ok || !reflect.DeepEqual(v, f.Value) {
			t.Errorf("%s, raw: got %v %t, error %v", f.Key, v, ok, err)
		}
		b, ok := raw.LookupBytes(f.Key)
		if isString := f.Key == "longstr"; ok != isString || isString && string(b) != f.Value {
			t.Errorf("%s, bytes: got %q %t", f.Key, b, ok)
		}
	}
	if _, ok := in.Lookup("none"); ok {
		t.Error("found what is not there")
	}
	if _, ok, err := raw.Lookup("none"); ok || err != nil {
		t.Errorf("raw: found what is not there, error %v", err)
	}
	if _, ok := RawTable(nil).LookupRaw("none"); ok {
		t.Error("found something in nothing")
	}
}

func TestRawTableFieldsRebuildIt(t *testing.T) {
	raw := RawTable(AppendTable(nil, allTypes())[4:])
	var got []byte
	var keys []string
	for f := range raw.All() {
		got, keys = f.Append(got), append(keys, string(f.Key))
	}
	if !bytes.Equal(got, raw) {
		t.Errorf("got %x, want %x", got, []byte(raw))
	}
	for f := range raw.All() {
		if string(f.Key) == keys[1] {
			break
		}
	}
	if want := len(allTypes()); len(keys) != want {
		t.Errorf("got keys %v, want %d", keys, want)
	}
}

func TestTableRefuses(t *testing.T) {
	for _, c := range []struct{ name, input, text string }{
		{"no length", "\x00\x00\x00", "table length needs 4 octets, 3 left"},
		{"longer than the bytes there", "\x00\x00\x00\x04\x01aV", "table of 4 octets, 3 left"},
		{"longer than memory", "\xff\xff\xff\xff\x01aV", "table of 4294967295 octets, 3 left"},
		{"key without a type", "\x00\x00\x00\x02\x01a", "field of 2 octets: key and type need 3"},
		{"key longer than the table", "\x00\x00\x00\x03\xffaV", "field of 3 octets: key and type need 257"},
		{"unknown type", "\x00\x00\x00\x03\x01aQ", `field "a": unknown field type 'Q'`},
		{"number cut short", "\x00\x00\x00\x05\x01aI\x00\x00", `field "a": field type 'I' needs 4 octets, 2 left`},
		{"string without a length", "\x00\x00\x00\x05\x01aS\x00\x00", `field "a": field type 'S': length needs 4 octets, 2 left`},
		{"string that lies", "\x00\x00\x00\x08\x01aS\x00\x00\x00\x02x", `field "a": field type 'S' needs 2 octets, 1 left`},
		{"array that lies", "\x00\x00\x00\x08\x01aA\xff\xff\xff\xffV", `field "a": field type 'A' needs 4294967295 octets, 1 left`},
		{"table inside that lies", "\x00\x00\x00\x0a\x01aF\x00\x00\x00\x03\x02bV", `field "a": field of 3 octets: key and type need 4`},
		{"array inside that ends early", "\x00\x00\x00\x0a\x01aA\x00\x00\x00\x03l\x00\x00", `field "a": field type 'l' needs 8 octets, 2 left`},
		{"key that is not text", "\x00\x00\x00\x04\x02\xff\nQ", `field "\xff\n": unknown field type 'Q'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, n, err := ParseTable([]byte(c.input))
			if n != 0 {
				t.Errorf("took %d bytes", n)
			}
			wantError(t, err, ReplySyntaxError, "SYNTAX_ERROR - "+c.text)
			_, _, err = ParseRawTable([]byte(c.input))
			wantError(t, err, ReplySyntaxError, "SYNTAX_ERROR - "+c.text)
		})
	}
}

// A deeply nested table is refused without being walked to its end.
func TestTableNesting(t *testing.T) {
	build := func(depth int) []byte {
		v := any(Table{})
		for d := depth - 1; d > 1; d-- {
			if d%2 == 0 {
				v = Array{v}
				continue
			}
			v = Table{{"k", v}}
		}
		return AppendTable(nil, Table{{"k", v}})
	}
	if _, _, err := ParseTable(build(MaxTableDepth)); err != nil {
		t.Errorf("%d deep: %v", MaxTableDepth, err)
	}
	for _, depth := range []int{MaxTableDepth + 1, 1000, 20000} {
		_, _, err := ParseTable(build(depth))
		isProtocolError(t, err)
		if err == nil || !strings.HasSuffix(err.Error(), "nested more than 32 deep") {
			t.Errorf("%d deep: got error %v", depth, err)
		}
	}
}

// RawTable's methods stay within bounds on unchecked bytes.
func TestRawTableOfRubbish(t *testing.T) {
	for _, raw := range []RawTable{RawTable("\x01"), RawTable("\x01aS\xff\xff\xff\xff"), RawTable("\x01bV\x01aF\x00\x00\x00\x01x")} {
		for range raw.All() {
			continue
		}
		raw.LookupBytes("a")
		_, _, err := raw.Lookup("a")
		isProtocolError(t, err)
		if _, err := raw.Decode(); err == nil {
			t.Errorf("%q decodes", raw)
		}
	}
}

func TestAppendTableRefusesGoTypesWithoutWireType(t *testing.T) {
	defer func() {
		if got, want := recover(), "amqp: a int in a table has no type on the wire"; got != want {
			t.Errorf("got panic %v, want %q", got, want)
		}
	}()
	AppendTable(nil, Table{{"n", 1}})
}

// A table that announces much but contains little allocates little.
func TestTableAllocatesForWhatIsThere(t *testing.T) {
	lie := append([]byte{0xff, 0xff, 0xff, 0xff}, AppendTable(nil, allTypes())...)
	if n := testing.AllocsPerRun(10, func() { _, _, _ = ParseTable(lie) }); n > 8 {
		t.Errorf("got %v allocations for a table that is refused", n)
	}
	voids := AppendTable(nil, slices.Repeat(Table{{"", nil}}, 10000))
	if n := testing.AllocsPerRun(10, func() { _, _, _ = ParseTable(voids) }); n != 1 {
		t.Errorf("got %v allocations for a flat table of nothing, want 1", n)
	}
}

func TestRawFieldAsNumberAndText(t *testing.T) {
	in := Table{
		{"bool", true},
		{"byte", int8(-1)},
		{"octet", uint8(200)},
		{"short", int16(-2)},
		{"ushort", uint16(60000)},
		{"int", int32(-3)},
		{"uint", uint32(1 << 31)},
		{"long", int64(-4)},
		{"time", Timestamp(5)},
		{"far", Timestamp(1 << 60)},
		{"float", float32(1.5)},
		{"double", 2.5},
		{"text", "t"},
		{"binary", []byte("b")},
		{"void", nil},
	}
	ints := map[string]int64{
		"bool": 1, "byte": -1, "octet": 200, "short": -2, "ushort": 60000, "int": -3, "uint": 1 << 31, "long": -4, "time": 5000,
	}
	floats := map[string]float64{"float": 1.5, "double": 2.5}
	texts := map[string]string{"text": "t", "binary": "b"}
	for f := range RawTable(AppendTable(nil, in)[4:]).All() {
		n, isInt := f.Int()
		x, isFloat := f.Float()
		b, isText := f.Text()
		key := string(f.Key)
		if want, ok := ints[key]; n != want || isInt != ok {
			t.Errorf("%s: got the integer %d, %t, want %d, %t", key, n, isInt, want, ok)
		}
		if want, ok := floats[key]; x != want || isFloat != ok {
			t.Errorf("%s: got the float %v, %t, want %v, %t", key, x, isFloat, want, ok)
		}
		if want, ok := texts[key]; isText != ok || ok && string(b) != want {
			t.Errorf("%s: got the text %q, %t, want %q, %t", key, b, isText, want, ok)
		}
	}
}
