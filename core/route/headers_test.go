package route

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

func TestHeaders(t *testing.T) {
	type fields = amqp.Table
	mode := func(m string, f ...amqp.Field) fields { return append(fields{{Key: "x-match", Value: m}}, f...) }
	a1, b2 := amqp.Field{Key: "a", Value: "1"}, amqp.Field{Key: "b", Value: int32(2)}
	xa := amqp.Field{Key: "x-a", Value: "1"}
	for _, c := range []struct {
		name    string
		binding fields
		headers fields
		want    bool
	}{
		{"no arguments match everything", nil, fields{a1}, true},
		{"no arguments match no headers", nil, nil, true},
		{"all of nothing", mode("all"), nil, true},
		{"any of nothing", mode("any"), fields{a1}, false},
		{"any-with-x of nothing", mode("any-with-x"), fields{{Key: "x-match", Value: "any-with-x"}}, false},
		{"default is all", fields{a1, b2}, fields{a1}, false},
		{"default is all, met", fields{a1, b2}, fields{b2, a1}, true},
		{"all, more headers than asked for", mode("all", a1), fields{b2, a1}, true},
		{"all, no headers", mode("all", a1), nil, false},
		{"any, one", mode("any", a1, b2), fields{b2}, true},
		{"any, none", mode("any", a1, b2), fields{{Key: "a", Value: "2"}}, false},
		{"any, no headers", mode("any", a1), nil, false},
		{"all ignores x-", mode("all", a1, xa), fields{a1}, true},
		{"any ignores x-", mode("any", xa), fields{xa}, false},
		{"all-with-x needs x-", mode("all-with-x", a1, xa), fields{a1}, false},
		{"all-with-x, met", mode("all-with-x", a1, xa), fields{a1, xa}, true},
		{"any-with-x", mode("any-with-x", a1, xa), fields{xa}, true},
		{"void asks for presence", fields{{Key: "a"}}, fields{a1}, true},
		{"void asks for presence, void", fields{{Key: "a"}}, fields{{Key: "a"}}, true},
		{"void asks for presence, absent", fields{{Key: "a"}}, fields{b2}, false},
		{"a value is not met by void", fields{a1}, fields{{Key: "a"}}, false},
		{"any, void", mode("any", amqp.Field{Key: "a"}, b2), fields{a1}, true},
		{"keys are case-sensitive", fields{a1}, fields{{Key: "A", Value: "1"}}, false},
		{"the last of several headers counts", fields{a1}, fields{{Key: "a", Value: "0"}, a1}, true},
		{"the last of several headers counts, other", fields{a1}, fields{a1, {Key: "a", Value: "0"}}, false},
		{"any, the last counts", mode("any", a1), fields{a1, {Key: "a", Value: "0"}}, false},
		{"the same condition twice", fields{a1, a1}, fields{a1}, true},
		{"two values for one header", fields{a1, {Key: "a", Value: "2"}}, fields{a1}, false},
		{"any, two values for one header", mode("any", a1, amqp.Field{Key: "a", Value: "2"}), fields{a1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := New[string](Headers)
			if err := Validate(Headers, c.binding); err != nil {
				t.Fatal(err)
			}
			table.Add("ignored", c.binding, "q")
			if got := len(match(t, table, "", c.headers)) == 1; got != c.want {
				t.Errorf("binding %v, headers %v: %v, want %v", c.binding, c.headers, got, c.want)
			}
			// The same with too many headers for a linear search.
			var many fields
			for i := range 2 * maxLinear {
				many = append(many, amqp.Field{Key: fmt.Sprint("z", i), Value: int32(i)})
			}
			if got := len(match(t, table, "", append(many, c.headers...))) == 1; got != c.want {
				t.Errorf("binding %v, many headers and %v: %v, want %v", c.binding, c.headers, got, c.want)
			}
			if !table.Remove("ignored", c.binding, "q") || len(match(t, table, "", c.headers)) > 0 {
				t.Errorf("binding %v is still there", c.binding)
			}
		})
	}
}

