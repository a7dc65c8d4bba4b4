package policy

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

func checkCommand() command {
	return command{
		name: "check", operands: []string{"MODULE.wasm"}, offline: runCheck, flags: settings,
		about: "says whether a broker would load a module, what it needs, and what a decision costs",
		more:  "Loads the module as a broker does, with the same trial: a broker refuses what this command refuses.\n",
	}
}

func runCheck(p *Program, f *flags) error {
	module, o, err := f.subject(0)
	if err != nil {
		return err
	}
	m, err := wasm.Inspect(module)
	if err != nil {
		return err
	}
	if err := describe(p.Stdout, &m); err != nil {
		return err
	}
	return p.tryOut(module, o)
}

// describe prints a module's manifest.
func describe(to io.Writer, m *wasm.Manifest) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "digest\tsha256:%s\n", m.Digest)
	fmt.Fprintf(w, "size\t%d bytes\n", m.Size)
	fmt.Fprintf(w, "speaks\t%s\n", abi.Name)
	fmt.Fprintf(w, "exports\t%s\n", joined(m.Hooks))
	imports := m.Imports
	if m.WASI {
		imports = append(imports, "WASI")
	}
	fmt.Fprintf(w, "imports\t%s\n", joined(imports))
	fmt.Fprintf(w, "grants\t%s\n", joined(m.Grants))
	return w.Flush()
}

func joined[T any](list []T) string {
	if len(list) == 0 {
		return "none"
	}
	all := make([]string, len(list))
	for i, v := range list {
		all[i] = fmt.Sprint(v)
	}
	return strings.Join(all, ", ")
}

// tryOut loads a module as a broker does, and prints the result of its trial.
func (p *Program) tryOut(module []byte, o wasm.Options) (err error) {
	l, err := labFor(module, o, wasm.Decisive, plain{w: p.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	i := l.info()
	w := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "in use\t%s\n", joined(i.Hooks))
	fmt.Fprintf(w, "messages at once\t%d\n", max(i.Capacity, 1)) // 0 means one at a time
	fmt.Fprintf(w, "fuel to start\t%d\n", i.InitFuel)
	for _, c := range i.Trial {
		fmt.Fprintf(w, "fuel of %s\t%s\n", c.Hook, cost(&c))
	}
	fmt.Fprintf(w, "fuel of a call\tat most %d, a pause of %v at the worst\n", i.MaxFuel, i.WorstPause.Round(time.Microsecond))
	if err := w.Flush(); err != nil {
		return err
	}
	p.warn(i.Warnings)
	return nil
}

// cost describes the fuel that a hook used.
func cost(c *wasm.HookCost) string {
	switch {
	case c.Untried:
		return "not known: it was not tried"
	case c.Hook == abi.OnIdle.String():
		return strconv.FormatInt(c.One, 10)
	case c.Each == 0:
		return fmt.Sprintf("%d for one message", c.One)
	}
	return fmt.Sprintf("%d for one message, %d for each of 64", c.One, c.Each)
}

func instantOf(t time.Time) hook.Instant { return hook.Instant(t.UnixNano()) }

// plainMessages returns ordinary messages, with their initial verdicts.
func plainMessages(why hook.Why, n int) ([]hook.Message, []hook.Verdict) {
	now := instantOf(defaultStart)
	ms, vs, carried := make([]hook.Message, n), make([]hook.Verdict, n), make(contents, n)
	for i := range ms {
		carried[i] = &event{}
		ms[i] = hook.Message{Why: why, Enqueued: now, Size: 1024, Expiration: hook.LimitOf(30_000)}
		switch why {
		case hook.WhyDue:
			ms[i].Enqueued, ms[i].Deadline = now.Add(-time.Minute), now
		case hook.WhyHead, hook.WhyRequeue:
			ms[i].Enqueued, ms[i].Deadline = now.Add(-time.Second), now.Add(time.Minute)
		}
		ms[i].Bind(carried, i)
		vs[i].Deadline = ms[i].Deadline
	}
	return ms, vs
}
