package policies

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestJSON(t *testing.T) {
	p := mustParse(t, rabbitMQ, User, `{"priority":-1,"pattern":"<\"é\u2028","definition":{"message-ttl":1000,"dead-letter-exchange":"a&b","ha-params":[1e3,-0.5,1e-7,true,null,{"b":1e300,"a":[]}]},"apply-to":"classic_queues"}`)
	const definition = `{"dead-letter-exchange":"a&b","ha-params":[1000.0,-0.5,1e-07,true,null,{"a":[],"b":1e+300}],"message-ttl":1000}`
	const want = `{"name":"p","pattern":"<\"é\u2028","apply-to":"classic_queues","definition":` + definition + `,"priority":-1}`
	got, err := p.MarshalJSON()
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if !json.Valid(got) {
		t.Errorf("no JSON: %s", got)
	}
}

func TestDefinitionsMarshal(t *testing.T) {
	for _, tc := range []struct {
		definition Definition
		want       string
	}{
		{nil, `{}`},
		{newDefinition(map[string]any{"b": int64(1), "a": "x"}), `{"a":"x","b":1}`},
		{newDefinition(map[string]any{"a": math.Inf(1)}), `{"a":null}`},
	} {
		got, err := json.Marshal(tc.definition)
		if err != nil || string(got) != tc.want {
			t.Errorf("got %s, %v, want %s", got, err, tc.want)
		}
	}
}

// Whatever is sent, it is either refused with a text of bounded length or comes back the same after being written.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"pattern":"^orders\\.","definition":{"message-ttl":60000,"dead-letter-exchange":"dlx"},"priority":1,"apply-to":"queues"}`), false)
	f.Add([]byte(`{"pattern":".*","definition":{"max-length":1000,"overflow":"reject-publish"}}`), true)
	f.Add([]byte(`{"pattern":"(?!a)","definition":{"foo":[1,1.5e3,"a",null,{"b":true}]},"priority":"x","apply-to":1}`), false)
	f.Add([]byte(`{"pattern":"a{1,1000}","definition":{"ha-params":[[[1e3]],{"a":-0.0}],"delivery-limit":-9}}`), false)
	f.Add([]byte(`{"pattern":"\ud800","definition":{"a":99999999999999999999,"a":1}}`), false)
	f.Fuzz(func(t *testing.T, body []byte, operator bool) {
		kind := User
		if operator {
			kind = Operator
		}
		p, err := rabbitMQ.Parse(kind, "p", body)
		if err != nil {
			if len(err.Error()) > 10*maxTerm+maxKeys*(2*maxTerm+10) {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
			return
		}
		checkRoundTrip(t, kind, p)
	})
}

func checkRoundTrip(t *testing.T, kind Kind, p *Policy) {
	t.Helper()
	written, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := rabbitMQ.Parse(kind, p.Name, written)
	if err != nil {
		t.Fatalf("%s: %v", written, err)
	}
	if !again.equal(p) {
		t.Errorf("got %+v, want %+v", again, p)
	}
	if _, err := rabbitMQ.Restore(kind, p.Name, written); err != nil {
		t.Errorf("restoring %s: %v", written, err)
	}
	s := (*Set)(nil).With(kind, p)
	for _, name := range []string{"", p.Pattern, strings.Repeat("a", 255)} {
		s.Match(Subject{Name: name, Type: Classic})
	}
}
