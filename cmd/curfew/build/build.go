// Package build implements "curfew build": it makes a program from the broker and plugins of other modules, without a fork.
//
// It writes a main module that imports package app and the plugins' packages, lets the go tool resolve the versions, and compiles it.
// The go tool's environment determines where modules come from and for which system the program is built.
package build

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/curfewmq/curfew/cmd/curfew/usage"
)

// Program is one run of the command.
type Program struct {
	Environ        []string
	Stdout, Stderr io.Writer
	// Build describes how the running program was built; nil = unknown.
	Build *debug.BuildInfo
}

// Exit statuses. A wrong call has another status than a failed build.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// request is a parsed command line.
type request struct {
	plugins []plugin
	curfew  string // PATH or @VERSION; "" = the one of the running program
	out     string // "" = the default
	keep    bool
}

// Run executes a command line, without the words "curfew build", and returns the exit status: 0, 1 for a failure, 2 for a wrong call.
func (p *Program) Run(args []string) int {
	stops := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		stops = append(stops, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), stops...)
	defer stop()
	return p.run(ctx, args)
}

func (p *Program) run(ctx context.Context, args []string) int {
	var r request
	f := newFlags(&r)
	rest, err := usage.Parse(f, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		p.help(f)
		return exitOK
	case err != nil:
		return p.misuse(err)
	case len(rest) > 0:
		return p.misuse(fmt.Errorf("unexpected argument %q", rest[0]))
	case len(r.plugins) == 0:
		return p.misuse(errors.New("--with is missing: name a package with a plugin, such as --with example.com/nightshift@v1.2.0"))
	}
	if err := p.build(ctx, &r); err != nil {
		p.report(err)
		return exitFailure
	}
	return exitOK
}

func newFlags(r *request) *flag.FlagSet {
	f := flag.NewFlagSet("build", flag.ContinueOnError)
	f.Func("with", "add the plugins of `PACKAGE`, as path[@VERSION][=FOLDER]; may be repeated", func(s string) error {
		with, err := parsePlugin(s)
		if err != nil {
			return err
		}
		r.plugins = append(r.plugins, with)
		return checkTogether(r.plugins)
	})
	f.Func("curfew", "build curfew from `SOURCE`, a folder or @VERSION; default: the version of this program", func(s string) error {
		r.curfew = s
		return checkSource(s)
	})
	f.StringVar(&r.out, "o", "", "the output `FILE` (default ./curfew)")
	f.BoolVar(&r.keep, "keep", false, "keep the generated main module and print its folder")
	return f
}

const helpMore = `The package exports "var Factory = hook.NewFactory(...)", or "var Factories" with
a list of several. VERSION is anything that "go get" accepts (default: the latest
version of the module); FOLDER contains the module's go.mod. Plugins are called in
the order of the flags.

You need a Go toolchain: go in PATH, or the program that the variable GO names.
GOOS and GOARCH select the target; GOPROXY, GOFLAGS and the others work as usual.
`

func (p *Program) help(f *flag.FlagSet) {
	usage.Page(p.Stdout, "Builds a program from the broker and plugins of other Go modules.",
		"curfew build --with PACKAGE [FLAGS]", f, helpMore)
}

func (p *Program) misuse(err error) int {
	fmt.Fprintf(p.Stderr, "curfew build: %v\nRun \"curfew help build\" for help.\n", err)
	return exitUsage
}

// report prints an error, with the command's name on each line.
func (p *Program) report(err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(p.Stderr, "curfew build: %s\n", line)
	}
}

func (p *Program) build(ctx context.Context, r *request) (err error) {
	tool, err := p.goTool(ctx)
	if err != nil {
		return err
	}
	out, err := newOutput(r.out, tool.env.GOEXE)
	if err != nil {
		return err
	}
	m, err := newModule(tool, r.plugins)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.leave(m, r.keep)) }()
	if err := m.choose(r.curfew, p.Build); err != nil {
		return err
	}
	if err := m.resolve(); err != nil {
		return err
	}
	if err := m.writeMain(); err != nil {
		return err
	}
	fmt.Fprintln(p.Stderr, "curfew build: compiling, which takes a while the first time")
	made, err := out.make(ctx, m)
	if err != nil {
		return err
	}
	fmt.Fprintln(p.Stdout, made)
	return nil
}

// leave removes the folder of the main module, or prints where it is.
func (p *Program) leave(m *mainModule, keep bool) error {
	if keep {
		fmt.Fprintf(p.Stderr, "curfew build: the main module is in %s\n", m.tool.dir)
		return nil
	}
	return os.RemoveAll(m.tool.dir)
}
