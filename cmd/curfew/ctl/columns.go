package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// column is a property that can be listed.
type column struct {
	name string
	path string                     // where it is in the API's object; dots separate the names of nested objects
	show func(json.RawMessage) cell // formats it
}

// kinds are the formats of columns, by the names that [columns] uses.
var kinds = map[string]func(json.RawMessage) cell{
	"":         plain,
	"terms":    terms,
	"names":    names,
	"time":     instant,
	"states":   states,
	"protocol": protocol,
	"text":     func(raw json.RawMessage) cell { return word(string(raw)) }, // JSON, unchanged
	"quoted":   quotedCell,
	"instant":  instantCell,
	"exchange": func(json.RawMessage) cell { return word("exchange") },
}

// columns reads columns from words: "name", "arguments:terms" (with a kind) or "pid=name" (with a path, if it differs from the name).
func columns(text string) []column {
	var all []column
	for w := range strings.FieldsSeq(text) {
		w, kind, _ := strings.Cut(w, ":")
		name, path, ok := strings.Cut(w, "=")
		if !ok {
			path = name
		}
		all = append(all, column{name, path, kinds[kind]})
	}
	return all
}

// at returns the value at a path; nil = it does not exist.
func (o object) at(path string) json.RawMessage {
	name, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		return o[name]
	}
	var inner object
	if json.Unmarshal(o[name], &inner) != nil {
		return nil
	}
	return inner.at(rest)
}

// known are the columns that a command can list, and its default columns.
type known struct {
	columns []column
	usual   string // separated by spaces
}

// pick returns the columns that the operands name, each once. Commas separate them within an operand.
func (k *known) pick(operands []string) ([]column, error) {
	if len(operands) == 0 {
		operands = strings.Fields(k.usual)
	}
	var picked []column
	var wrong []string
	for name := range strings.SplitSeq(strings.Join(operands, ","), ",") {
		i := slices.IndexFunc(k.columns, func(c column) bool { return c.name == name })
		switch {
		case i < 0:
			wrong = append(wrong, name)
		case !slices.ContainsFunc(picked, func(c column) bool { return c.name == name }):
			picked = append(picked, k.columns[i])
		}
	}
	if len(wrong) > 0 {
		return nil, misused("Info key(s) %s are not supported", strings.Join(wrong, ","))
	}
	return picked, nil
}

// list prints the command's columns of all objects at path, or only of objects that keep accepts. fields are the members that keep
// reads. A virtual host that does not exist is an error, except under the name rabbitmqctl: rabbitmqctl prints an empty list, and
// scripts may rely on it.
func (c *call) list(ctx context.Context, path string, keep func(object) bool, fields ...string) error {
	picked, err := c.command.lists.pick(c.operands)
	if err != nil {
		return err
	}
	for _, col := range picked {
		fields = append(fields, col.path)
	}
	slices.Sort(fields)
	query := url.Values{"columns": {strings.Join(slices.Compact(fields), ",")}}
	objects := c.api.each(ctx, c.path(path)+"?"+query.Encode())
	err = c.print(table{columns: titles(picked), rows: rows(objects, picked, keep)})
	if isRefusal(err, http.StatusNotFound) && strings.Contains(path, "{vhost}") {
		if c.program.Name != rabbitmqctl {
			return c.missing(err, noVHost)
		}
		return c.print(table{rows: rows(each(nil), nil, nil)})
	}
	return err
}

func titles(columns []column) []string {
	t := make([]string, len(columns))
	for i, col := range columns {
		t[i] = col.name
	}
	return t
}

func rows(objects iter.Seq2[object, error], columns []column, keep func(object) bool) iter.Seq2[[]cell, error] {
	return func(yield func([]cell, error) bool) {
		for o, err := range objects {
			if err == nil && keep != nil && !keep(o) {
				continue
			}
			var row []cell
			if err == nil {
				row = cells(o, columns)
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

func cells(o object, columns []column) []cell {
	row := make([]cell, len(columns))
	for i, col := range columns {
		row[i] = col.show(o.at(col.path))
	}
	return row
}

// showAll prints objects from a slice.
func (c *call) showAll(objects []object, columns ...column) error {
	return c.print(whole(objects, columns))
}

func whole(objects []object, columns []column) table {
	return table{columns: titles(columns), whole: true, rows: rows(each(objects), columns, nil)}
}

func each(objects []object) iter.Seq2[object, error] {
	return func(yield func(object, error) bool) {
		for _, o := range objects {
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (c *call) print(t table) error { return c.out.table(c.program.Stdout, t) }

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
