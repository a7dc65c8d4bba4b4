package policies

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxTerm is the maximum length of a value's text in an error, in bytes.
const maxTerm = 1 << 10

// digits is a JSON integer that does not fit into int64. It occurs only in errors.
type digits string

// term formats a value like Erlang's ~tp in RabbitMQ's errors, but on one line and truncated.
func term(v any) string {
	var b strings.Builder
	writeTerm(&b, v)
	if b.Len() <= maxTerm {
		return b.String()
	}
	return shortenTo(b.String(), maxTerm)
}

// shorten truncates a name for an error.
func shorten(s string) string { return shortenTo(s, 64) }

func shortenTo(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "..."
}

func writeTerm(b *strings.Builder, v any) {
	switch v := v.(type) {
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case digits:
		b.WriteString(string(v))
	case float64:
		b.WriteString(floatTerm(v))
	case string:
		writeBinary(b, v)
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case []any:
		writeList(b, v)
	case map[string]any:
		writeMap(b, v)
	default:
		b.WriteString("null")
	}
}

func writeMap(b *strings.Builder, m map[string]any) {
	b.WriteString("#{")
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte(',')
		}
		writeBinary(b, key)
		b.WriteString(" => ")
		writeTerm(b, m[key])
	}
	b.WriteByte('}')
}

// writeList writes a list of integers that are all characters as a string, because Erlang cannot distinguish the two.
func writeList(b *strings.Builder, list []any) {
	if s, ok := characters(list); ok {
		writeQuoted(b, s)
		return
	}
	b.WriteByte('[')
	for i, v := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		writeTerm(b, v)
	}
	b.WriteByte(']')
}

func characters(list []any) (string, bool) {
	s := make([]rune, len(list))
	for i, v := range list {
		n, ok := v.(int64)
		if !ok || n < 0 || n > 0xff || !printable(rune(n)) {
			return "", false
		}
		s[i] = rune(n)
	}
	return string(s), len(s) > 0
}

// writeBinary writes a string, as text if it is printable Latin-1 and as bytes otherwise.
func writeBinary(b *strings.Builder, s string) {
	b.WriteString("<<")
	switch {
	case s == "":
	case utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !printable(r) }):
		writeQuoted(b, s)
		if strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) {
			b.WriteString("/utf8")
		}
	default:
		writeBytes(b, s)
	}
	b.WriteString(">>")
}

func writeBytes(b *strings.Builder, s string) {
	for i := range min(len(s), maxTerm) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(s[i])))
	}
}

// escapes are the characters that Erlang considers printable and escapes.
var escapes = map[rune]string{
	'\n': `\n`, '\r': `\r`, '\t': `\t`, '\v': `\v`, '\b': `\b`, '\f': `\f`, '\x1b': `\e`, '"': `\"`, '\\': `\\`,
}

func printable(r rune) bool {
	return r >= ' ' && r <= '~' || r >= 0xa0 && r <= 0xff || escapes[r] != ""
}

func writeQuoted(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		if e, ok := escapes[r]; ok {
			b.WriteString(e)
			continue
		}
		b.WriteRune(r)
	}
	b.WriteByte('"')
}

// floatTerm formats the shortest digits, with an exponent if that is shorter or if the number is beyond float64's exact integers.
// Erlang's floats always have a point.
func floatTerm(f float64) string {
	plain := withPoint(strconv.FormatFloat(f, 'f', -1, 64))
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	n, _ := strconv.Atoi(exponent)
	scientific := withPoint(mantissa) + "e" + strconv.Itoa(n)
	const exact = 1 << 53
	if f >= exact || f <= -exact || len(scientific) < len(plain) {
		return scientific
	}
	return plain
}

func withPoint(s string) string {
	if strings.Contains(s, ".") {
		return s
	}
	return s + ".0"
}
