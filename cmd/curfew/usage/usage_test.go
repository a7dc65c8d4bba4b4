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

// flags are one of each type that commands use.
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

func TestProblem(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--explian", "unknown flag --explian; did you mean --explain?"},
		{"-nothing-like-it", "unknown flag --nothing-like-it"},
		{"--after", "the flag --after needs a value"},
		{"--explain=maybe", "the flag --explain takes no value, or true or false"},
		{"--after soon", `the flag --after takes a duration such as 500ms, 30s or 24h, not "soon"`},
		{"--after 30", `the flag --after takes a duration such as 500ms, 30s or 24h, not "30"`},
		{"--messages many", `the flag --messages takes a whole number, not "many"`},
		{"--seed -1", `the flag --seed takes a whole number, not "-1"`},
		{"--shape square", `the flag --shape does not take "square": it has to be round`},
		{`--after a"for-flag--x:`, `the flag --after takes a duration such as 500ms, 30s or 24h, not "a\"for-flag--x:"`},
	} {
		f := flags()
		err := f.Parse(strings.Fields(tc.args))
		if err == nil {
			t.Errorf("%s: no error", tc.args)
			continue
		}
		if got := Problem(f, err); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.args, got, tc.want)
		}
	}
}

func TestList(t *testing.T) {
	var b strings.Builder
	List(&b, flags(), 16)
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
