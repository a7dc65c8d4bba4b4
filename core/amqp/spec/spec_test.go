package spec

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The checked-in generated file equals the output of the generator for the checked-in table.
func TestGeneratedFileIsUpToDate(t *testing.T) {
	p, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	want, err := Generate(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../methods_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("core/amqp/methods_gen.go is stale: run go generate ./core/amqp")
	}
}

func TestTableHasTheWholeProtocol(t *testing.T) {
	p, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]int{}
	for _, c := range p.Classes {
		methods[c.Name] = len(c.Methods)
		if want := 14; c.Name == "basic" && len(c.Properties) != want {
			t.Errorf("got %d properties, want %d", len(c.Properties), want)
		}
	}
	want := map[string]int{
		"connection": 14, "channel": 6, "access": 2, "exchange": 8, "queue": 10, "basic": 18, "confirm": 2, "tx": 6,
	}
	for name, n := range want {
		if methods[name] != n {
			t.Errorf("class %s: got %d methods, want %d", name, methods[name], n)
		}
	}
	if len(methods) != len(want) || len(p.Replies) != 19 {
		t.Errorf("got %d classes and %d replies", len(methods), len(p.Replies))
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a lonely word", "class", `line 1: "class" stands alone`},
		{"a class without id", "class queue", "line 1: a class is a name and an id"},
		{"a class with a bad id", "class queue fifty", `line 1: number "fifty" is not in 0..65535`},
		{"a class twice", "class a 1\nclass b 1", "line 2: class a 1 is there already"},
		{"a method before its class", "# none yet\n\n10 open sync", "line 3: method or property before the first class"},
		{"a property before its class", "property x:bit", "line 1: method or property before the first class"},
		{"a method twice", "class a 1\n10 open\n10 close", "line 3: method open 10 is there already"},
		{"a method with a bad id", "class a 1\n70000 open", `line 2: number "70000" is not in 0..65535`},
		{"a method with an unknown trait", "class a 1\n10 open async", `line 2: method open is "async", neither sync nor content`},
		{"a field of no type", "class a 1\n10 open x:", `line 2: method open: field "x:" is not NAME:TYPE with a known type`},
		{"a property of unknown type", "class a 1\nproperty x:float", `line 2: field "x:float" is not NAME:TYPE with a known type`},
		{"a reply without name", "reply 404", "line 1: a reply is a code, a name and perhaps soft or hard"},
		{"a reply with a bad code", "reply x not-found", `line 1: number "x" is not in 0..65535`},
		{"a reply of unknown hardness", "reply 404 not-found firm", `line 1: reply 404 is "firm", neither soft nor hard`},
	} {
		if _, err := Parse(c.text); err == nil || err.Error() != c.want {
			t.Errorf("%s: got error %v, want %s", c.name, err, c.want)
		}
	}
}

// More than eight neighbouring bits, a lone bit and every field type produce valid Go code.
func TestGenerateEveryShape(t *testing.T) {
	bits := strings.Repeat(" b:bit", 9)
	for i := range 9 {
		bits = strings.Replace(bits, " b:", " b"+string(rune('a'+i))+":", 1)
	}
	p, err := Parse("class a 1\n10 m" + bits + " o:octet c:bit t:timestamp s:shortstr l:longstr f:table\n11 n\nreply 404 not-found soft")
	if err != nil {
		t.Fatal(err)
	}
	src, err := Generate(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`c.bits("ba", &m.Ba, &m.Bb, &m.Bc, &m.Bd, &m.Be, &m.Bf, &m.Bg, &m.Bh)`, `c.bits("bi", &m.Bi)`, `c.bits("c", &m.C)`, "type AN struct{ noArguments }"} {
		if !bytes.Contains(src, []byte(want)) {
			t.Errorf("no %s in the generated code", want)
		}
	}
}
