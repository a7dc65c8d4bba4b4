package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// cell is a value in a table.
type cell interface {
	text() string // in a table, as rabbitmqctl prints it
	json() []byte
}

// word is plain text.
type word string

func (w word) text() string { return string(w) }

func (w word) json() []byte {
	b, err := encode(string(w))
	if err != nil {
		return []byte(`""`) // strings have no errors
	}
	return b
}

// plain is a value of the API; null and absent values are empty.
type plain json.RawMessage

func (p plain) text() string {
	var s string
	if json.Unmarshal(p, &s) == nil { // null is "", too
		return s
	}
	return string(p)
}

func (p plain) json() []byte { return orEmpty(p) }

func orEmpty(raw []byte) []byte {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return []byte(`""`)
	}
	return raw
}

// names is a list of names, or the API's word for none.
type names json.RawMessage

func (n names) text() string {
	var all []string
	if err := json.Unmarshal(n, &all); err != nil || all == nil {
		return plain(n).text()
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func (n names) json() []byte { return orEmpty(n) }

// terms is an AMQP table. It is printed as Erlang would, in the order the API has it; as JSON it is an object.
type terms json.RawMessage

func (t terms) text() string {
	if len(t) == 0 {
		return "[]"
	}
	var b strings.Builder
	d := json.NewDecoder(bytes.NewReader(t))
	d.UseNumber()
	if err := writeTerm(&b, d, maxNesting); err != nil {
		return string(t)
	}
	return b.String()
}

func (t terms) json() []byte {
	if len(t) == 0 {
		return []byte("{}")
	}
	return t
}

// states maps names to states, as virtual hosts have them for their nodes.
type states json.RawMessage

func (s states) text() string {
	t := terms(s).text()
	return strings.NewReplacer(`"},{"`, "}, {", `{"`, "{", `","`, ", ", `"}`, "}").Replace(t)
}

func (s states) json() []byte { return orEmpty(s) }

// protocol is a version of AMQP: "AMQP 0-9-1", of which rabbitmqctl prints the numbers.
type protocol json.RawMessage

func (p protocol) numbers() (string, bool) {
	version, ok := strings.CutPrefix(plain(p).text(), "AMQP ")
	return strings.ReplaceAll(version, "-", ","), ok
}

func (p protocol) text() string {
	if n, ok := p.numbers(); ok {
		return "{" + n + "}"
	}
	return plain(p).text()
}

func (p protocol) json() []byte {
	if n, ok := p.numbers(); ok {
		return []byte("[" + n + "]")
	}
	return orEmpty(p)
}

// maxNesting bounds the nesting of a table.
const maxNesting = 64

var errTooDeep = errors.New("nested too deeply")

func writeTerm(b *strings.Builder, d *json.Decoder, depth int) error {
	if depth == 0 {
		return errTooDeep
	}
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch v := token.(type) {
	case json.Delim:
		return writeTerms(b, d, v == '{', depth)
	case string:
		b.WriteString(`"` + v + `"`)
	case json.Number:
		b.WriteString(v.String())
	case bool:
		b.WriteString(map[bool]string{true: "true", false: "false"}[v])
	default:
		b.WriteString("undefined")
	}
	return nil
}

// writeTerms writes the items of a list, or the pairs of an object.
func writeTerms(b *strings.Builder, d *json.Decoder, pairs bool, depth int) error {
	b.WriteByte('[')
	for i := 0; d.More(); i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeMember(b, d, pairs, depth-1); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	_, err := d.Token()
	return err
}

func writeMember(b *strings.Builder, d *json.Decoder, pair bool, depth int) error {
	if !pair {
		return writeTerm(b, d, depth)
	}
	b.WriteByte('{')
	if err := writeTerm(b, d, depth); err != nil { // the key
		return err
	}
	b.WriteByte(',')
	if err := writeTerm(b, d, depth); err != nil {
		return err
	}
	b.WriteByte('}')
	return nil
}
