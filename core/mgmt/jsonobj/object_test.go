package jsonobj

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAppendJSON(t *testing.T) {
	for _, tt := range []struct {
		name  string
		value any
		want  string
	}{
		{"null", nil, "null"},
		{"truth", true, "true"},
		{"int", -5, "-5"},
		{"large", uint64(math.MaxUint64), "18446744073709551615"},
		{"whole float", 3.0, "3.0"},
		{"fraction", 0.1, "0.1"},
		{"huge", 1e300, "1e+300"},
		{"not a number", math.NaN(), "null"},
		{"infinite", math.Inf(-1), "null"},
		{"string", "a\"\\\n\t\x00\x7fé\u2028", `"a\"\\\n\u0009\u0000\u007fé` + "\u2028" + `"`},
		{"not UTF-8", "a\xffb", "\"a\ufffdb\""},
		{"object", Object{{"b", 1}, {"a", Object{}}, {"l", []Object{{{"x", "y"}}, {}}}}, `{"b":1,"a":{},"l":[{"x":"y"},{}]}`},
		{"lists", []any{[]string{"a"}, []any{}, []Object{}}, `[["a"],[],[]]`},
		{"raw", json.RawMessage(`{"a": 1}`), `{"a": 1}`},
		{"number", json.Number("1.50"), "1.50"},
	} {
		if got := string(Append(nil, tt.value)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestFindAndPick(t *testing.T) {
	o := Object{
		{"name", "q"},
		{"stats", Object{{"publish", 5}, {"details", Object{{"rate", 1.5}}}}},
		{"list", []Object{{{"a", 1}, {"b", 2}}, {{"b", 3}}}},
	}
	for path, want := range map[string]any{
		"name": "q", "stats.publish": 5, "stats.details.rate": 1.5, "none": nil, "name.x": nil, "stats.none": nil, "stats.details.rate.x": nil, "": nil,
	} {
		if got, _ := o.Find(strings.Split(path, ".")); got != want {
			t.Errorf("find %q: got %v, want %v", path, got, want)
		}
	}
	for columns, want := range map[string]string{
		"name":                        `{"name":"q"}`,
		"none":                        `{}`,
		"stats.details.rate,name":     `{"name":"q","stats":{"details":{"rate":1.5}}}`,
		"stats.publish,stats.details": `{"stats":{"publish":5,"details":{"rate":1.5}}}`,
		"stats,stats.publish":         `{"stats":{"publish":5,"details":{"rate":1.5}}}`,
		"list.a":                      `{"list":[{"a":1},{}]}`,
		"name.x":                      `{"name":"q"}`,
	} {
		var paths [][]string
		for column := range strings.SplitSeq(columns, ",") {
			paths = append(paths, strings.Split(column, "."))
		}
		if got := string(Append(nil, o.Pick(paths))); got != want {
			t.Errorf("pick %q: got %s, want %s", columns, got, want)
		}
	}
}

// Any string is printed as JSON of that string.
func FuzzString(f *testing.F) {
	f.Add("a\"\\\n\x00\xff\u2028é\U0001F600")
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		if err := json.Unmarshal(appendString(nil, s), &got); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); utf8.ValidString(s) && got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A value prints as it was read, and has the depth that was measured.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,null,true,"x"],"b":{"c":{}}}`, `[[[]]]`, `"\u0000\\"`, `{"a":1} x`, strings.Repeat("[", 100)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(Append(nil, FromParsed(v)))
		if err != nil || !reflect.DeepEqual(v, again) {
			t.Errorf("got %v, %v, want %v", again, err, v)
		}
		if n, _ := shape(b); n > maxDepth || n < bytes.Count(b[:1], []byte("{")) {
			t.Errorf("%s: %d levels", b, n)
		}
	})
}
