// Package usage words what is said about flags: the same for all commands that
// take them from package flag, which writes them with one dash.
package usage

import (
	"flag"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/config"
)

// badValue is how package flag reports one: the value in quotes, the flag, and
// what its Set said.
var badValue = regexp.MustCompile(`(?s)^invalid (?:boolean )?value (".*") for (?:flag )?-([^ ]+?): (.*)$`)

// Problem words an error of f's Parse.
func Problem(f *flag.FlagSet, err error) string {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		return "unknown flag --" + strings.TrimPrefix(name, "-") + config.Suggest(name, names(f), "--%s")
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		return "the flag --" + name + " needs a value"
	}
	if m := badValue.FindStringSubmatch(text); m != nil && f.Lookup(m[2]) != nil {
		return invalid(f, m[2], m[1], m[3])
	}
	return text
}

// invalid says what a flag takes. problem is what its Set said, which counts where
// the type is not one of package flag's.
func invalid(f *flag.FlagSet, name, value, problem string) string {
	var content any
	if g, ok := f.Lookup(name).Value.(flag.Getter); ok {
		content = g.Get()
	}
	switch content.(type) {
	case bool:
		return "the flag --" + name + " takes no value, or true or false"
	case time.Duration:
		return fmt.Sprintf("the flag --%s takes a duration such as 500ms, 30s or 24h, not %s", name, value)
	case int, int64, uint, uint64:
		return fmt.Sprintf("the flag --%s takes a whole number, not %s", name, value)
	}
	return fmt.Sprintf("the flag --%s does not take %s: %s", name, value, problem)
}

func names(f *flag.FlagSet) []string {
	var names []string
	f.VisitAll(func(g *flag.Flag) { names = append(names, g.Name) })
	return names
}

// List writes a line for each flag that has a text, with that text in column
// width. One without a text is the short form of another.
func List(w io.Writer, f *flag.FlagSet, width int) {
	f.VisitAll(func(g *flag.Flag) {
		if g.Usage == "" {
			return
		}
		placeholder, text := flag.UnquoteUsage(g)
		if b, ok := g.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
			placeholder = ""
		}
		fmt.Fprintf(w, "  %-*s %s\n", width, strings.TrimSpace("--"+g.Name+" "+placeholder), text)
	})
}
