// Package ctl is "curfew ctl": the commands of RabbitMQ's rabbitmqctl over the management HTTP API instead of Erlang's
// distribution. Names, flags, columns, texts and exit statuses are rabbitmqctl's, so that scripts written for it work.
//
// A command is an entry of a table. It prints a banner, calls the API and passes the result to a formatter. Each family of
// commands has a file with its table; commands that are one call of the API are described there as a [request] or a [listing].
package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/curfewmq/curfew/cmd/curfew/printable"
)

// rabbitmqctl is the program name under which output is the same as RabbitMQ's, to the letter.
const rabbitmqctl = "rabbitmqctl"

// Program is one run of the tool.
type Program struct {
	Name           string // the name in help: "curfew ctl", "rabbitmqctl"
	Version        string
	Environ        []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// Folders are the commands after "cluster" that create the data folder of a node while no broker runs: import and restore. They
	// get the words of the command line without these two, and return the exit status.
	Folders map[string]func(args []string) int

	transport http.RoundTripper // nil = the network
}

// Run executes a command line, without the program's name, and returns the exit status.
func (p *Program) Run(args []string) int {
	if folder, words := p.folderCommand(args); folder != nil {
		return folder(words)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return p.report(p.run(ctx, args))
}

// folderCommand looks for a command of Folders: "cluster" and its name are the first two words that are neither options nor values
// of options. It returns the command and the other words. This package does not know its options, which all have values and may
// be anywhere, so "--from b cluster import" gets "--from b".
func (p *Program) folderCommand(args []string) (run func(args []string) int, others []string) {
	var at []int // the indexes of the two words
	for i := 0; i < len(args) && len(at) < 2 && args[i] != "--"; i++ {
		if len(args[i]) > 1 && args[i][0] == '-' {
			i += valuesOf(args[i:])
		} else {
			at = append(at, i)
		}
	}
	if len(at) < 2 || args[at[0]] != "cluster" || p.Folders[args[at[1]]] == nil {
		return nil, nil
	}
	return p.Folders[args[at[1]]], slices.Concat(args[:at[0]], args[at[0]+1:at[1]], args[at[1]+1:])
}

// valuesOf returns how many of the words after an option, words[0], are its value. An unknown option has a value.
func valuesOf(words []string) int {
	name, _, given := strings.Cut(words[0], "=")
	var line commandLine
	o, known := line.lookup(name)
	if !known {
		o = option{value: "value"}
	}
	if given || o.value == "" || len(words) == 1 || !o.takes(words[1]) {
		return 0
	}
	return 1
}

func (p *Program) run(ctx context.Context, args []string) error {
	line, err := parse(args)
	if err != nil {
		return p.explain(line, err)
	}
	switch {
	case line.has("version") && line.command == nil:
		fmt.Fprintln(p.Stdout, p.Version)
		return nil
	case line.has("help"):
		return p.help(line)
	case line.command == nil:
		return &failure{usageError, "\n" + p.overview()}
	}
	return p.explain(line, p.execute(ctx, line))
}

// call is the execution of a command.
type call struct {
	*commandLine
	program *Program
	api     *client
	out     formatter
}

func (p *Program) execute(ctx context.Context, line *commandLine) error {
	c := &call{commandLine: line, program: p}
	if err := c.check(); err != nil {
		return err
	}
	var err error
	if c.out, err = newFormatter(line); err != nil {
		return err
	}
	if line.command.offline {
		return line.command.run(ctx, c)
	}
	if c.api, err = connect(line, p.Environ); err != nil {
		return err
	}
	c.api.warn = func(text string) { fmt.Fprintf(p.Stderr, "Warning: %s\n", printable.Lines(text)) }
	if p.transport != nil {
		c.api.http.Transport = p.transport
	}
	defer c.api.http.CloseIdleConnections()
	ctx, cancel := c.limit(ctx)
	defer cancel()
	if err := line.command.run(ctx, c); err != nil {
		return c.finalError(ctx, err)
	}
	return nil
}

// check checks the operands before the API is called.
func (c *call) check() error {
	least, most := c.command.arity()
	switch n := len(c.operands); {
	case n == 0 && len(c.command.actions) > 0:
		return misused("not enough arguments: %s %s.", c.command.name, c.command.actionNames())
	case n < least:
		return misused("not enough arguments.")
	case n > most && most >= 0:
		return misused("too many arguments.")
	}
	if c.command.lists != nil {
		_, err := c.command.lists.pick(c.operands)
		return err
	}
	if c.command.check == nil {
		return nil
	}
	return c.command.check(c)
}

// limit returns a context that --timeout ends.
func (c *call) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if t := c.timeout(); t > 0 && !c.command.waits {
		return context.WithTimeout(ctx, t)
	}
	return context.WithCancel(ctx)
}

// timeout returns the value of --timeout, or the command's default; 0 = unlimited.
func (c *call) timeout() time.Duration {
	if !c.has("timeout") {
		return c.command.patience
	}
	seconds, _ := strconv.ParseInt(c.value("timeout"), 10, 32) // parse has checked the value
	return time.Duration(seconds) * time.Second
}

// finalError returns the error to print for err, with which a command ended.
func (c *call) finalError(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &failure{temporaryFailure, fmt.Sprintf("Error: operation %s on %s timed out. Timeout value used: %d", c.command.name, c.api.base, c.timeout().Milliseconds())}
	case ctx.Err() != nil:
		return &failure{temporaryFailure, "interrupted"}
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.failure(c.api)
	}
	return err
}

// verbose reports whether banners are printed.
func (c *call) verbose() bool { return !c.has("quiet") && !c.has("silent") && c.out.banners() }

// banner announces the action of the command.
func (c *call) banner(format string, args ...any) {
	if c.verbose() {
		fmt.Fprintln(c.program.Stdout, printable.Lines(fmt.Sprintf(format, args...)))
	}
}

// result prints a result of one line.
func (c *call) result(format string, args ...any) error {
	return c.out.message(c.program.Stdout, fmt.Sprintf(format, args...))
}

// done ends a command without a result. It prints nothing, except for formats that programs read.
func (c *call) done() error { return c.out.done(c.program.Stdout) }

// doneUnless returns err, or calls done if it is nil.
func (c *call) doneUnless(err error) error {
	if err != nil {
		return err
	}
	return c.done()
}

// resultUnless returns err, or prints the result if it is nil.
func (c *call) resultUnless(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return c.result(format, args...)
}

// vhost returns the virtual host that the command acts on.
func (c *call) vhost() string {
	if c.has("vhost") {
		return c.value("vhost")
	}
	return "/"
}

// explain adds the arguments and the command's usage to a misuse.
func (p *Program) explain(line *commandLine, err error) error {
	m, ok := errors.AsType[*misuse](err)
	if !ok {
		return err
	}
	usage := p.overview()
	if line.command != nil {
		usage = "Usage\n\n" + p.usage(line.command.action(line.operands))
	}
	return &failure{m.status, fmt.Sprintf("Error (argument validation): %s\nArguments given:\n\t%s\n\n%s",
		m.problem, strings.Join(line.shown(), " "), usage)}
}
