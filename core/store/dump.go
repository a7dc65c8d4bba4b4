package store

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

var _ seg.Decode = Describe

// Describe writes an entry of any shard as text, with a line for each operation or definition. If a part of it is malformed, the
// last line says so.
func Describe(w io.Writer, _ wlog.Index, entry []byte) error {
	var b bytes.Buffer
	if err := describe(&b, entry); err != nil {
		fmt.Fprintf(&b, "NOT UNDERSTOOD: %v\n", err)
	}
	for line := range bytes.Lines(b.Bytes()) {
		if _, err := fmt.Fprintf(w, "  %s", line); err != nil {
			return err
		}
	}
	return nil
}

// describe distinguishes definitions and operations by their first byte. It is 0 for definitions: they begin with the length of a
// table, which is far below 2^24. No operation begins with 0.
func describe(b *bytes.Buffer, entry []byte) (err error) {
	for len(entry) > 0 && err == nil {
		if entry[0] != 0 {
			entry, err = queue.Dump(b, entry)
			continue
		}
		entry, err = describeDefinition(b, entry)
	}
	return err
}

// describeDefinition writes the definition at the beginning of an entry, and returns the rest.
func describeDefinition(b *bytes.Buffer, entry []byte) (rest []byte, err error) {
	def, rest, err := definition.Next(entry)
	if err != nil {
		return nil, err
	}
	if def.Op == opRewrite {
		return rest, describePart(b, def)
	}
	b.WriteString(def.Op)
	for _, f := range def.Fields[1:] {
		b.WriteString(" " + f.Key + "=" + fieldText(def, f))
	}
	b.WriteByte('\n')
	return rest, nil
}

// describePart writes a line about a part of a rewrite, and a line for each definition in it.
func describePart(b *bytes.Buffer, def *definition.Definition) error {
	p, err := parsePart(def)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "%s of=%q vhost=%q first=%t last=%t\n", def.Op, p.of.kind, p.of.vhost, p.first, p.last)
	var within bytes.Buffer
	err = describe(&within, p.definitions)
	for line := range bytes.Lines(within.Bytes()) {
		b.WriteString("  ")
		b.Write(line)
	}
	return err
}

// fieldText returns the text of a field. Of a password's hash and of a module only the length is shown.
func fieldText(def *definition.Definition, f amqp.Field) string {
	hidden := auth.IsUserOp(def.Op) && auth.IsSecretField(f.Key) || def.Op == opModulePart && f.Key == fieldBytes
	if b, ok := f.Value.([]byte); ok && hidden {
		return fmt.Sprintf("(%d bytes)", len(b))
	}
	return valueText(f.Value)
}

// valueText returns the text of a value, with its type where the value does not show it.
func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return "void"
	case bool:
		return strconv.FormatBool(v)
	case string:
		return fmt.Sprintf("%q", v)
	case []byte:
		return fmt.Sprintf("%x:%s", v, amqp.TypeName(v))
	case amqp.Table:
		fields := make([]string, len(v))
		for i, f := range v {
			fields[i] = fmt.Sprintf("%q: %s", f.Key, valueText(f.Value))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case amqp.Array:
		items := make([]string, len(v))
		for i := range v {
			items[i] = valueText(v[i])
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprintf("%v:%s", v, amqp.TypeName(v))
}
