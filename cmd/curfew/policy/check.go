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
		more:  "The module is loaded as a broker does it, and asked about one message and about 64.\n",
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

// tryOut loads a module and measures what a call of each of its hooks costs.
func (p *Program) tryOut(module []byte, o wasm.Options) (err error) {
	l, err := newLab(module, o, p.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	i := l.info()
	w := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "in use\t%s\n", joined(i.Hooks))
	fmt.Fprintf(w, "messages at once\t%d\n", max(i.Capacity, 1)) // 0 is each by itself
	fmt.Fprintf(w, "fuel to start\t%d\n", i.InitFuel)
	for _, h := range i.Hooks {
		fmt.Fprintf(w, "fuel of %s\t%s\n", h, l.cost(h))
	}
	fmt.Fprintf(w, "fuel of a call\tat most %d, a pause of %v at the worst\n", i.MaxFuel, i.WorstPause.Round(time.Microsecond))
	if err := w.Flush(); err != nil {
		return err
	}
	return l.failed()
}

// cost returns the fuel of a hook for one message and for many.
func (l *lab) cost(name string) string {
	q := newQueue()
	q.settings["message-ttl"] = int64(60_000)
	hs := l.attach(q)
	if name == abi.OnIdle.String() {
		return strconv.FormatUint(l.fuelOf(func() {
			var v hook.Verdict
			hs.OnIdle(instantOf(defaultStart), time.Minute, &v)
		}), 10)
	}
	asked := barrages()[0] // when messages enter, as for [abi.Deadline]
	for _, b := range barrages() {
		if b.hook.String() == name {
			asked = b
		}
	}
	const many = 64
	one := l.fuelOf(func() { askPlainly(asked.ask(&hs), asked.why, 1) })
	all := l.fuelOf(func() { askPlainly(asked.ask(&hs), asked.why, many) })
	return fmt.Sprintf("%d for one message, %d for each of %d", one, all/many, many)
}

// fuelOf returns the fuel that the policy uses in the second of two rounds: in the first, a guest may still initialise itself.
func (l *lab) fuelOf(round func()) uint64 {
	round()
	before := l.info().FuelUsed
	round()
	return l.info().FuelUsed - before
}

func instantOf(t time.Time) hook.Instant { return hook.Instant(t.UnixNano()) }

// plainMessages returns ordinary messages, with the verdicts to begin with.
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

func askPlainly(ask callback, why hook.Why, n int) {
	ms, vs := plainMessages(why, n)
	ask(instantOf(defaultStart), ms, vs)
}
