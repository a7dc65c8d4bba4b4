package ctl

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"slices"
	"strings"
)

// column is something that can be listed of a kind of thing.
type column struct {
	name string
	// path is where the API has it, with dots between the names of objects in objects; "" = under the same name.
	path string
	show func(json.RawMessage) cell // nil = as it is
}

func (c column) source() string {
	if c.path == "" {
		return c.name
	}
	return c.path
}

// cell takes the column's value off o.
func (c column) cell(o object) cell {
	raw := o.at(c.source())
	if c.show == nil {
		return plain(raw)
	}
	return c.show(raw)
}

// at follows a path; nil = there is nothing.
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

func showNames(raw json.RawMessage) cell    { return names(raw) }
func showTerms(raw json.RawMessage) cell    { return terms(raw) }
func showStates(raw json.RawMessage) cell   { return states(raw) }
func showProtocol(raw json.RawMessage) cell { return protocol(raw) }

// showText shows JSON as the text it is.
func showText(raw json.RawMessage) cell { return word(raw) }

// known are the columns a command can list, and those it lists when none is named.
type known struct {
	columns []column
	usual   string // between spaces
}

func (k known) names() []string {
	all := make([]string, len(k.columns))
	for i, c := range k.columns {
		all[i] = c.name
	}
	return all
}

// pick returns the columns that the operands name, between commas or as words of their own, each once.
func (k known) pick(operands []string) ([]column, error) {
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

// check is a command's check of its operands when they are columns.
func (k known) check(c *call) error {
	_, err := k.pick(c.operands)
	return err
}

// list prints columns of all things at path that keep, nil for all, wants. Fields names what keep looks at.
func (c *call) list(ctx context.Context, path string, k known, keep func(object) bool, fields ...string) error {
	columns, err := k.pick(c.operands)
	if err != nil {
		return err
	}
	for _, col := range columns {
		fields = append(fields, col.source())
	}
	slices.Sort(fields)
	query := url.Values{"columns": {strings.Join(slices.Compact(fields), ",")}}
	return c.print(table{columns: titles(columns), rows: rows(c.api.each(ctx, path+"?"+query.Encode()), columns, keep)})
}

func titles(columns []column) []string {
	t := make([]string, len(columns))
	for i, col := range columns {
		t[i] = col.name
	}
	return t
}

func rows(things iter.Seq2[object, error], columns []column, keep func(object) bool) iter.Seq2[[]cell, error] {
	return func(yield func([]cell, error) bool) {
		for o, err := range things {
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
		row[i] = col.cell(o)
	}
	return row
}

// showAll prints things that are there already.
func (c *call) showAll(things []object, columns ...column) error {
	all := make([][]cell, len(things))
	for i, o := range things {
		all[i] = cells(o, columns)
	}
	return c.print(whole(titles(columns), all))
}

func whole(titles []string, all [][]cell) table {
	return table{columns: titles, whole: true, rows: func(yield func([]cell, error) bool) {
		for _, row := range all {
			if !yield(row, nil) {
				return
			}
		}
	}}
}

func (c *call) print(t table) error { return c.out.table(c.program.Stdout, t) }
