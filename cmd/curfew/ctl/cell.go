package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// cell is a value in a table: as rabbitmqctl prints it, and as JSON.
type cell struct {
	text string
	json []byte
}

// word is plain text.
func word(s string) cell {
	b, err := encode(s)
	if err != nil {
		b = []byte(`""`) // strings have no errors
	}
	return cell{s, b}
}

// plain is a value of the API; null and absent values are empty.
func plain(raw json.RawMessage) cell {
	c := cell{string(raw), raw}
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return cell{"", []byte(`""`)}
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		c.text = s
	}
	return c
}

// names is a list of names, or the API's word for none.
func names(raw json.RawMessage) cell {
	c := plain(raw)
	if all := stringList(raw); all != nil {
		c.text = "[" + strings.Join(all, ", ") + "]"
	}
	return c
}

// terms is an AMQP table. As text it is Erlang's term for it, in the order of the API; as JSON it is an object.
func terms(raw json.RawMessage) cell {
	if len(raw) == 0 {
		return cell{"[]", []byte("{}")}
	}
	var b strings.Builder
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := writeTerm(&b, d, maxNesting); err != nil {
		return cell{string(raw), raw}
	}
	return cell{b.String(), raw}
}

// states maps names to states, as virtual hosts have them for their nodes.
func states(raw json.RawMessage) cell {
	replacer := strings.NewReplacer(`"},{"`, "}, {", `{"`, "{", `","`, ", ", `"}`, "}")
	return cell{replacer.Replace(terms(raw).text), plain(raw).json}
}

// protocol is a version of AMQP: "AMQP 0-9-1", of which rabbitmqctl prints the numbers.
func protocol(raw json.RawMessage) cell {
	c := plain(raw)
	if version, ok := strings.CutPrefix(c.text, "AMQP "); ok {
		numbers := strings.ReplaceAll(version, "-", ",")
		return cell{"{" + numbers + "}", []byte("[" + numbers + "]")}
	}
	return c
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
