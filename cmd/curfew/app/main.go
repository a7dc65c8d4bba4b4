// Package app is the program curfew: the broker and its tools serve, config, ctl, backup, restore, policy, log, build, version. If it is
// called as rabbitmqctl, it is "curfew ctl".
//
// A program with additional plugins, which "curfew build" generates and compiles, calls [Main] with their factories.
package app

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/cmd/curfew/backup"
	"github.com/curfewmq/curfew/cmd/curfew/build"
	"github.com/curfewmq/curfew/cmd/curfew/ctl"
	"github.com/curfewmq/curfew/cmd/curfew/policy"
	"github.com/curfewmq/curfew/cmd/curfew/usage"
	"github.com/curfewmq/curfew/core/broker"
	"github.com/curfewmq/curfew/sdk/hook"
)

// The exit statuses. A wrong call or configuration has another status than a failing broker.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// Main runs the command line of the process, and exits with its status: 0, 1 if the command failed, 2 if it was called wrongly. The
// broker has its own plugins and the given ones.
func Main(plugins ...hook.Factory) {
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == rabbitmqctl {
		args = append([]string{rabbitmqctl}, args...)
	}
	if len(args) > 0 && args[0] == "serve" {
		relaxTimers()
	}
	os.Exit(run(args, os.Stdout, os.Stderr, plugins...))
}

// rabbitmqctl is the name under which the binary replaces RabbitMQ's tool.
const rabbitmqctl = "rabbitmqctl"

// run executes the command line args, without the program's name, and returns the exit status.
func run(args []string, stdout, stderr io.Writer, plugins ...hook.Factory) int {
	a := &app{
		stdout: stdout, stderr: stderr, environ: os.Environ(), plugins: allPlugins(plugins),
		signals: make(chan os.Signal, 4), newBroker: newBroker, browse: browse,
	}
	return a.run(args)
}

// app is the environment of a command: the parts of the process that it uses. Tests replace them.
type app struct {
	stdout, stderr io.Writer
	environ        []string
	plugins        []hook.Factory // of this binary, in the order of the default chain
	signals        chan os.Signal // serve also receives the process's signals here
	newBroker      func(broker.Options) runner
	browse         func(address string, failed func(error)) error // see browse
}

// command is selected by the first word of a command line.
type command struct {
	name, summary string
	run           func(a *app, args []string) int
}

func commands() []command {
	return []command{
		{"serve", "run the broker", (*app).serve},
		{"config", "print the effective configuration, with the source of each value", (*app).printConfig},
		{"healthcheck", "check whether a running broker is ready, for containers", (*app).healthcheck},
		{"ctl", "manage a running broker, as rabbitmqctl does", (*app).ctl},
		{"backup", "back up definitions and messages of a running or stopped broker", (*app).backup},
		{"restore", "make a data directory from a backup", (*app).restore},
		{"policy", "write, build, test and load expiry policies in WebAssembly", (*app).policy},
		{"log", "read a data directory offline: verify it, or print its content", (*app).log},
		{"build", "build a broker with plugins from other Go modules", (*app).build},
		{"version", "print the version, and the plugins of this program", (*app).printVersion},
		{"help", `explain a command, as in "curfew help serve"`, (*app).help},
	}
}

func (a *app) run(args []string) int {
	if err := checkPlugins(a.plugins); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintf(a.stderr, "curfew: this program was built wrongly: %s\n", line)
		}
		return exitFailure
	}
	if len(args) == 0 {
		a.writeHelp(a.stderr)
		return exitUsage
	}
	name, args := args[0], args[1:]
	switch name {
	case rabbitmqctl:
		return a.manage(rabbitmqctl, args)
	case "-h", "-help", "--help":
		name = "help"
	case "-v", "-version", "--version":
		name = "version"
	}
	c, code, ok := a.lookup(name)
	if !ok {
		return code
	}
	return c.run(a, args)
}

// lookup finds a command. If there is none of that name, it reports that and returns the exit status.
func (a *app) lookup(name string) (c command, code int, ok bool) {
	var names []string
	for _, c := range commands() {
		if c.name == name {
			return c, exitOK, true
		}
		names = append(names, c.name)
	}
	problem := usage.Unknown(name, names)
	if name == "bench" {
		problem = "the load generator is a program of its own, curfew-bench"
	}
	return command{}, a.misuse("", problem), false
}

// misuse reports a wrong command line; command is "" if there is none.
func (a *app) misuse(command, problem string) int {
	words := strings.TrimSpace("curfew " + command)
	help := strings.TrimSpace("curfew help " + command)
	fmt.Fprintf(a.stderr, "%s: %s\nRun %q for help.\n", words, problem, help)
	return exitUsage
}

func (a *app) build(args []string) int {
	p := build.Program{Environ: a.environ, Stdout: a.stdout, Stderr: a.stderr}
	p.Build, _ = debug.ReadBuildInfo()
	return p.Run(args)
}

func (a *app) policy(args []string) int {
	p := policy.Program{Environ: a.environ, Stdout: a.stdout, Stderr: a.stderr}
	return p.Run(args)
}

func (a *app) backup(args []string) int { return a.backups().Backup(args) }

func (a *app) restore(args []string) int { return a.backups().Restore(args) }

func (a *app) backups() *backup.Program {
	return &backup.Program{Version: version, Environ: a.environ, Stdin: os.Stdin, Stdout: a.stdout, Stderr: a.stderr}
}

func (a *app) ctl(args []string) int { return a.manage("curfew ctl", args) }

// manage runs "curfew ctl" under the name by which it was called.
func (a *app) manage(as string, args []string) int {
	p := ctl.Program{Name: as, Version: version, Environ: a.environ, Stdin: os.Stdin, Stdout: a.stdout, Stderr: a.stderr, Folders: a.folderCommands()}
	return p.Run(args)
}

func (a *app) help(args []string) int {
	if len(args) == 0 {
		a.writeHelp(a.stdout)
		return exitOK
	}
	if args[0] == "help" {
		return a.help(nil)
	}
	c, code, ok := a.lookup(args[0])
	if !ok {
		return code
	}
	return c.run(a, append(args[1:], "--help"))
}

func (a *app) writeHelp(w io.Writer) {
	var b strings.Builder
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-11s %s\n", c.name, c.summary)
	}
	fmt.Fprintf(w, `Curfew is a message broker for AMQP 0-9-1 that removes or dead-letters each
message at its own deadline. Clients for RabbitMQ connect to it unchanged.

Usage:
  curfew COMMAND [FLAGS]

Commands:
%s
Start here:
  curfew serve
AMQP is then on port 5672, for the user guest with password guest, from this machine.
`, b.String())
}

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
	usage.Page(w, f.about, strings.Join(append(words, f.operands...), " "), f.FlagSet, f.more)
}
