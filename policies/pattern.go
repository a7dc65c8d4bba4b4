package policies

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// Bounds on the cost of matching one byte of a name.
const (
	// maxRepeated is how many steps counted repetitions may add, because they multiply.
	// Steps that are written out are not limited in this way, because they cost the writer
	// effort, too: a list of a hundred names is acceptable.
	maxRepeated = 2000
	// maxSteps is the limit on all steps of an expression, including names that are substituted into it.
	maxSteps = 16_000
)

// matcher matches names against a pattern. Most patterns only describe how a name starts or ends and need no regular
// expression, which saves time with a hundred policies and a hundred thousand queues. Most other patterns have a literal
// that every matching name contains, which is checked first.
type matcher struct {
	shape   shape
	literal string
	need    shape // how the literal must occur if there is an expression: contains or prefix; 0 = no literal
	// line means that names with a newline need the regular expression, because a dot does not match a newline.
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

// compile returns the matcher for a pattern, and the number of its steps.
func compile(pattern string) (m matcher, n int, err error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return m, 0, explain(pattern, err)
	}
	if n, err = bounded(parsed); err != nil {
		return m, 0, err
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return m, 0, explain(pattern, err)
	}
	m = recognize(parsed)
	m.re = re
	return m, n, nil
}

// bounded returns the number of steps of an expression, and an error if there are too many.
func bounded(re *syntax.Regexp) (int, error) {
	once, n := steps(re)
	switch {
	case n-once > maxRepeated:
		return n, fmt.Errorf("its repetitions amount to %d steps, more than %d", n, maxRepeated)
	case n > maxSteps:
		return n, fmt.Errorf("it amounts to %d steps, more than %d", n, maxSteps)
	}
	return n, nil
}

// steps estimates the number of instructions of an expression, and the number if each repetition counted once. It cannot overflow,
// because syntax.Parse limits nested repetitions and the length of patterns is limited.
func steps(re *syntax.Regexp) (once, n int) {
	for _, sub := range re.Sub {
		o, m := steps(sub)
		once, n = once+o, n+m
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune), len(re.Rune)
	case syntax.OpRepeat:
		return once, n * max(1, re.Min, re.Max)
	}
	return once + 1, n + 1
}

// recognize returns the shape of an expression that consists of an optional ^, an optional literal, an optional $, and .*
// around them.
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

// demand returns a literal that every match of an expression contains: one at the start if possible, otherwise the longest.
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

// cut splits a part off one end of an expression.
type cut func(parts []*syntax.Regexp) (part *syntax.Regexp, rest []*syntax.Regexp)

func first(parts []*syntax.Regexp) (*syntax.Regexp, []*syntax.Regexp) {
	return parts[0], parts[1:]
}

func last(parts []*syntax.Regexp) (*syntax.Regexp, []*syntax.Regexp) {
	return parts[len(parts)-1], parts[:len(parts)-1]
}

// trim removes anchors and parts that match anything from one end. It reports whether the rest is anchored there.
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

// literalOf returns the only text that parts match. U+FFFD is no such text, because an expression matches it with invalid
// UTF-8, too.
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

// explain rewords a compiler error. It names constructs of Perl and PCRE that RE2 lacks.
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

// Expression is a regular expression of RE2 that a user has chosen. The cost of matching is bounded like that of a policy's pattern.
type Expression struct {
	matcher
	steps int
}

// ParseExpression parses an expression. Its error describes the mistake, or by how much the expression exceeds the bound.
func ParseExpression(text string) (*Expression, error) {
	m, n, err := compile(text)
	if err != nil {
		return nil, err
	}
	return &Expression{m, n}, nil
}

// Match reports whether the expression matches anywhere in a text.
func (e *Expression) Match(text string) bool { return e.match(text) }

// Cost returns roughly how many steps it takes to match a text.
func (e *Expression) Cost(text string) int { return e.steps * (len(text) + 1) }

// CheckCost returns an error if an expression exceeds the bound. It returns nil for an invalid expression.
func CheckCost(text string) error {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil
	}
	_, err = bounded(parsed)
	return err
}
