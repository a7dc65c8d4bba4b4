// Package ctl is "curfew ctl": RabbitMQ's rabbitmqctl, command for command, over the management HTTP API instead of Erlang's
// distribution. Names, flags, columns, texts and exit statuses are rabbitmqctl's, so that scripts go on working.
//
// A command is an entry of a table (commands.go). It prints its banner, asks the API and hands what it learned to a formatter;
// each family of commands has a file.
package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Program is the tool as it was called.
type Program struct {
	Name           string // what help calls it: "curfew ctl", "rabbitmqctl"
	Version        string
	Environ        []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	transport http.RoundTripper // nil = the network
}

// Run executes a command line, without the program's name, and returns the exit status.
func (p *Program) Run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return p.report(p.run(ctx, args))
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

// call is a command under way.
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
	if p.transport != nil {
		c.api.http.Transport = p.transport
	}
	defer c.api.http.CloseIdleConnections()
	ctx, cancel := c.limit(ctx)
	defer cancel()
	if err := line.command.run(ctx, c); err != nil {
		return c.judge(ctx, err)
	}
	return nil
}

// check is what can be said of the operands before anything is asked.
func (c *call) check() error {
	switch n := len(c.operands); {
	case n < c.command.least:
		return &misuse{usageError, "not enough arguments."}
	case n > c.command.most && c.command.most >= 0:
		return &misuse{usageError, "too many arguments."}
	}
	if c.command.check == nil {
		return nil
	}
	return c.command.check(c)
}

// limit ends a command whose --timeout has passed.
func (c *call) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if t := c.timeout(); t > 0 && !c.command.waits {
		return context.WithTimeout(ctx, t)
	}
	return context.WithCancel(ctx)
}

// timeout is what --timeout says, or the command's own; 0 = for ever.
func (c *call) timeout() time.Duration {
	if !c.has("timeout") {
		return c.command.patience
	}
	seconds, _ := strconv.ParseInt(c.value("timeout"), 10, 32) // parse has checked it
	return time.Duration(seconds) * time.Second
}

// judge words what a command ended with.
func (c *call) judge(ctx context.Context, err error) error {
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

// talkative is whether somebody wants to read what is going on.
func (c *call) talkative() bool { return !c.has("quiet") && !c.has("silent") && c.out.banners() }

// say prints a banner.
func (c *call) say(format string, args ...any) {
	if c.talkative() {
		fmt.Fprintf(c.program.Stdout, format+"\n", args...)
	}
}

// tell prints the outcome of a command that is one line.
func (c *call) tell(format string, args ...any) error {
	return c.out.message(c.program.Stdout, fmt.Sprintf(format, args...))
}

// done prints the outcome of a command that has none, which is nothing unless a machine reads it.
func (c *call) done() error { return c.out.done(c.program.Stdout) }

// vhost is the virtual host that the command is about.
func (c *call) vhost() string {
	if c.has("vhost") {
		return c.value("vhost")
	}
	return "/"
}

// explain adds to a misuse what was given and how the command is used.
func (p *Program) explain(line *commandLine, err error) error {
	m, ok := errors.AsType[*misuse](err)
	if !ok {
		return err
	}
	return &failure{m.status, fmt.Sprintf("Error (argument validation): %s\nArguments given:\n\t%s\n\nUsage\n\n%s",
		m.problem, strings.Join(line.shown(), " "), p.usage(line.command))}
}
