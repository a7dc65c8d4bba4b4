package policy

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/curfewmq/curfew/plugins/wasm"
)

func testCommand() command {
	return command{
		name: "test", operands: []string{"MODULE.wasm"}, offline: runTest,
		about: "plays a trace to a policy and prints its decisions, or calls it with random messages",
		flags: func(f *flags) {
			f.String("trace", "", "the `file` with the trace of a queue")
			f.String("expect", "", "compare the decisions with those in this `file`")
			f.Bool("update", false, "write the decisions to the file of --expect instead")
			f.String("compare", "", "also play the trace to this `module`, and print the differences")
			f.Duration("after", 24*time.Hour, "continue this long after the last event while messages wait or are held (default 24h)")
			f.Bool("fuzz", false, "call every hook with random messages; a failure ends the run")
			f.Uint64("seed", 1, "seed of --fuzz, a `number` (default 1)")
			f.Int("messages", 20_000, "messages that --fuzz makes for each hook (default 20000)")
			settings(f)
		},
		more: "The policy's input comes from the trace alone, so the same module and trace give the same lines\n" +
			"everywhere. Without --grants the policy may do everything that it asks for.\n",
	}
}

func runTest(p *Program, f *flags) error {
	if err := f.checkTest(); err != nil {
		return err
	}
	module, o, err := f.subject(0)
	if err != nil {
		return err
	}
	if f.yes("fuzz") {
		if err := p.fuzz(f, module, o); err != nil || f.text("trace") == "" {
			return err
		}
	}
	t, err := readTrace(f.text("trace"))
	if err != nil {
		return err
	}
	return p.playTrace(f, t, module, o)
}

// checkTest refuses flags that contradict each other.
func (f *flags) checkTest() error {
	switch n := value[int](f, "messages"); {
	case f.text("trace") == "" && !f.yes("fuzz"):
		return misused("--trace is missing: name the file with the trace, or give --fuzz")
	case f.text("trace") == "" && (f.given("expect") || f.given("compare")):
		return misused("--expect and --compare need a --trace")
	case f.yes("update") && f.text("expect") == "":
		return misused("--update needs --expect, the file to write")
	case n < 1 || n > 10_000_000:
		return misused("--messages %d: must be from 1 to 10000000", n)
	}
	return nil
}

// value returns the value of a flag that is not a string.
func value[T any](f *flags, name string) T {
	g, ok := f.Lookup(name).Value.(flag.Getter)
	if !ok {
		panic(name + " is no flag with a value")
	}
	v, ok := g.Get().(T)
	if !ok {
		panic(fmt.Sprintf("--%s is a %T", name, g.Get()))
	}
	return v
}

func (p *Program) playTrace(f *flags, t *trace, module []byte, o wasm.Options) error {
	s, i, err := p.trial(f, t, module, o)
	if err != nil {
		return err
	}
	if other := f.text("compare"); other != "" {
		return p.compare(f, t, s, other, o)
	}
	if err := p.judge(f, s); err != nil {
		return err
	}
	p.sumUp(s, &i)
	return nil
}

// trial plays a trace with a module. If the policy fails, it prints the decisions up to then.
func (p *Program) trial(f *flags, t *trace, module []byte, o wasm.Options) (s *simulation, i wasm.Info, err error) {
	l, err := newLab(module, o, p.Stderr)
	if err != nil {
		return nil, i, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	s, err = simulate(l, t, value[time.Duration](f, "after"))
	if err != nil {
		return nil, i, err
	}
	if err := l.failed(); err != nil {
		_, printErr := io.WriteString(p.Stdout, s.text())
		return nil, i, errors.Join(err, printErr)
	}
	return s, l.info(), nil
}

// text returns all decisions, one per line.
func (s *simulation) text() string {
	var b strings.Builder
	for _, d := range s.decisions {
		b.WriteString(strings.TrimRight(d.String(), " ") + "\n")
	}
	return b.String()
}

// judge prints the decisions, or compares them with the expected ones.
func (p *Program) judge(f *flags, s *simulation) error {
	golden := f.text("expect")
	switch {
	case golden == "":
		_, err := io.WriteString(p.Stdout, s.text())
		return err
	case f.yes("update"):
		return os.WriteFile(golden, []byte(s.text()), 0o644)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		return err
	}
	if n := p.showDifference(decisionsIn(string(want)), decisionsIn(s.text())); n > 0 {
		return fmt.Errorf("%d lines differ from %s: its own begin with -, those of the policy with +", n, golden)
	}
	return nil
}

// decisionsIn returns the lines of a text without comments and empty lines.
func decisionsIn(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n "); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// shown bounds the number of printed differences.
const shown = 20

// showDifference prints the lines that are only on one side, and returns their number. The order of lines does not matter: two
// decisions at the same time about the same message are always in the same order.
func (p *Program) showDifference(want, got []string) int {
	missing, extra := without(want, got), without(got, want)
	n := 0
	for _, side := range []struct {
		sign  string
		lines []string
	}{{"-", missing}, {"+", extra}} {
		for i, line := range side.lines {
			if i == shown {
				fmt.Fprintf(p.Stdout, "%s … %d more\n", side.sign, len(side.lines)-shown)
				break
			}
			fmt.Fprintf(p.Stdout, "%s %s\n", side.sign, line)
		}
		n += len(side.lines)
	}
	return n
}

// without returns the lines of a that b lacks, or has fewer times.
func without(a, b []string) []string {
	left := make(map[string]int, len(b))
	for _, line := range b {
		left[line]++
	}
	var only []string
	for _, line := range a {
		if left[line]--; left[line] < 0 {
			only = append(only, line)
		}
	}
	return only
}

// compare plays the trace with another module and prints the differences.
func (p *Program) compare(f *flags, t *trace, s *simulation, file string, o wasm.Options) error {
	module, err := readFile(file, maxModule)
	if err != nil {
		return err
	}
	other, _, err := p.trial(f, t, module, o)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if n := p.showDifference(decisionsIn(other.text()), decisionsIn(s.text())); n > 0 {
		return fmt.Errorf("the two differ in %d lines; those of %s begin with -, those of %s with +", n, file, f.operand(0, ""))
	}
	fmt.Fprintf(p.Stdout, "# both make the same %d decisions\n", len(s.decisions))
	return nil
}

// sumUp prints counts after the decisions, in lines that --expect ignores.
func (p *Program) sumUp(s *simulation, i *wasm.Info) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n", s.outcome)
	fmt.Fprintf(&b, "# %d calls of %s; the one that used most fuel used %d of %d\n", i.Calls, strings.Join(i.Hooks, ", "), i.FuelPerCall, i.MaxFuel)
	for _, name := range slices.Sorted(maps.Keys(i.Counters)) {
		fmt.Fprintf(&b, "# counter %s: %d\n", name, i.Counters[name])
	}
	_, _ = b.WriteTo(p.Stdout) // the decisions have been printed
	p.warn(i.Warnings)
}