func TestHeaderValues(t *testing.T) {
	for _, c := range []struct {
		binding, header any
		want            bool
	}{
		{"a", "a", true},
		{"a", "A", false},
		{"a", []byte("a"), true},
		{[]byte("a"), "a", true},
		{"", "", true},
		{"1", int32(1), false},
		{int8(-1), int64(-1), true},
		{uint8(255), int8(-1), false},
		{int16(-300), int32(-300), true},
		{uint16(300), int16(300), true},
		{uint32(math.MaxUint32), int64(math.MaxUint32), true},
		{uint32(math.MaxUint32), int32(-1), false},
		{int64(5), amqp.Timestamp(5), true},
		{amqp.Timestamp(5), amqp.Timestamp(5), true},
		{int64(-1), amqp.Timestamp(math.MaxUint64), false},
		{amqp.Timestamp(math.MaxUint64), amqp.Timestamp(math.MaxUint64), true},
		{int32(1), float64(1), false},
		{float32(1.5), float64(1.5), true},
		{float32(0.1), float64(0.1), false},
		{true, true, true},
		{true, false, false},
		{true, int32(1), false},
		{amqp.Decimal{Scale: 1, Value: 10}, amqp.Decimal{Scale: 1, Value: 10}, true},
		{amqp.Decimal{Scale: 0, Value: 1}, amqp.Decimal{Scale: 1, Value: 10}, false},
		{amqp.Array{int32(1)}, amqp.Array{int32(1)}, true},
		{amqp.Array{int32(1)}, amqp.Array{int64(1)}, false},
		{amqp.Table{{Key: "k", Value: "v"}}, amqp.Table{{Key: "k", Value: "v"}}, true},
		{amqp.Table{{Key: "k", Value: "v"}}, amqp.Table{{Key: "k", Value: "w"}}, false},
		{nil, amqp.Array{int32(1)}, true},
	} {
		table := New[string](Headers)
		table.Add("", amqp.Table{{Key: "h", Value: c.binding}}, "q")
		if got := len(match(t, table, "", amqp.Table{{Key: "h", Value: c.header}})) == 1; got != c.want {
			t.Errorf("binding %T(%v), header %T(%v): %v, want %v", c.binding, c.binding, c.header, c.header, got, c.want)
		}
	}
}

func TestHeadersWithoutTable(t *testing.T) {
	table := New[string](Headers)
	table.Add("", nil, "all")
	table.Add("", amqp.Table{{Key: "a", Value: "1"}}, "one")
	if got, _ := table.Match(nil, nil, nil); !slices.Equal(got, []string{"all"}) {
		t.Errorf("Match = %v, want all", got)
	}
}

// A binding is found by any of its conditions.
func TestHeadersAnchors(t *testing.T) {
	table := New[int](Headers)
	for i := range 200 {
		table.Add("", amqp.Table{{Key: "common", Value: "c"}, {Key: "id", Value: int32(i / 2)}, {Key: "half", Value: i%2 == 0}}, i)
	}
	if got := len(table.headers.names["common"]); got > 1 {
		t.Errorf("%d values of a header that all share", got)
	}
	for i := range 200 {
		headers := rawOf(amqp.Table{{Key: "half", Value: i%2 == 0}, {Key: "id", Value: int64(i / 2)}, {Key: "common", Value: "c"}})
		if got, _ := table.Match(nil, nil, headers); !slices.Equal(got, []int{i}) {
			t.Fatalf("Match for %d = %v", i, got)
		}
	}
}

func TestValidate(t *testing.T) {
	arg := func(v any) amqp.Table { return amqp.Table{{Key: "other", Value: "x"}, {Key: "x-match", Value: v}} }
	for _, c := range []struct {
		kind Kind
		args amqp.Table
		want string
	}{
		{Headers, nil, ""},
		{Headers, arg("all"), ""},
		{Headers, arg("any"), ""},
		{Headers, arg("all-with-x"), ""},
		{Headers, arg("any-with-x"), ""},
		{Topic, arg("x"), ""},
		{Direct, arg(int32(5)), ""},
		{Fanout, arg(nil), ""},
		{Headers, arg("x"), `PRECONDITION_FAILED - Invalid x-match field value <<"x">>; expected all, any, all-with-x, or any-with-x`},
		{Headers, arg("ALL"), `PRECONDITION_FAILED - Invalid x-match field value <<"ALL">>; expected all, any, all-with-x, or any-with-x`},
		{Headers, arg(""), `PRECONDITION_FAILED - Invalid x-match field value <<>>; expected all, any, all-with-x, or any-with-x`},
		{Headers, arg("a\"\n"), `PRECONDITION_FAILED - Invalid x-match field value <<"a\"\n">>; expected all, any, all-with-x, or any-with-x`},
		{Headers, arg("\x00\xff"), `PRECONDITION_FAILED - Invalid x-match field value <<0,255>>; expected all, any, all-with-x, or any-with-x`},
		{Headers, arg(int32(5)), `PRECONDITION_FAILED - Invalid x-match field type signedint (value 5); expected longstr`},
		{Headers, arg(true), `PRECONDITION_FAILED - Invalid x-match field type bool (value true); expected longstr`},
		{Headers, arg([]byte("all")), `PRECONDITION_FAILED - Invalid x-match field type binary (value <<"all">>); expected longstr`},
		{Headers, arg(1.0), `PRECONDITION_FAILED - Invalid x-match field type double (value 1.0); expected longstr`},
		{Headers, arg(nil), `PRECONDITION_FAILED - Invalid x-match field type void (value undefined); expected longstr`},
	} {
		err := Validate(c.kind, c.args)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s, %v: %v", c.kind, c.args, err)
			}
			continue
		}
		var e *amqp.Error
		if !errors.As(err, &e) || e.Code != amqp.ReplyPreconditionFailed || err.Error() != c.want {
			t.Errorf("%s, %v:\n got %v\nwant %s", c.kind, c.args, err, c.want)
		}
	}
}

