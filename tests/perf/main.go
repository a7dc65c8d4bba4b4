// Command perf compares brokers: it runs every scenario with each of them in turn, several times, and prints a table of medians.
// Each broker runs in a session of its own, as services do, because the kernel schedules by session; see README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/curfewmq/curfew/tests/process"
)

// options are the flags.
type options struct {
	curfew, before, generator string
	others                    []*broker
	rabbit, list              bool
	session                   bool
	rows                      *regexp.Regexp
	runs                      int
	duration                  time.Duration
	dir, log                  string
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{rows: regexp.MustCompile("")}
	f := flag.NewFlagSet("perf", flag.ContinueOnError)
	f.SetOutput(io.Discard) // main reports errors
	f.Usage = func() {}
	f.StringVar(&o.curfew, "curfew", "bin/curfew", "the `binary` to measure")
	f.StringVar(&o.generator, "generator", "bin/curfew-bench", "the `binary` to measure with")
	f.StringVar(&o.before, "before", "", "another `binary` of Curfew, to compare with")
	f.BoolVar(&o.rabbit, "rabbitmq", true, "also measure Debian's RabbitMQ, where it is installed")
	f.BoolVar(&o.session, "session", true, "start each broker in a session of its own, as services are; =false shows what that changes")
	f.BoolVar(&o.list, "list", false, "only say which scenarios there are")
	f.IntVar(&o.runs, "runs", 3, "how many `times` everything is measured")
	f.DurationVar(&o.duration, "duration", 5*time.Second, "how `long` messages are published in scenarios that have no number of them")
	f.StringVar(&o.dir, "dir", "", "the `folder` for the brokers' data; a temporary one unless given")
	f.StringVar(&o.log, "log", "", "append the result of each run to `file`, a JSON object a line")
	f.Func("other", "also measure a broker that runs on this machine, `NAME,URI,PID`; may be repeated", func(s string) error {
		b, err := foreign(s)
		o.others = append(o.others, b)
		return err
	})
	f.Func("rows", "only the scenarios whose name matches `regexp`", func(s string) (err error) {
		o.rows, err = regexp.Compile("(?i)" + s)
		return err
	})
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.SetOutput(stderr)
		f.PrintDefaults()
	}
	if err != nil {
		return nil, fmt.Errorf("%w; --help lists the flags", err)
	}
	return o, o.check(f.Args())
}

// check finds mistakes that need no scenario to run.
func (o *options) check(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q: there are only flags", args[0])
	case o.runs < 1:
		return fmt.Errorf("--runs %d: must be at least 1", o.runs)
	case o.duration <= 0:
		return fmt.Errorf("--duration %v: must be longer than 0s", o.duration)
	case len(o.chosen()) == 0:
		return fmt.Errorf("--rows %s: no scenario has such a name; --list prints them", strings.TrimPrefix(o.rows.String(), "(?i)"))
	}
	return nil
}

// chosen returns the rows that match.
func (o *options) chosen() []row {
	return slices.DeleteFunc(rows(), func(r row) bool { return !o.rows.MatchString(r.name) })
}

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(o, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "perf:", err)
		os.Exit(1)
	}
}

