package jsonobj

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// Of a definitions file with a thousand queues an error said "not_json", and nothing else.
func TestErrorsSayWhere(t *testing.T) {
	const text = "{\n  \"a\": {\"é\": \"ü\", \"b\": 5},\n  \"list\": [1, {\"x\": []}],\n  \"a\":{ \"b\" : true } }"
	for _, tt := range []struct {
		name, text string
		read       func(*Reader)
		want       string
	}{
		{name: "broken", text: "{\n\t\"a\": flase}", want: "not_json: line 2, column 8: invalid character 'l' in literal false (expecting 'a')"},
		{name: "not closed", text: "{\n\"a\": {", want: "not_json: line 2, column 7: it ends too early"},
		{name: "two values", text: "{}\n {}", want: "not_json: line 2, column 2: there is something after the end of the value"},
		{name: "no object", text: "\n [1]", want: "not_json: line 2, column 2: an object is expected"},
		{name: "the last member of a name", text: text, read: func(r *Reader) { r.Object("a").Text("b") }, want: "not_string: a.b: line 4, column 15"},
		{name: "a list", text: text, read: func(r *Reader) { r.Flag("list") }, want: "not_boolean: list: line 3, column 11"},
		{name: "a value", text: `{"n":"x"}`, read: func(r *Reader) { r.Int("n") }, want: "not_integer: x (n: line 1, column 6)"},
		{name: "an unknown member", text: "{\"ä\":1, \"b\":2}", read: func(r *Reader) { r.Only("ä") }, want: `unknown member "b"; accepted are ä (b: line 1, column 9)`},
		{
			name: "an element", text: text, want: "not_string: list[1].x: line 3, column 21",
			read: func(r *Reader) {
				o := r.Element("list", 1, r.Value("list").([]any)[1].(map[string]any))
				o.Text("x")
				r.Fail(o.Err())
			},
		},
		{name: "absent", text: text, read: func(r *Reader) { r.Int("none") }, want: "not_integer: none"},
		{
			name: "somebody set it", text: `{}`, want: "not_string: v",
			read: func(r *Reader) {
				r.Set("v", true)
				r.Text("v")
			},
		},
	} {
		r := Read([]byte(tt.text), nil)
		if tt.read != nil {
			tt.read(r)
		}
		if e, ok := errors.AsType[*Error](r.Err()); !ok || e.Text() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.name, r.Err(), tt.want)
		}
	}
}

// Each value is found where it begins.
func FuzzPosition(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,null,true,"x"],"b":{"c":{}}}`, `{"a" : [[ ], {"a":1}], "a": 2}`, `{"\u0061":1,"":{"":0}}`, `{"a":[{"x":[7,{}]}, {"x":1}],"b":[[1]],"a":[9,{"x":2}]}`, `[[1]]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Parse(b)
		if err != nil {
			return
		}
		checkFound(t, &source{text: b}, nil, v)
	})
}

func checkFound(t *testing.T, s *source, p path, v any) {
	t.Helper()
	b := s.text
	offset, ok := s.find(p, false)
	if !ok {
		t.Fatalf("%s: %v is not found", b, p)
	}
	var got any
	d := json.NewDecoder(strings.NewReader(string(b[offset:])))
	d.UseNumber()
	if err := d.Decode(&got); err != nil || string(Marshal(got)) != string(Marshal(v)) {
		t.Fatalf("%s: %v is %v, %v, want %v", b, p, got, err, v)
	}
	switch v := v.(type) {
	case map[string]any:
		for name, it := range v {
			checkFound(t, s, slices.Clone(p.to(name)), it)
		}
	case []any:
		for i, it := range v {
			checkFound(t, s, slices.Clone(p.to(i)), it)
		}
	}
}
