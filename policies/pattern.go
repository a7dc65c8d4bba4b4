package policies

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// maxSteps bounds what matching one byte of a name against a pattern takes, roughly: counted repetitions multiply.
const maxSteps = 2000

// matcher matches names against a pattern. Most patterns say no more than how a name starts or ends: those need no
// regular expression, which counts with a hundred policies and a hundred thousand queues. Most others have a literal
// that a name must have for the expression to be worth a try.
type matcher struct {
	shape   shape
	literal string
	need    shape // contains or prefix: what an expression wants of the literal; 0 = nothing
	// line says that a name with a newline needs the expression: a dot does not match one.
	line bool
	re   *regexp.Regexp
}

type shape uint8

const (
	expression shape = iota
	anything
	contains
	prefix
	suffix
	whole
)

func (m *matcher) match(name string) bool {
	if m.shape == expression {
		return m.need.fits(name, m.literal) && m.re.MatchString(name)
	}
	if m.line && strings.IndexByte(name, '\n') >= 0 {
		return m.re.MatchString(name)
	}
	return m.shape.fits(name, m.literal)
}

func (s shape) fits(name, literal string) bool {
	switch s {
	case contains:
		return strings.Contains(name, literal)
	case prefix:
		return strings.HasPrefix(name, literal)
	case suffix:
		return strings.HasSuffix(name, literal)
	case whole:
		return name == literal
	}
	return true
}

func compile(pattern string) (matcher, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return matcher{}, explain(pattern, err)
	}
	if n := steps(parsed); n > maxSteps {
		return matcher{}, fmt.Errorf("its repetitions amount to %d steps, more than %d", n, maxSteps)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return matcher{}, explain(pattern, err)
	}
	m := recognize(parsed)
	m.re = re
	return m, nil
}

// steps estimates how many instructions an expression compiles to. syntax.Parse has bounded nested repetitions, and
// the length of patterns is bounded: it does not overflow.
func steps(re *syntax.Regexp) int {
	n := 0
	for _, sub := range re.Sub {
		n += steps(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpRepeat:
		return n * max(1, re.Min, re.Max)
	}
	return n + 1
}

// recognize finds the shape of an expression: an optional ^, nothing or a literal, an optional $, with .* around it.
func recognize(re *syntax.Regexp) matcher {
	parts := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		parts = re.Sub
	}
	var m matcher
	parts, start := m.trim(parts, syntax.OpBeginText, first)
	parts, end := m.trim(parts, syntax.OpEndText, last)
	literal, ok := literalOf(parts)
	if !ok {
		return demand(re)
	}
	m.literal = literal
	switch {
	case start && end:
		m.shape = whole
	case start:
		m.shape = prefix
	case end:
		m.shape = suffix
	case literal == "":
		m.shape = anything
	default:
		m.shape = contains
	}
	return m
}

// demand finds a literal that every match of an expression has, preferably at the start, otherwise the longest.
func demand(re *syntax.Regexp) matcher {
	if re.Op != syntax.OpConcat {
		return matcher{}
	}
	var m matcher
	for i, part := range re.Sub {
		literal, ok := literalOf([]*syntax.Regexp{part})
		if !ok || len(literal) <= len(m.literal) {
			continue
		}
		m.literal, m.need = literal, contains
		if i == 1 && re.Sub[0].Op == syntax.OpBeginText {
			m.need = prefix
			return m
		}
	}
	return m
}

// cut takes a part off one end of an expression.
type cut func(parts []*syntax.Regexp) (part *syntax.Regexp, rest []*syntax.Regexp)

func first(parts []*syntax.Regexp) (*syntax.Regexp, []*syntax.Regexp) {
	return parts[0], parts[1:]
}

func last(parts []*syntax.Regexp) (*syntax.Regexp, []*syntax.Regexp) {
	return parts[len(parts)-1], parts[:len(parts)-1]
}

// trim takes anchors, and what matches anything, off one end. It reports whether an anchor holds what remains.
func (m *matcher) trim(parts []*syntax.Regexp, anchor syntax.Op, end cut) ([]*syntax.Regexp, bool) {
	anchored := false
	for len(parts) > 0 {
		part, rest := end(parts)
		switch {
		case part.Op == anchor:
			anchored = true
		case part.Op == syntax.OpStar && part.Sub[0].Op == syntax.OpAnyChar:
			anchored = false
		case part.Op == syntax.OpStar && part.Sub[0].Op == syntax.OpAnyCharNotNL:
			m.line = m.line || anchored
			anchored = false
		default:
			return parts, anchored
		}
		parts = rest
	}
	return nil, anchored
}

// literalOf returns the text that parts match and no other. U+FFFD is not taken for one: an expression matches it with
// bytes that are no UTF-8.
func literalOf(parts []*syntax.Regexp) (string, bool) {
	if len(parts) == 0 || len(parts) == 1 && parts[0].Op == syntax.OpEmptyMatch {
		return "", true
	}
	if len(parts) > 1 || parts[0].Op != syntax.OpLiteral || parts[0].Flags&syntax.FoldCase != 0 {
		return "", false
	}
	literal := string(parts[0].Rune)
	return literal, !strings.ContainsRune(literal, utf8.RuneError)
}

// explain words an error of the compiler: what Perl and PCRE have and RE2 lacks is named as such.
func explain(pattern string, err error) error {
	if what := lacking(pattern); what != "" {
		return errors.New(what + " not supported: patterns are RE2, which has no lookahead, lookbehind, backreferences, " +
			"possessive quantifiers or atomic groups")
	}
	e, ok := errors.AsType[*syntax.Error](err)
	if !ok {
		return err
	}
	if e.Code == syntax.ErrInvalidRepeatSize {
		return fmt.Errorf("%s: %s, RE2 repeats up to 1000 times", e.Code, shorten(e.Expr))
	}
	return fmt.Errorf("%s: %s", e.Code, shorten(e.Expr))
}
