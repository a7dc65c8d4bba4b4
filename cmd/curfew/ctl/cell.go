package ctl

import (
	"bytes"
	"encoding/json"
	"strings"
)

// cell is a value in a table, both as the text that rabbitmqctl prints and as JSON.
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

// names is a list of names, or the API's text for an empty list.
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
	if !writeTerm(&b, raw, maxNesting) {
		return cell{string(raw), raw}
	}
	return cell{b.String(), raw}
}

// states maps names to states, for example the nodes of a virtual host to its state there.
func states(raw json.RawMessage) cell {
	replacer := strings.NewReplacer(`"},{"`, "}, {", `{"`, "{", `","`, ", ", `"}`, "}")
	return cell{replacer.Replace(terms(raw).text), plain(raw).json}
}

// protocol is a version of AMQP. Of "AMQP 0-9-1" rabbitmqctl prints only the numbers.
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

// writeTerm writes JSON as an Erlang term. It returns false if the JSON is nested too deeply.
func writeTerm(b *strings.Builder, raw json.RawMessage, depth int) bool {
	if depth == 0 {
		return false
	}
	switch raw[0] {
	case '{':
		separator := ""
		b.WriteByte('[')
		for name, value := range members(raw) {
			b.WriteString(separator + `{"` + name + `",`)
			if !writeTerm(b, value, depth-1) {
				return false
			}
			b.WriteByte('}')
			separator = ","
		}
		b.WriteByte(']')
	case '[':
		var items []json.RawMessage
		_ = json.Unmarshal(raw, &items) // valid JSON: the decoder of the answer has checked it
		b.WriteByte('[')
		for i, item := range items {
			if i > 0 {
				b.WriteByte(',')
			}
			if !writeTerm(b, item, depth-1) {
				return false
			}
		}
		b.WriteByte(']')
	case 'n':
		b.WriteString("undefined")
	case '"':
		b.WriteString(`"` + plain(raw).text + `"`)
	default:
		b.Write(raw)
	}
	return true
}
