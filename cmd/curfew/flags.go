package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"

	"github.com/curfewmq/curfew/cmd/curfew/usage"
)

// flags are the flags of a command, and the texts of its help page.
type flags struct {
	*flag.FlagSet
	about    string   // below the usage line
	operands []string // what follows the flags, by the names that the usage line has
	more     string   // below the flags
}

func newFlags(command, about string) *flags {
	f := &flags{FlagSet: flag.NewFlagSet(command, flag.ContinueOnError), about: about}
	f.SetOutput(io.Discard) // parse does the talking
	f.Usage = func() {}
	return f
}

// parse reads args. When done, the command has nothing
// left to do but to exit with code: help was asked for, or the call is wrong.
func (a *app) parse(f *flags, args []string) (code int, done bool) {
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp), slices.ContainsFunc(f.Args(), asksForHelp):
		f.writeHelp(a.stdout)
		return exitOK, true
	case err != nil:
		return a.misuse(f.Name(), usage.Problem(f.FlagSet, err)), true
	case f.NArg() > len(f.operands):
		return a.misuse(f.Name(), fmt.Sprintf("unexpected argument %q", f.Arg(len(f.operands)))), true
	case f.NArg() < len(f.operands):
		return a.misuse(f.Name(), f.operands[f.NArg()]+" is missing"), true
	}
	return exitOK, false
}

// asksForHelp recognises what flag.Parse takes for an operand once it has seen one.
func asksForHelp(operand string) bool {
	return slices.Contains([]string{"-h", "--h", "-help", "--help"}, operand)
}

func (f *flags) writeHelp(w io.Writer) {
	fmt.Fprintf(w, "%s\n\nUsage:\n  curfew %s", f.about, f.Name())
	flags := ""
	f.VisitAll(func(*flag.Flag) { flags = "\n\nFlags:" })
	if flags != "" {
		fmt.Fprint(w, " [FLAGS]")
	}
	for _, o := range f.operands {
		fmt.Fprint(w, " ", o)
	}
	fmt.Fprintln(w, flags)
	usage.List(w, f.FlagSet, 18)
	if f.more != "" {
		fmt.Fprint(w, "\n"+f.more)
	}
}
