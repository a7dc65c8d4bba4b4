package ctl

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/curfewmq/curfew/cmd/curfew/printable"
)

// table is the result of a command that lists objects.
type table struct {
	columns []string
	rows    iter.Seq2[[]cell, error]
	// whole tables have all rows read before the first is printed. rabbitmqctl prints an empty line if such a table has no rows.
	whole bool
	// bare tables never have a header.
	bare bool
}

// print writes each row with the number of rows before it, and then the end. If reading the rows fails, it writes the rows before
// the error, and returns the error.
func (t table) print(w io.Writer, row func(b *bufio.Writer, n int, row []cell), end func(b *bufio.Writer, n int)) error {
	b := bufio.NewWriter(w)
	n := 0
	for r, err := range t.rows {
		if err != nil {
			if e := b.Flush(); e != nil {
				return e
			}
			return err
		}
		row(b, n, r)
		n++
	}
	end(b, n)
	return b.Flush()
}

// formatter is a way to print results.
type formatter interface {
	banners() bool                          // whether banners may be printed before the result
	message(w io.Writer, text string) error // a line
	done(w io.Writer) error                 // there is no result: the command succeeded
	table(w io.Writer, t table) error       // rows
}

func newFormatter(l *commandLine) (formatter, error) {
	name := l.value("formatter")
	switch {
	case l.has("json") && name != "" && name != "json":
		return nil, misused("--json and --formatter %s contradict each other", name)
	case l.has("json"), name == "json":
		return jsonFormatter{}, nil
	case name == "csv":
		return csvFormatter{}, nil
	case name == "pretty_table":
		return prettyFormatter{}, nil
	case name == "table", name == "":
		return tableFormatter{headers: !l.has("silent") && !l.has("no-table-headers")}, nil
	}
	return nil, misused("--formatter %s: expected table, json, csv or pretty_table", name)
}

// tableFormatter separates columns by tabs, which scripts read.
type tableFormatter struct{ headers bool }

func (tableFormatter) banners() bool { return true }

func (tableFormatter) message(w io.Writer, text string) error {
	_, err := fmt.Fprintln(w, printable.Lines(text))
	return err
}

func (tableFormatter) done(io.Writer) error { return nil }

func (f tableFormatter) table(w io.Writer, t table) error {
	row := func(b *bufio.Writer, n int, row []cell) {
		if n == 0 && f.headers && !t.bare {
			fmt.Fprintln(b, strings.Join(t.columns, "\t"))
		}
		fmt.Fprintln(b, strings.Join(texts(row), "\t"))
	}
	return t.print(w, row, func(b *bufio.Writer, n int) {
		if n == 0 && t.whole {
			fmt.Fprintln(b)
		}
	})
}

func texts(row []cell) []string {
	all := make([]string, len(row))
	for i, c := range row {
		all[i] = printable.Text(c.text) // clients choose names
	}
	return all
}

// jsonFormatter writes a list with an object for each row.
type jsonFormatter struct{}

func (jsonFormatter) banners() bool { return false }

func (jsonFormatter) message(w io.Writer, text string) error {
	_, err := fmt.Fprintf(w, "{\"message\":%s,\"status\":\"ok\"}\n", printable.JSON(word(text).json))
	return err
}

func (jsonFormatter) done(w io.Writer) error {
	_, err := fmt.Fprintln(w, `{"result":"ok"}`)
	return err
}

func (jsonFormatter) table(w io.Writer, t table) error {
	row := func(b *bufio.Writer, n int, row []cell) {
		if n == 0 {
			fmt.Fprintln(b, "[")
		} else {
			_ = b.WriteByte(',') // Flush returns the error
		}
		writeObject(b, t.columns, row)
		_ = b.WriteByte('\n')
	}
	return t.print(w, row, func(b *bufio.Writer, n int) {
		switch {
		case n > 0:
			fmt.Fprintln(b, "]")
		case t.whole:
			fmt.Fprintln(b, "[]")
		default:
			fmt.Fprint(b, "[\n]\n")
		}
	})
}

func writeObject(b *bufio.Writer, columns []string, row []cell) {
	_ = b.WriteByte('{')
	for i, c := range row {
		if i > 0 {
			_ = b.WriteByte(',')
		}
		_, _ = b.Write(word(columns[i]).json)
		_ = b.WriteByte(':')
		_, _ = b.Write(printable.JSON(c.json))
	}
	_ = b.WriteByte('}')
}

// csvFormatter puts every field in quotes.
type csvFormatter struct{}

func (csvFormatter) banners() bool { return false }

func (csvFormatter) message(w io.Writer, text string) error {
	_, err := fmt.Fprintln(w, quoted(printable.Lines(text)))
	return err
}

func (csvFormatter) done(io.Writer) error { return nil }

func (csvFormatter) table(w io.Writer, t table) error {
	row := func(b *bufio.Writer, n int, row []cell) {
		if n == 0 {
			fmt.Fprintln(b, csvLine(t.columns))
		}
		fmt.Fprintln(b, csvLine(texts(row)))
	}
	return t.print(w, row, func(*bufio.Writer, int) {})
}

// csvLine quotes every field; encoding/csv would quote a field only if need be.
func csvLine(fields []string) string {
	q := make([]string, len(fields))
	for i, f := range fields {
		q[i] = quoted(f)
	}
	return strings.Join(q, ",")
}

func quoted(field string) string { return `"` + strings.ReplaceAll(field, `"`, `""`) + `"` }

// prettyFormatter draws boxes around cells.
type prettyFormatter struct{ tableFormatter }

func (prettyFormatter) table(w io.Writer, t table) error {
	var lines [][]string
	if !t.bare {
		lines = append(lines, t.columns)
	}
	header := len(lines)
	for row, err := range t.rows {
		if err != nil {
			return err
		}
		lines = append(lines, texts(row))
	}
	if len(lines) == header {
		return nil
	}
	_, err := io.WriteString(w, boxed(lines))
	return err
}

func boxed(lines [][]string) string {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, text := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	var b strings.Builder
	for i, line := range lines {
		if i == 0 {
			b.WriteString(rule(widths, "┌", "┬", "┐"))
		} else {
			b.WriteString(rule(widths, "├", "┼", "┤"))
		}
		for i, text := range line {
			fmt.Fprintf(&b, "│ %-*s ", widths[i], text)
		}
		b.WriteString("│\n")
	}
	b.WriteString(rule(widths, "└", "┴", "┘"))
	return b.String()
}

func rule(widths []int, left, middle, right string) string {
	parts := make([]string, len(widths))
	for i, n := range widths {
		parts[i] = strings.Repeat("─", n+2)
	}
	return left + strings.Join(parts, middle) + right + "\n"
}
