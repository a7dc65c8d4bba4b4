package ctl

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// option is a flag that commands accept.
type option struct {
	long, short string
	value       string // the name of its value in help; "" = it has none
	numeric     bool   // the value is a whole number
	about       string // for help; "" = accepted, but not listed
}

// general are the options of every command.
func general() []option {
	return append(connecting(), []option{
		{long: "vhost", short: "p", value: "vhost", about: "the virtual host that the command works on (default /)"},
		{long: "timeout", short: "t", value: "seconds", numeric: true, about: "give up after this many seconds"},
		{long: "quiet", short: "q", about: "print results only"},
		{long: "silent", short: "s", about: "print results only, without the header of a table"},
		{long: "no-table-headers", about: "print tables without their header"},
		{long: "formatter", value: "format", about: "table, json, csv or pretty_table"},
		{long: "json", about: "the same as --formatter json"},
		{long: "node", short: "n", value: "node", about: "rabbit@HOST is the same as --host HOST, for scripts that name a node"},
		{long: "help", short: "?", about: "explain the command"},
		{long: "version"},
		{long: "longnames", short: "l"},
		{long: "erlang-cookie", value: "cookie"},
		{long: "script-name", value: "name"},
		{long: "print-stacktrace"},
	}...)
}

type commandLine struct {
	words    []string // as typed
	command  *command // nil = the command line names none
	values   map[string]string
	operands []string
}

func (l *commandLine) has(name string) bool { _, ok := l.values[name]; return ok }

func (l *commandLine) value(name string) string { return l.values[name] }

// parse parses a command line. With an error it returns the part that it has parsed.
func parse(words []string) (*commandLine, error) {
	l := &commandLine{words: words, values: make(map[string]string), command: ahead(words)}
	named := false // the word that names the command was there
	var bad []string
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case word == "--":
			l.operands = append(l.operands, words[i+1:]...)
			i = len(words)
		case len(word) > 1 && word[0] == '-':
			used, problem := l.option(words[i:])
			i += used
			if problem != "" {
				bad = append(bad, problem)
			}
		case l.command != nil && !named && word == l.command.name:
			named = true
		case l.command != nil:
			l.operands = append(l.operands, word)
		default:
			_, err := find(word) // it fails, because ahead has found no command
			return l, err
		}
	}
	if len(bad) > 0 {
		return l, misused("Invalid options for this command:\n%s", strings.Join(bad, "\n"))
	}
	return l, nil
}

// ahead returns the command that words name; nil if they name none. Options of the command may come before its name, as in
// "--count 5 peek orders": after an option that not every command has, a word that names no command is the option's value.
func ahead(words []string) *command {
	own := false // such an option was there
	for i := 0; i < len(words); i++ {
		word := words[i]
		if len(word) < 2 || word[0] != '-' {
			if c, err := find(word); err == nil || !own {
				return c
			}
			continue
		}
		if word == "--" {
			return nil
		}
		name, _, given := strings.Cut(word, "=")
		o, general := (&commandLine{}).lookup(name)
		own = own || !general
		if general && !given && o.value != "" && i+1 < len(words) && o.takes(words[i+1]) {
			i++
		}
	}
	return nil
}

// option reads an option and its value from words. used is how many words the value takes, problem the error text, if any.
func (l *commandLine) option(words []string) (used int, problem string) {
	name, value, given := strings.Cut(words[0], "=")
	o, ok := l.lookup(name)
	switch {
	case !ok, o.value == "" && given:
		return 0, name + " : "
	case o.value == "":
		l.values[o.long] = ""
		return 0, ""
	}
	if !given {
		if len(words) == 1 || !o.takes(words[1]) {
			return 0, name + " : "
		}
		value, used = words[1], 1
	}
	if o.numeric && !isNumber(value) {
		return used, fmt.Sprintf("%s : %s", name, value)
	}
	l.values[o.long] = value
	return used, ""
}

// takes reports whether the word after the option is its value and not another option. A number may be negative.
func (o *option) takes(word string) bool {
	return len(word) < 2 || word[0] != '-' || o.numeric && isNumber(word)
}

func isNumber(word string) bool {
	_, err := strconv.ParseInt(word, 10, 32)
	return err == nil
}

// lookup finds an option by name. An option of the command takes precedence over a general one.
func (l *commandLine) lookup(name string) (option, bool) {
	var all []option
	if l.command != nil {
		all = l.command.options
	}
	if name == "-h" {
		name = "--help"
	}
	for _, o := range slices.Concat(all, general()) {
		if name == "--"+o.long || o.short != "" && name == "-"+o.short {
			return o, true
		}
	}
	return option{}, false
}

// shown returns the command line for messages, with the password removed.
func (l *commandLine) shown() []string {
	words := slices.Clone(l.words)
	for i, w := range words {
		switch {
		case strings.HasPrefix(w, "--password="):
			words[i] = "--password=…"
		case w == "--password" && i+1 < len(words):
			words[i+1] = "…"
		}
	}
	return words
}

// connecting are the options for the address of the API and the user. Other commands of this binary use them through [Flags].
func connecting() []option {
	return []option{
		{long: "url", value: "URL", about: "the management API's URL (default http://localhost:15672)"},
		{long: "host", value: "host", about: "the API's host, instead of a URL"},
		{long: "port", value: "port", numeric: true, about: "the API's port, instead of a URL"},
		{long: "username", short: "u", value: "user", about: "the user to log in as (default guest)"},
		{long: "password", value: "password", about: "the user's password (default guest)"},
		{long: "cacert", value: "file", about: "PEM file with the certificates to trust, for TLS"},
		{long: "insecure", about: "accept any certificate, for TLS"},
		{long: "cert", value: "file", about: "PEM file with the client certificate to log in with, for TLS"},
		{long: "key", value: "file", about: "PEM file with its key, if that is a separate file"},
	}
}

// otherNames maps options of "curfew ctl" to the names that other commands used for them before all commands used the same names.
var otherNames = map[string]string{"user": "username"}

// Flags registers the options for the address of the API and the user.
func Flags(f *flag.FlagSet) {
	for _, o := range connecting() {
		if o.value == "" {
			f.Bool(o.long, false, o.about)
		} else {
			f.String(o.long, "", strings.Replace(o.about, o.value, "`"+o.value+"`", 1))
		}
		if o.short != "" {
			f.Var(f.Lookup(o.long).Value, o.short, "")
		}
	}
	for name, of := range otherNames {
		f.Var(f.Lookup(of).Value, name, "")
	}
}

// Given returns those of [Flags] that were given, as [Connect] takes them.
func Given(f *flag.FlagSet) map[string]string {
	names := map[string]string{}
	for _, o := range connecting() {
		names[o.long] = o.long
		if o.short != "" {
			names[o.short] = o.long
		}
	}
	maps.Copy(names, otherNames)
	given := map[string]string{}
	f.Visit(func(g *flag.Flag) {
		if name := names[g.Name]; name != "" {
			given[name] = g.Value.String()
		}
	})
	if given["insecure"] != "true" {
		delete(given, "insecure")
	}
	return given
}
