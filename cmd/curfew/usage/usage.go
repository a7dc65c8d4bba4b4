// Package usage is the command line of all commands except ctl, which has rabbitmqctl's. It
// parses flags, explains mistakes, and writes help pages. Flags are registered with package
// flag, whose own parser does not return distinguishable errors.
package usage

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/config"
)

// Parse sets the flags at the beginning of args, in the grammar of package flag, and
// returns the rest, which begins with the first argument that is not a flag. The error is
// [flag.ErrHelp], or a text for the user.
func Parse(f *flag.FlagSet, args []string) (rest []string, err error) {
	for len(args) > 0 {
		word := args[0]
		if len(word) < 2 || word[0] != '-' {
			break
		}
		args = args[1:]
		if word == "--" {
			break
		}
		name, value, given := strings.Cut(strings.TrimPrefix(word[1:], "-"), "=")
		g := f.Lookup(name)
		switch {
		case name == "" || name[0] == '-':
			return nil, errors.New("bad flag syntax: " + word)
		case g == nil && (name == "help" || name == "h"):
			return nil, flag.ErrHelp
		case g == nil:
			return nil, errors.New("unknown flag --" + name + config.Suggest(name, names(f), "--%s"))
		case given:
		case isBool(g):
			value = "true"
		case len(args) == 0:
			return nil, errors.New("the flag --" + name + " needs a value")
		default:
			value, args = args[0], args[1:]
		}
		if err := set(f, g, value); err != nil {
			return nil, invalid(g, value, err)
		}
	}
	return args, nil
}

// set sets a flag. Durations may have days and weeks.
func set(f *flag.FlagSet, g *flag.Flag, value string) error {
	if v, ok := g.Value.(flag.Getter); ok {
		if _, isDuration := v.Get().(time.Duration); isDuration {
			d, err := config.ParseDuration(value)
			if err != nil {
				return err
			}
			value = d.String()
		}
	}
	return f.Set(g.Name, value)
}

func isBool(g *flag.Flag) bool {
	b, ok := g.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// invalid describes the values that a flag accepts. For types outside package flag, err, from the flag's Set, does that.
func invalid(g *flag.Flag, value string, err error) error {
	var content any
	if v, ok := g.Value.(flag.Getter); ok {
		content = v.Get()
	}
	switch content.(type) {
	case bool:
		return fmt.Errorf("the flag --%s takes no value, or true or false", g.Name)
	case time.Duration:
		return fmt.Errorf("the flag --%s takes a duration such as 500ms, 30s, 24h or 7d, not %q", g.Name, value)
	case int, int64, uint, uint64:
		return fmt.Errorf("the flag --%s takes a whole number, not %q", g.Name, value)
	}
	return fmt.Errorf("the flag --%s does not take %q: %w", g.Name, value, err)
}

func names(f *flag.FlagSet) []string {
	var names []string
	f.VisitAll(func(g *flag.Flag) { names = append(names, g.Name) })
	return names
}

// Unknown returns an error text for an unknown command, with a suggestion from commands.
func Unknown(name string, commands []string) string {
	what := "command"
	if strings.HasPrefix(name, "-") {
		what = "flag"
	}
	return fmt.Sprintf("unknown %s %q", what, name) + config.Suggest(name, commands, "%q")
}

// Page writes a help page: the purpose of a command, its synopsis, its flags with their descriptions, and more.
func Page(w io.Writer, about, synopsis string, f *flag.FlagSet, more string) {
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n", about, synopsis)
	if len(names(f)) > 0 {
		fmt.Fprint(w, "\nFlags:\n")
		List(w, f)
	}
	if more != "" {
		fmt.Fprint(w, "\n"+more)
	}
}

// List writes a line for each flag with a description, all descriptions in one column. A flag without one is the short form of another.
func List(w io.Writer, f *flag.FlagSet) {
	width := 0
	described(f, func(left, _ string) { width = max(width, len(left)) })
	described(f, func(left, text string) { fmt.Fprintf(w, "  %-*s  %s\n", width, left, text) })
}

// described calls do with each flag that has a description: the flag with its placeholder, and the description.
func described(f *flag.FlagSet, do func(left, text string)) {
	f.VisitAll(func(g *flag.Flag) {
		if g.Usage == "" {
			return
		}
		placeholder, text := flag.UnquoteUsage(g)
		if isBool(g) {
			placeholder = ""
		}
		do(strings.TrimSpace("--"+g.Name+" "+placeholder), text)
	})
}

// Variables returns an environment as a map.
func Variables(environ []string) map[string]string {
	m := make(map[string]string, len(environ))
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			m[name] = value
		}
	}
	return m
}
