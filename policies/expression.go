package policies

import "regexp/syntax"

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