// headersMatch is RabbitMQ's rule on decoded tables, without optimisation.
func headersMatch(args, headers amqp.Table) bool {
	last := map[string]any{}
	for _, h := range headers {
		last[h.Key] = h.Value
	}
	v, _ := args.Lookup("x-match")
	mode, _ := v.(string)
	conditions, met := 0, 0
	for _, a := range args {
		if a.Key == "x-match" || strings.HasPrefix(a.Key, "x-") && !strings.HasSuffix(mode, "-with-x") {
			continue
		}
		conditions++
		h, ok := last[a.Key]
		if ok && (a.Value == nil || reflect.DeepEqual(erlang(a.Value), erlang(h))) {
			met++
		}
	}
	if strings.HasPrefix(mode, "any") {
		return met > 0
	}
	return met == conditions
}

// erlang returns what RabbitMQ decodes a value to, for comparison.
func erlang(v any) any {
	if n, ok := amqp.Integer(v); ok {
		return n
	}
	switch v := v.(type) {
	case amqp.Timestamp:
		if v <= math.MaxInt64 {
			return int64(v)
		}
	case float32:
		return math.Float64bits(float64(v))
	case float64:
		return math.Float64bits(v)
	case []byte:
		return string(v)
	case amqp.Table, amqp.Array:
		f := amqp.AppendTable(nil, amqp.Table{{Value: v}})
		return [1]string{string(f)}
	}
	return v
}

func FuzzHeaders(f *testing.F) {
	encode := func(t amqp.Table) []byte { return amqp.AppendTable(nil, t) }
	f.Add(encode(amqp.Table{{Key: "a", Value: "1"}}), encode(amqp.Table{{Key: "a", Value: []byte("1")}}))
	f.Add(encode(amqp.Table{{Key: "x-match", Value: "any"}, {Key: "x-a", Value: nil}, {Key: "b", Value: int8(1)}}),
		encode(amqp.Table{{Key: "b", Value: int64(1)}, {Key: "b", Value: float32(1)}}))
	f.Add(encode(amqp.Table{{Key: "x-match", Value: "all-with-x"}, {Key: "x-a", Value: true}}), encode(amqp.Table{{Key: "x-a", Value: true}}))
	f.Fuzz(func(t *testing.T, binding, headers []byte) {
		args, _, err := amqp.ParseTable(binding)
		if err != nil || Validate(Headers, args) != nil {
			t.Skip()
		}
		raw, _, err := amqp.ParseRawTable(headers)
		if err != nil {
			t.Skip()
		}
		// Compare both sides after one encoding, which turns L into l.
		decoded, err := raw.Decode()
		if err != nil {
			t.Fatal(err)
		}
		table := New[string](Headers)
		table.Add("", args, "q")
		_, got := table.Match(nil, nil, rawOf(decoded))
		if want := headersMatch(args, decoded); got != want {
			t.Errorf("binding %v, headers %v: %v, want %v", args, decoded, got, want)
		}
		table.Match(nil, nil, func() amqp.RawTable { return raw })
		if !table.Remove("", args, "q") || len(table.headers.names)+len(table.headers.always) > 0 {
			t.Errorf("binding %v leaves something behind", args)
		}
	})
}
