package amqp

import (
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	long, longer := strings.Repeat("l", 63), strings.Repeat("l", 200)
	names := NewNames("CC", "a", long, longer, "")
	for _, tc := range []struct {
		name  string
		table Table
		want  string // the values found, in the order of the names
	}{
		{"nothing", nil, "-----"},
		{"others", Table{{Key: "cc", Value: "1"}, {Key: "DD", Value: "2"}, {Key: long + "x", Value: "3"}}, "-----"},
		{"some", Table{{Key: "b", Value: "x"}, {Key: "a", Value: "1"}, {Key: longer, Value: "2"}}, "-1-2-"},
		{"all", Table{{Key: "", Value: "5"}, {Key: longer, Value: "4"}, {Key: long, Value: "3"}, {Key: "a", Value: "2"}, {Key: "CC", Value: "1"}}, "12345"},
		{"twice, the first counts", Table{{Key: "a", Value: "1"}, {Key: "a", Value: "2"}}, "-1---"},
	} {
		raw := RawTable(AppendTable(nil, tc.table)[4:])
		found := make([]RawField, names.Len())
		some := raw.Find(names, found)
		var values []byte
		for _, f := range found {
			if f.Key == nil {
				values = append(values, '-')
				continue
			}
			values = append(values, f.Value...)
		}
		got := string(values)
		if got != tc.want || some != (got != "-----") {
			t.Errorf("%s: got %s, %t, want %s", tc.name, got, some, tc.want)
		}
		if n := testing.AllocsPerRun(10, func() { raw.Find(names, found) }); n > 0 {
			t.Errorf("%s: %v allocations", tc.name, n)
		}
	}
}

// Bytes that are not a table are read up to the first fault.
func FuzzFind(f *testing.F) {
	f.Add([]byte(RawTable(AppendTable(nil, Table{{Key: "a", Value: "1"}})[4:])))
	f.Add([]byte{1, 'a'})
	names := NewNames("a", "CC")
	f.Fuzz(func(t *testing.T, b []byte) {
		found := make([]RawField, names.Len())
		some := RawTable(b).Find(names, found)
		for i, key := range []string{"a", "CC"} {
			want, ok := RawTable(b).LookupRaw(key)
			if ok != (found[i].Key != nil) || ok && (!some || string(want.Value) != string(found[i].Value) || want.Type != found[i].Type) {
				t.Errorf("%s: got %+v, want %+v, %t", key, found[i], want, ok)
			}
		}
	})
}
