// Package policy implements "curfew policy": the tools for the author of an expiry policy in WebAssembly, from an empty folder to a queue
// that uses the policy.
//
// Commands are entries of a table. Commands that try a module run it in the broker's own host of policies, with a clock that only
// the trace moves, so that the same module and trace give the same output on any machine.
package policy

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/curfewmq/curfew/cmd/curfew/printable"
	"github.com/curfewmq/curfew/cmd/curfew/usage"
)

// Program is one run of the tool.
type Program struct {
	Environ        []string
	Stdout, Stderr io.Writer

	transport http.RoundTripper // nil = the network
}

// Exit statuses. A wrong call has another status than a wrong policy.
const (
	exitFailure = 1
	exitUsage   = 2
)

// command is one of the tool's commands.
type command struct {
	name     string
	operands []string // names of the operands in the help
	about    string   // one line
	more     string   // below the flags
	flags    func(f *flags)
	// One of the two is set. An interrupt ends an offline command at once; a remote one may have to clean up.
	offline func(p *Program, f *flags) error
	run     func(ctx context.Context, p *Program, f *flags) error
}

func commands() []command {
	return []command{
		newCommand(), buildCommand(), checkCommand(), testCommand(), benchCommand(),
		recordCommand(), loadCommand(), reloadCommand(), listCommand(), unloadCommand(),
	}
}

// Run executes a command line, without the words "curfew policy", and returns the exit status: 0, 1 for a failure, 2 for a wrong
// call.
func (p *Program) Run(args []string) int {
	ctx := context.Background()
	if len(args) > 0 {
		if c, ok := find(args[0]); ok && c.run != nil {
			var stop func()
			ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
			defer stop()
		}
	}
	return p.run(ctx, args)
}

func (p *Program) run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		p.overview(p.Stderr)
		return exitUsage
	}
	switch args[0] {
	case "-h", "-help", "--help", "help":
		return p.help(args[1:])
	}
	c, ok := find(args[0])
	if !ok {
		return p.unknown(args[0])
	}
	f := newFlags(&c)
	err := f.parse(args[1:])
	if errors.Is(err, flag.ErrHelp) {
		f.help(p.Stdout)
		return 0
	}
	switch {
	case err != nil:
	case c.offline != nil:
		err = c.offline(p, f)
	default:
		err = c.run(ctx, p, f)
	}
	return p.report(f, err)
}

// report prints an error and returns the exit status.
func (p *Program) report(f *flags, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(p.Stderr, "%s: %s\n", f.Name(), printable.Lines(err.Error()))
	if _, ok := errors.AsType[*misuse](err); ok {
		fmt.Fprintf(p.Stderr, "Run \"%s --help\" for help.\n", f.Name())
		return exitUsage
	}
	return exitFailure
}

// misuse is an error in the command line.
type misuse struct{ problem string }

func (m *misuse) Error() string { return m.problem }

func misused(format string, args ...any) error { return &misuse{fmt.Sprintf(format, args...)} }

func find(name string) (command, bool) {
	all := commands()
	if i := slices.IndexFunc(all, func(c command) bool { return c.name == name }); i >= 0 {
		return all[i], true
	}
	return command{}, false
}

func (p *Program) unknown(name string) int {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	fmt.Fprintf(p.Stderr, "curfew policy: %s\nRun \"curfew policy --help\" for help.\n", usage.Unknown(name, names))
	return exitUsage
}

func (p *Program) help(args []string) int {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		p.overview(p.Stdout)
		return 0
	}
	c, ok := find(args[0])
	if !ok {
		return p.unknown(args[0])
	}
	newFlags(&c).help(p.Stdout)
	return 0
}

func (p *Program) overview(w io.Writer) {
	var b strings.Builder
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-7s %s\n", c.name, c.about)
	}
	fmt.Fprintf(w, `Expiry policies are WebAssembly modules that decide when messages expire.
("curfew ctl set_policy" sets queue policies, which are something else.)

Usage:
  curfew policy COMMAND [FLAGS]

Commands:
%s
Start here:
  curfew policy new tempo --lang go
  cd tempo && curfew policy build && curfew policy test tempo.wasm --trace trace.ndjson
Run "curfew policy COMMAND --help" to learn more about a command.
`, b.String())
}
