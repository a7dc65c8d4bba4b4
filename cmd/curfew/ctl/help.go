package ctl

import (
	"context"
	"fmt"
	"strings"
)

func helpCommands() []command {
	return []command{
		{
			name: "help", operands: "[<command> [<action>]]", run: runHelp, offline: true, about: "explains a command, or lists them all",
			options: []option{{long: "list-commands", about: "print only their names"}},
		},
		{name: "version", run: runVersion, offline: true, about: "prints the version of this tool"},
		{name: "autocomplete", operands: "[<prefix>]", run: autocomplete, offline: true, about: "prints the commands that begin with a prefix"},
	}
}

// help prints the page of a command, or the overview.
func (p *Program) help(line *commandLine) error {
	if line.command == nil {
		_, err := fmt.Fprint(p.Stdout, "\n"+p.overview())
		return err
	}
	_, err := fmt.Fprint(p.Stdout, "\n"+p.page(line.command.action(line.operands)))
	return err
}

func runHelp(_ context.Context, c *call) error {
	if c.has("list-commands") {
		_, err := fmt.Fprintln(c.program.Stdout, strings.Join(commandNames(), "\n"))
		return err
	}
	if len(c.operands) == 0 {
		return c.program.help(&commandLine{})
	}
	wanted, err := find(c.operands[0])
	if err != nil {
		return err
	}
	return c.program.help(&commandLine{command: wanted, operands: c.operands[1:]})
}

func runVersion(_ context.Context, c *call) error {
	_, err := fmt.Fprintln(c.program.Stdout, c.program.Version)
	return err
}

func autocomplete(_ context.Context, c *call) error {
	prefix := strings.Join(c.operands, "")
	for _, name := range commandNames() {
		if strings.HasPrefix(name, prefix) {
			fmt.Fprintln(c.program.Stdout, name)
		}
	}
	return nil
}

// overview lists the commands.
func (p *Program) overview() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage\n\n%s [--url <URL>] [--username <user>] [--password <password>] [--quiet] <command> [<command options>]\n\nAvailable commands:\n", p.Name)
	for _, s := range sections() {
		fmt.Fprintf(&b, "\n%s:\n\n", s.title)
		for _, c := range s.commands {
			fmt.Fprintf(&b, "   %-28s  %s\n", c.name, c.about)
		}
	}
	fmt.Fprintf(&b, `
The environment sets defaults for these options:

   %-28s  the management API, as in https://broker:15671 (default http://localhost:15672)
   %-28s  the user to log in as (default guest)
   %-28s  the user's password (default guest)
   %-28s  certificates to trust
   %-28s  true: accept any certificate
   %-28s  the client certificate to log in with
   %-28s  its key

Use '%s help <command>' to learn more about a command.
`, urlVariable, usernameVariable, passwordVariable, cacertVariable, insecureVariable, certVariable, keyVariable, p.Name)
	return b.String()
}

func (p *Program) page(c *command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage\n\n%s\n\nThe command %s.\n", p.usage(c), c.about)
	if c.more != "" {
		fmt.Fprintf(&b, "%s\n", c.more)
	}
	if c.lists != nil {
		fmt.Fprintf(&b, "\nColumns\n\n%s\n\nDefault: %s.\n", wrapped(titles(c.lists.columns)), strings.Join(strings.Fields(c.lists.usual), ", "))
	}
	writeOptions(&b, "Options", c.options)
	writeOptions(&b, "General options", general())
	return b.String()
}

func writeOptions(b *strings.Builder, title string, options []option) {
	if len(options) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n\n", title)
	for _, o := range options {
		if o.about != "" {
			fmt.Fprintf(b, "   %-32s  %s\n", o.synopsis(), o.about)
		}
	}
}

// wrapped breaks a list of words into lines.
func wrapped(all []string) string {
	var b strings.Builder
	width := 0
	for i, w := range all {
		switch {
		case i == 0:
			b.WriteString("   ")
		case width+len(w) > 100:
			b.WriteString(",\n   ")
			width = 0
		default:
			b.WriteString(", ")
		}
		b.WriteString(w)
		width += len(w) + 2
	}
	return b.String()
}
