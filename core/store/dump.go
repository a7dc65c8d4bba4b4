package store

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

var _ seg.Decode = Describe

// Describe writes what an entry of any shard says, in words, a line for each operation or definition. What makes no sense
// is a line, too.
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

// describe tells the two kinds of entries apart: definitions are tables, whose length is far from taking its four bytes, so
// that the first of them is 0. No operation begins with that.
func describe(b *bytes.Buffer, entry []byte) error {
	if len(entry) > 0 && entry[0] != 0 {
		return queue.Dump(b, entry)
	}
	for def, err := range vhost.ParseDefinitions(entry) {
		if err != nil {
			return err
		}
		if def.Op == opRewrite {
			if err := describePart(b, &def); err != nil {
				return err
			}
			continue
		}
		b.WriteString(def.Op)
		for _, f := range def.Fields()[1:] {
			b.WriteString(" " + f.Key + "=" + shown(&def, f))
		}
		b.WriteByte('\n')
	}
	return nil
}

// describePart writes a line about a part of a rewrite, and one for each definition in it.
func describePart(b *bytes.Buffer, def *vhost.Definition) error {
	p, err := partOf(def)
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

// shown is a field of a definition in words. Of a password's hash it says how long it is.
func shown(def *vhost.Definition, f amqp.Field) string {
	if secret, ok := f.Value.([]byte); ok && auth.IsUserOp(def.Op) && auth.IsSecretField(f.Key) {
		return fmt.Sprintf("(%d bytes)", len(secret))
	}
	return inWords(f.Value)
}

// inWords is a value of a table, with its type where that does not show.
func inWords(v any) string {
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
			fields[i] = fmt.Sprintf("%q: %s", f.Key, inWords(f.Value))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case amqp.Array:
		items := make([]string, len(v))
		for i := range v {
			items[i] = inWords(v[i])
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprintf("%v:%s", v, amqp.TypeName(v))
}
