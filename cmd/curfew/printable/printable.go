// Package printable writes texts of others, such as names that clients have chosen, so that
// a terminal only displays them. It replaces control characters, which can set a terminal's
// title or forge lines, and characters that change the direction of text.
package printable

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns a text for one line. Characters that must not be printed are escaped as in Go's strings.
func Text(s string) string { return replaced(s, obeyed) }

// Lines is Text for a text of several lines.
func Lines(s string) string {
	return replaced(s, func(r rune) bool { return r != '\n' && r != '\t' && obeyed(r) })
}

// obeyed reports whether a terminal acts on a character instead of displaying it.
func obeyed(r rune) bool {
	switch {
	case unicode.IsControl(r), r == '\u2028', r == '\u2029':
		return true
	}
	return unicode.Is(unicode.Bidi_Control, r)
}

func replaced(s string, is func(rune) bool) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, is) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1: // perhaps a byte of an 8-bit control character
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !is(r):
			b.WriteString(s[i : i+n])
		case r < utf8.RuneSelf && r != 0x7f:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String()
}

// JSON returns JSON with the same values, in which such characters are escaped. JSON itself requires that only for some of them.
func JSON(b []byte) []byte {
	if bytes.IndexFunc(b, func(r rune) bool { return r >= 0x7f && obeyed(r) }) < 0 {
		return b
	}
	return []byte(replaced(string(b), func(r rune) bool { return r >= 0x7f && obeyed(r) }))
}

// Writer returns a writer for lines. Each write must end with a whole character.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ to io.Writer }

func (w writer) Write(b []byte) (int, error) {
	if _, err := io.WriteString(w.to, Lines(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}
