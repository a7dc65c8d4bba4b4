package policy

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// Any file is either a trace or an error, and a trace that is written and read again stays the same.
func FuzzTrace(f *testing.F) {
	// short, because the fuzzer takes long to make long ones shorter
	for _, seed := range []string{
		`{"event":"queue","settings":{"x-a":1}}` + "\n" + `{"event":"ack","id":"a"}`,
		`{"event":"publish","expiration":-1,"headers":{"a":1e400}}`,
		`{"event":"idle","at":5,"idle":7}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := parseTrace(bytes.NewReader(b))
		if err != nil {
			return
		}
		var written bytes.Buffer
		e := json.NewEncoder(&written)
		if first.queue.Event != "" {
			if err := e.Encode(first.queue); err != nil {
				t.Fatal(err)
			}
		}
		for i := range first.events {
			if err := e.Encode(&first.events[i]); err != nil {
				t.Fatal(err)
			}
			m := first.events[i].message()
			m.Bind(contents{&first.events[i]}, 0)
			m.HeaderInt("a")
		}
		second, err := parseTrace(&written)
		if err != nil {
			t.Fatalf("%v: %s", err, &written)
		}
		if len(first.events) != len(second.events) || !reflect.DeepEqual(first.queue.Settings, second.queue.Settings) {
			t.Errorf("got %+v and then %+v", first, second)
		}
	})
}
