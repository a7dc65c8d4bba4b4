package ctl

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"strings"
)

// table is the outcome of a command that lists things.
type table struct {
	columns []string
	rows    iter.Seq2[[]cell, error]
	// whole tells that rabbitmqctl has all rows before it prints the first; it prints an empty line then when there is none.
	whole bool
	// bare tables never have a header.
	bare bool
}

// formatter is a way to print outcomes.
type formatter interface {
	banners() bool                          // lines that tell what is being done may precede the outcome
	message(w io.Writer, text string) error // a line
	done(w io.Writer) error                 // no outcome: it worked
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
	return nil, misused("--formatter %s: there are table, json, csv and pretty_table", name)
}

// tableFormatter writes columns between tabs, which is what scripts read.
type tableFormatter struct{ headers bool }

func (tableFormatter) banners() bool { return true }

func (tableFormatter) message(w io.Writer, text string) error {
	_, err := fmt.Fprintln(w, text)
	return err
}

func (tableFormatter) done(io.Writer) error { return nil }

func (f tableFormatter) table(w io.Writer, t table) error {
	b := bufio.NewWriter(w)
	count := 0
	for row, err := range t.rows {
		if err != nil {
			return joinFlush(b, err)
		}
		if count++; count == 1 && f.headers && !t.bare {
			fmt.Fprintln(b, strings.Join(t.columns, "\t"))
		}
		writeRow(b, row)
	}
	if count == 0 && t.whole {
		fmt.Fprintln(b)
	}
	return b.Flush()
}

func writeRow(b *bufio.Writer, row []cell) {
	for i, c := range row {
		if i > 0 {
			_ = b.WriteByte('\t') // Flush tells
		}
		_, _ = b.WriteString(c.text())
	}
	_ = b.WriteByte('\n')
}

// joinFlush writes what came before an error.
func joinFlush(b *bufio.Writer, err error) error {
	if e := b.Flush(); e != nil {
		return e
	}
	return err
}

// jsonFormatter writes an object a row.
type jsonFormatter struct{}

func (jsonFormatter) banners() bool { return false }

func (jsonFormatter) message(w io.Writer, text string) error {
	_, err := fmt.Fprintf(w, "{\"message\":%s,\"status\":\"ok\"}\n", word(text).json())
	return err
}

func (jsonFormatter) done(w io.Writer) error {
	_, err := fmt.Fprintln(w, `{"result":"ok"}`)
	return err
}

func (jsonFormatter) table(w io.Writer, t table) error {
	b := bufio.NewWriter(w)
	count := 0
	for row, err := range t.rows {
		if err != nil {
			return joinFlush(b, err)
		}
		if count++; count == 1 {
			fmt.Fprintln(b, "[")
		} else {
			_ = b.WriteByte(',') // Flush tells
		}
		writeObject(b, t.columns, row)
		_ = b.WriteByte('\n')
	}
	switch {
	case count > 0:
		fmt.Fprintln(b, "]")
	case t.whole:
		fmt.Fprintln(b, "[]")
	default:
		fmt.Fprint(b, "[\n]\n")
	}
	return b.Flush()
}

func writeObject(b *bufio.Writer, columns []string, row []cell) {
	_ = b.WriteByte('{')
	for i, c := range row {
		if i > 0 {
			_ = b.WriteByte(',')
		}
		_, _ = b.Write(word(columns[i]).json())
		_ = b.WriteByte(':')
		_, _ = b.Write(c.json())
	}
	_ = b.WriteByte('}')
}

// csvFormatter puts every field in quotes.
type csvFormatter struct{}

func (csvFormatter) banners() bool { return false }

func (csvFormatter) message(w io.Writer, text string) error {
	_, err := fmt.Fprintln(w, quoted(text))
	return err
}

func (csvFormatter) done(io.Writer) error { return nil }

func (csvFormatter) table(w io.Writer, t table) error {
	b := bufio.NewWriter(w)
	count := 0
	for row, err := range t.rows {
		if err != nil {
			return joinFlush(b, err)
		}
		if count++; count == 1 {
			fmt.Fprintln(b, csvLine(t.columns))
		}
		fields := make([]string, len(row))
		for i, c := range row {
			fields[i] = c.text()
		}
		fmt.Fprintln(b, csvLine(fields))
	}
	return b.Flush()
}

func csvLine(fields []string) string {
	q := make([]string, len(fields))
	for i, f := range fields {
		q[i] = quoted(f)
	}
	return strings.Join(q, ",")
}

func quoted(field string) string { return `"` + strings.ReplaceAll(field, `"`, `""`) + `"` }
