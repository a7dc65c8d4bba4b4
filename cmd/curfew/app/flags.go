package app

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/cmd/curfew/usage"
)

// flags are the flags of a command, and the texts of its help page.
type flags struct {
	*flag.FlagSet

	about    string   // above the usage line
	operands []string // the operands' names in the usage line
	more     string   // below the flags
	args     []string // the operands as given
}

func newFlags(command, about string) *flags {
	return &flags{FlagSet: flag.NewFlagSet(command, flag.ContinueOnError), about: about}
}

// parse reads args. If done is set, the command only has to exit with code: help was requested, or the call is wrong.
func (a *app) parse(f *flags, args []string) (code int, done bool) {
	var err error
	f.args, err = usage.Parse(f.FlagSet, args)
	switch {
	case errors.Is(err, flag.ErrHelp), slices.ContainsFunc(f.args, asksForHelp):
		f.writeHelp(a.stdout)
		return exitOK, true
	case err != nil:
		return a.misuse(f.Name(), err.Error()), true
	case len(f.args) > len(f.operands):
		return a.misuse(f.Name(), fmt.Sprintf("unexpected argument %q", f.args[len(f.operands)])), true
	case len(f.args) < len(f.operands):
		return a.misuse(f.Name(), f.operands[len(f.args)]+" is missing"), true
	}
	return exitOK, false
}

// asksForHelp reports whether an argument after the first operand asks for help.
func asksForHelp(operand string) bool {
	return slices.Contains([]string{"-h", "--h", "-help", "--help"}, operand)
}

func (f *flags) writeHelp(w io.Writer) {
	words := []string{"curfew", f.Name()}
	f.VisitAll(func(*flag.Flag) { words = []string{"curfew", f.Name(), "[FLAGS]"} })
	usage.Page(w, f.about, strings.Join(append(words, f.operands...), " "), f.FlagSet, 18, f.more)
}
