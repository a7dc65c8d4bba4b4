package usage

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// flags has one flag of each type that commands use.
func flags() *flag.FlagSet {
	f := flag.NewFlagSet("test", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Bool("explain", false, "say above each key where it comes from")
	f.Duration("after", time.Second, "how `long`")
	f.Int("messages", 1, "how `many`")
	f.Uint64("seed", 1, "what is drawn `from`")
	f.String("username", "", "the `user`")
	f.String("u", "", "")
	f.Func("shape", "a `shape`", func(string) error { return errors.New("it has to be round") })
	return f
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--explian", "unknown flag --explian; did you mean --explain?"},
		{"-nothing-like-it", "unknown flag --nothing-like-it"},
		{"--after", "the flag --after needs a value"},
		{"--explain=maybe", "the flag --explain takes no value, or true or false"},
		{"--after soon", `the flag --after takes a duration such as 500ms, 30s, 24h or 7d, not "soon"`},
		{"--after 30", `the flag --after takes a duration such as 500ms, 30s, 24h or 7d, not "30"`},
		{"--messages many", `the flag --messages takes a whole number, not "many"`},
		{"--seed -1", `the flag --seed takes a whole number, not "-1"`},
		{"--shape square", `the flag --shape does not take "square": it has to be round`},
		{`--after a"for-flag--x:`, `the flag --after takes a duration such as 500ms, 30s, 24h or 7d, not "a\"for-flag--x:"`},
	} {
		f := flags()
		_, err := Parse(f, strings.Fields(tc.args))
		if err == nil {
			t.Errorf("%s: no error", tc.args)
			continue
		}
		if got := err.Error(); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.args, got, tc.want)
		}
	}
}

// Package flag has neither days nor weeks.
func TestParseDays(t *testing.T) {
	f := flags()
	if _, err := Parse(f, []string{"--after", "1w1d"}); err != nil || f.Lookup("after").Value.String() != "192h0m0s" {
		t.Errorf("got %v, %v", f.Lookup("after").Value, err)
	}
}

// Parse accepts the same command lines as package flag.
func TestParse(t *testing.T) {
	for _, tc := range []struct{ args, want, rest string }{
		{"", "", ""},
		{"--explain -u=x rest --u y", "explain=true u=x", "rest --u y"},
		{"-explain=false --after 2s -- --u", "after=2s explain=false", "--u"},
		{"-u -- -", "u=--", "-"},
		{"- --u", "", "- --u"},
		{"--u= --seed 5", "seed=5 u=", ""},
	} {
		f, g := flags(), flags()
		rest, err := Parse(f, strings.Fields(tc.args))
		if err := errors.Join(err, g.Parse(strings.Fields(tc.args))); err != nil {
			t.Errorf("%s: %v", tc.args, err)
		}
		for _, set := range []*flag.FlagSet{f, g} {
			var got []string
			set.Visit(func(g *flag.Flag) { got = append(got, g.Name+"="+g.Value.String()) })
			if s := strings.Join(got, " "); s != tc.want {
				t.Errorf("%s: got %s, want %s", tc.args, s, tc.want)
			}
		}
		if s := strings.Join(rest, " "); s != tc.rest || s != strings.Join(g.Args(), " ") {
			t.Errorf("%s: got the rest %q, package flag %q, want %q", tc.args, s, g.Args(), tc.rest)
		}
	}
	for _, help := range []string{"-h", "--help", "--explain -help"} {
		if _, err := Parse(flags(), strings.Fields(help)); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: got %v", help, err)
		}
	}
	for _, bad := range []string{"---u", "--=x", "-=x"} {
		if _, err := Parse(flags(), []string{bad}); err == nil || err.Error() != "bad flag syntax: "+bad {
			t.Errorf("%s: got %v", bad, err)
		}
	}
}

// All descriptions begin in one column, behind the longest flag: --cluster-advertise of "curfew help serve" was out of line.
func TestList(t *testing.T) {
	var b strings.Builder
	List(&b, flags())
	want := `  --after long     how long
  --explain        say above each key where it comes from
  --messages many  how many
  --seed from      what is drawn from
  --shape shape    a shape
  --username user  the user
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}
