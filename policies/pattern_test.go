package policies

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

func TestPatternsThatDoNotCompile(t *testing.T) {
	const rest = " not supported: patterns are RE2, which has no lookahead, lookbehind, backreferences, possessive quantifiers or atomic groups"
	for pattern, want := range map[string]string{
		`^(?!amq\.).*`:     "lookahead is" + rest,
		`a(?=b)`:           "lookahead is" + rest,
		`(?<=a)b`:          "lookbehind is" + rest,
		`(?<!a)b`:          "lookbehind is" + rest,
		`(?>a+)b`:          "atomic groups are" + rest,
		`(a)\1`:            "backreferences are" + rest,
		`(?P<x>a)(?P=x)`:   "backreferences are" + rest,
		`(?<x>a)\k<x>`:     "backreferences are" + rest,
		`(a)\g1`:           "backreferences are" + rest,
		`a++b`:             "possessive quantifiers are" + rest,
		`a*+`:              "possessive quantifiers are" + rest,
		`a?+`:              "possessive quantifiers are" + rest,
		`a{2,3}+`:          "possessive quantifiers are" + rest,
		`(?R)`:             "recursion is" + rest,
		`(a)(?1)`:          "recursion is" + rest,
		`(a)(?-1)`:         "recursion is" + rest,
		`(?<n>a)(?&n)`:     "recursion is" + rest,
		`(?|a|b)`:          "branch reset groups are" + rest,
		`(a)?(?(1)b|c)`:    "conditional groups are" + rest,
		`a(?#comment)`:     "comments are" + rest,
		`(?'n'a)`:          "names of groups in quotes are" + rest,
		`(*COMMIT)a`:       "backtracking verbs are" + rest,
		`(?x) a`:           "the flags x, J and X are" + rest,
		`\h`:               `\h is` + rest,
		`a\Z`:              `\Z is` + rest,
		`[)(?=](?=a)`:      "lookahead is" + rest,
		`\Q(?=\E(?!a)`:     "lookahead is" + rest,
		`(`:                "missing closing ): (",
		`[a`:               "missing closing ]: [a",
		`*`:                "missing argument to repetition operator: *",
		`a**`:              "invalid nested repetition operator: **",
		`a{3,2}`:           "invalid repeat count: {3,2}, RE2 repeats up to 1000 times",
		`a{1001}`:          "invalid repeat count: {1001}, RE2 repeats up to 1000 times",
		`[(?=]\p{Foo}`:     `invalid character class range: \p{Foo}`,
		`\(?=\p{Foo}`:      `invalid character class range: \p{Foo}`,
		`[[:alpha:]+](`:    "missing closing ): [[:alpha:]+](",
		`a\`:               `trailing backslash at end of expression: `,
		"\xff":             "invalid UTF-8: \xff",
		`(?i)(?s)(?<n>a)(`: `missing closing ): (?i)(?s)(?<n>a)(`,
		`(.{1000}){3}`:     `invalid repeat count: {3}, RE2 repeats up to 1000 times`,

		`.{1000}.{1000}.{1000}`:    "its repetitions amount to 3001 steps, more than 2000",
		strings.Repeat("(", 1_001): "missing closing ): " + strings.Repeat("(", 64) + "...",
	} {
		_, _, err := compile(pattern)
		if err == nil || err.Error() != want {
			t.Errorf("%.30s: got %v, want %s", pattern, err, want)
		}
	}
}

func TestShapes(t *testing.T) {
	for pattern, want := range map[string]struct {
		shape   shape
		literal string
	}{
		``:                {anything, ""},
		`.*`:              {anything, ""},
		`^`:               {prefix, ""},
		`^.*`:             {anything, ""},
		`^.*$`:            {suffix, ""},
		`(?s)^.*$`:        {suffix, ""},
		`^$`:              {whole, ""},
		`orders`:          {contains, "orders"},
		`.*orders.*`:      {contains, "orders"},
		`^orders\.`:       {prefix, "orders."},
		`^orders\..*`:     {prefix, "orders."},
		`^orders\..*$`:    {prefix, "orders."},
		`\.retry$`:        {suffix, ".retry"},
		`^.*\.retry$`:     {suffix, ".retry"},
		`^orders$`:        {whole, "orders"},
		`^é`:              {prefix, "é"},
		`(?i)orders`:      {expression, ""},
		`(?m)^orders`:     {expression, "orders"},
		`^(a|b)`:          {expression, ""},
		`^a.b`:            {expression, "a"},
		`^a.*bc$`:         {expression, "a"},
		`a.*bc`:           {expression, "bc"},
		`^a.+`:            {expression, "a"},
		`\x{FFFD}`:        {expression, ""},
		`^amq\.gen-.{22}`: {expression, "amq.gen-"},
	} {
		m, _, err := compile(pattern)
		if err != nil || m.shape != want.shape || m.literal != want.literal {
			t.Errorf("%s: got %d %q, %v, want %d %q", pattern, m.shape, m.literal, err, want.shape, want.literal)
		}
	}
}

// Whatever shape is seen in a pattern, it matches what the regular expression matches.
func TestShapesMatchAsExpressions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"^", "$", ".*", ".*?", "a", "b", "ab", `\.`, "é", "(?s:.*)", "\n", ".", "a*", `\A`, `\z`, "()", "(?i)", "(?s)", `\x{FFFD}`, "[ab]", "(a|b)", "b+"}
	letters := []string{"a", "b", ".", "é", "\n", "ab", "\xc3", "\xa9", "\xff"}
	shaped := 0
	for range 6000 {
		pattern := sentence(r, pieces, 5)
		m, _, err := compile(pattern)
		if err != nil {
			continue
		}
		if m.shape != expression {
			shaped++
		}
		re := regexp.MustCompile(pattern)
		for range 5 {
			name := sentence(r, letters, 6)
			if got, want := m.match(name), re.MatchString(name); got != want {
				t.Fatalf("%q matches %q: got %t, want %t", pattern, name, got, want)
			}
		}
	}
	if shaped < 500 {
		t.Errorf("only %d patterns had a shape", shaped)
	}
}

// sentence strings together up to n of the words.
func sentence(r *rand.Rand, words []string, n int) string {
	var b strings.Builder
	for range r.IntN(n + 1) {
		b.WriteString(words[r.IntN(len(words))])
	}
	return b.String()
}