func run(o *options, stdout, stderr io.Writer) error {
	all := o.chosen()
	if o.list {
		for _, r := range all {
			fmt.Fprintln(stdout, r.name)
		}
		return nil
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	raiseFileLimit()
	if err := o.absolute(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "curfew-perf-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // our own folder
	brokers, err := o.brokers(dir)
	if err != nil {
		return err
	}
	p := &perf{generator: generator{binary: o.generator, duration: o.duration}, brokers: brokers, runs: o.runs, stderr: stderr, log: io.Discard}
	defer p.stop()
	if o.log != "" {
		f, err := os.OpenFile(o.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // each line was written as a whole
		p.log = f
	}
	samples := p.measureAll(ctx, all)
	return errors.Join(writeTable(stdout, samples), ctx.Err())
}

// absolute makes the paths absolute, for programs that run in other folders. It reports missing files before anything is
// measured.
func (o *options) absolute() (err error) {
	for _, path := range []*string{&o.curfew, &o.before, &o.generator, &o.dir} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
		if _, err := os.Stat(*path); err != nil {
			return err
		}
	}
	return nil
}

// brokers returns the brokers to measure, in the order of the table.
func (o *options) brokers(dir string) ([]*broker, error) {
	cert, key, _, err := process.MakeCertificate(dir)
	if err != nil {
		return nil, err
	}
	c := certificate{cert, key}
	b, err := newCurfew("curfew", o.curfew, dir, c)
	if err != nil {
		return nil, err
	}
	all := []*broker{b}
	if o.before != "" {
		if b, err = newCurfew("before", o.before, dir, c); err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	if o.rabbit {
		if b, err = newRabbit(dir, c); err != nil {
			return nil, err
		}
		if b != nil {
			all = append(all, b)
		}
	}
	for _, b := range all {
		b.shared = !o.session
	}
	return append(all, o.others...), nil
}

// raiseFileLimit allows many connections here and in started programs. Where that is not permitted, those
// scenarios report it.
func raiseFileLimit() {
	const files = 1 << 16
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: files, Max: files})
}

// perf is one run of the program.
type perf struct {
	generator
	brokers []*broker
	runs    int
	stderr  io.Writer
	log     io.Writer
}

func (p *perf) stop() {
	for _, b := range p.brokers {
		b.stop()
	}
}

func (p *perf) measureAll(ctx context.Context, all []row) (samples []sample) {
	for i, r := range all {
		fmt.Fprintf(p.stderr, "%d of %d: %s\n", i+1, len(all), r.name)
		samples = append(samples, p.measureRow(ctx, r)...)
		if ctx.Err() != nil {
			return samples
		}
	}
	return samples
}

// measureRow measures the brokers in turn, so that a machine that becomes slower does so for all.
func (p *perf) measureRow(ctx context.Context, r row) []sample {
	var samples []sample
	for _, b := range p.brokers {
		samples = append(samples, sample{row: r, broker: b.name})
	}
	if r.floor {
		samples = append(samples, sample{row: r, broker: relayName})
	}
	for range p.runs {
		for i := range samples {
			if ctx.Err() != nil {
				return samples
			}
			p.once(ctx, &samples[i], i)
		}
	}
	if r.fresh {
		p.stop() // so that the next row does not start with this row's memory
	}
	return samples
}

// limit is the longest time of a run. Some brokers need long to work off their backlog.
const limit = 5 * time.Minute

func (p *perf) once(ctx context.Context, s *sample, i int) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("took longer than %v", limit))
	defer cancel()
	var f figures
	var err error
	if s.broker == relayName {
		f, err = p.bench(ctx, s.row.relay(p.duration.String()))
	} else {
		f, err = p.measure(ctx, s.row, p.brokers[i])
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		s.failed = append(s.failed, err.Error())
		fmt.Fprintf(p.stderr, "  %-10s %v\n", s.broker, err)
		return
	}
	s.runs = append(s.runs, f)
	fmt.Fprintf(p.stderr, "  %-10s %s\n", s.broker, s.row.outline(f))
	line, err := json.Marshal(map[string]any{"row": s.row.name, "broker": s.broker, "figures": f})
	if err == nil {
		_, err = p.log.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(p.stderr, "--log:", err)
	}
}

// outline summarises one run in half a line.
func (r row) outline(f figures) string {
	var parts []string
	for _, part := range []struct {
		key   string
		scale float64
		unit  string
	}{{r.rate, 1, "per s"}, {cpuKey, 1, "CPU-s/M"}, {r.p50, 1, "ms p50"}, {r.p99, 1, "ms p99"}, {rssKey, 1.0 / (1 << 20), "MiB"}} {
		if v, ok := f[part.key]; ok && part.key != "" {
			parts = append(parts, number(v*part.scale)+" "+part.unit)
		}
	}
	return strings.Join(parts, ", ")
}
