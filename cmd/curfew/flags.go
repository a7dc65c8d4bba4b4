package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/curfewmq/curfew/core/config"
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
	case errors.Is(err, flag.ErrHelp):
		f.writeHelp(a.stdout)
		return exitOK, true
	case err != nil:
		return a.misuse(f.Name(), f.problem(err)), true
	case f.NArg() > len(f.operands):
		return a.misuse(f.Name(), fmt.Sprintf("unexpected argument %q", f.Arg(len(f.operands)))), true
	case f.NArg() < len(f.operands):
		return a.misuse(f.Name(), f.operands[f.NArg()]+" is missing"), true
	}
	return exitOK, false
}

// problem words an error of the flag package as we write flags.
func (f *flags) problem(err error) string {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		return "unknown flag --" + strings.TrimPrefix(name, "-") + config.Suggest(name, f.names(), "--%s")
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		return "the flag --" + name + " needs a value"
	}
	if name, ok := strings.CutPrefix(text, "invalid boolean value "); ok { // `"maybe" for -explain: parse error`
		_, name, _ = strings.Cut(name, " for -")
		name, _, _ = strings.Cut(name, ":")
		return "the flag --" + name + " takes no value, or true or false"
	}
	return text
}

func (f *flags) names() []string {
	var names []string
	f.VisitAll(func(d *flag.Flag) { names = append(names, d.Name) })
	return names
}

func (f *flags) writeHelp(w io.Writer) {
	fmt.Fprintf(w, "%s\n\nUsage:\n  curfew %s", f.about, f.Name())
	flags := ""
	if len(f.names()) > 0 {
		fmt.Fprint(w, " [FLAGS]")
		flags = "\n\nFlags:"
	}
	for _, o := range f.operands {
		fmt.Fprint(w, " ", o)
	}
	fmt.Fprintln(w, flags)
	f.VisitAll(func(d *flag.Flag) {
		placeholder, usage := flag.UnquoteUsage(d)
		if b, ok := d.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
			placeholder = ""
		}
		fmt.Fprintf(w, "  %-18s %s\n", strings.TrimSpace("--"+d.Name+" "+placeholder), usage)
	})
	if f.more != "" {
		fmt.Fprint(w, "\n"+f.more)
	}
}
