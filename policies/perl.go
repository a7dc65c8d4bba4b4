package policies

import "strings"

// lacking names the first construct of a pattern that PCRE has and RE2 lacks, with its verb; "" if there is none. It is called
// for patterns that did not compile, and only parses enough to recognise the constructs.
func lacking(pattern string) string {
	s := scanner{rest: pattern}
	for s.rest != "" {
		if what := s.next(); what != "" {
			return what
		}
	}
	return ""
}

// scanner reads a pattern element by element.
type scanner struct {
	rest     string
	repeated bool // the previous element was a quantifier
}

// next reads one element and names it if RE2 lacks it.
func (s *scanner) next() string {
	repeated := s.repeated
	s.repeated = false
	switch s.rest[0] {
	case '\\':
		return s.escape()
	case '[':
		s.class()
		return ""
	case '(':
		return s.group()
	case '+':
		if repeated {
			return "possessive quantifiers are"
		}
		s.repeated = true
	case '*', '?':
		s.repeated = !repeated
	case '{':
		return s.count()
	}
	s.skip(1)
	return ""
}

func (s *scanner) skip(n int) { s.rest = s.rest[min(n, len(s.rest)):] }

// count reads {n,m}.
func (s *scanner) count() string {
	inside, _, closed := strings.Cut(s.rest[1:], "}")
	if closed && inside != "" && strings.Trim(inside, "0123456789,") == "" {
		s.skip(len(inside) + 2)
		s.repeated = true
		return ""
	}
	s.skip(1)
	return ""
}

// class reads a character class, in which groups and quantifiers are characters.
func (s *scanner) class() {
	s.skip(1)
	s.rest = strings.TrimPrefix(s.rest, "^")
	s.rest = strings.TrimPrefix(s.rest, "]")
	for s.rest != "" && s.rest[0] != ']' {
		switch {
		case s.rest[0] == '\\':
			s.skip(2)
		case strings.HasPrefix(s.rest, "[:") && strings.Contains(s.rest, ":]"):
			s.skip(strings.Index(s.rest, ":]") + 2)
		default:
			s.skip(1)
		}
	}
	s.skip(1)
}

// groups are PCRE's groups that RE2 lacks. Longer openings come before their prefixes.
var groups = []struct{ opening, what string }{
	{"(?=", "lookahead is"},
	{"(?!", "lookahead is"},
	{"(?<=", "lookbehind is"},
	{"(?<!", "lookbehind is"},
	{"(?>", "atomic groups are"},
	{"(?P=", "backreferences are"},
	{"(?P>", "recursion is"},
	{"(?&", "recursion is"},
	{"(?R", "recursion is"},
	{"(?|", "branch reset groups are"},
	{"(?(", "conditional groups are"},
	{"(?#", "comments are"},
	{"(?'", "names of groups in quotes are"},
	{"(*", "backtracking verbs are"},
}

func (s *scanner) group() string {
	for _, g := range groups {
		if strings.HasPrefix(s.rest, g.opening) {
			return g.what
		}
	}
	if flags, ok := strings.CutPrefix(s.rest, "(?"); ok {
		flags = flags[:len(flags)-len(strings.TrimLeft(flags, "abcdefghijklmnopqrstuvwxyzJX-+0123456789"))]
		switch {
		case strings.ContainsAny(flags, "0123456789+"):
			return "recursion is"
		case strings.ContainsAny(flags, "xJX"):
			return "the flags x, J and X are"
		}
		s.skip(2)
		return ""
	}
	s.skip(1)
	return ""
}

func (s *scanner) escape() string {
	if quoted, ok := strings.CutPrefix(s.rest, `\Q`); ok {
		_, s.rest, _ = strings.Cut(quoted, `\E`)
		return ""
	}
	if len(s.rest) > 1 {
		switch c := s.rest[1]; {
		case c >= '1' && c <= '9' || c == 'k' || c == 'g':
			return "backreferences are"
		case strings.IndexByte("hHRKGXZNeVcu", c) >= 0:
			return `\` + string(c) + " is"
		}
	}
	s.skip(2)
	return ""
}
