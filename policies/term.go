package policies

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxTerm bounds what errors repeat of a value, in bytes.
const maxTerm = 1 << 10

// digits is an integer of JSON that int64 does not hold. It is part of no policy: only errors show it.
type digits string

// term prints a value as Erlang's ~tp does, which RabbitMQ's errors use, but always on one line, and not all of it if it
// is long.
func term(v any) string {
	var b strings.Builder
	writeTerm(&b, v)
	if b.Len() <= maxTerm {
		return b.String()
	}
	return shortenTo(b.String(), maxTerm)
}

// shorten bounds a name that an error repeats.
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

// writeList prints a list of integers that could be characters as a string, because Erlang cannot tell them apart.
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

// writeBinary prints a string, as text if all of it is printable Latin-1 and as bytes otherwise.
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

// escapes of characters that Erlang prints so and takes for printable.
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

// floatTerm prints the shortest digits, with an exponent where that is shorter or the number is beyond the integers that
// a float64 counts one by one. Erlang has no float without a point.
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
