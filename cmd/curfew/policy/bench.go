package policy

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/hook"
)

func benchCommand() command {
	return command{
		name: "bench", operands: []string{"MODULE.wasm"}, offline: runBench,
		about: "measures how long a module takes to decide about entering messages",
		flags: func(f *flags) {
			f.Duration("duration", time.Second, "measure each batch size for this time, as in 500ms (default 1s)")
			settings(f)
		},
		more: "Fuel is the same on every machine; the time is this machine's, for the policy alone.\n",
	}
}

func runBench(p *Program, f *flags) error {
	d := value[time.Duration](f, "duration")
	if d < time.Millisecond || d > time.Minute {
		return misused("--duration %v: must be from 1ms to 1m", d)
	}
	module, o, err := f.subject(0)
	if err != nil {
		return err
	}
	return p.bench(module, o, d)
}

func (p *Program) bench(module []byte, o wasm.Options, d time.Duration) (err error) {
	began := time.Now()
	l, err := newLab(module, o, p.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	fmt.Fprintf(p.Stdout, "loaded, compiled and started in %v\n\n", time.Since(began).Round(10*time.Microsecond))
	w := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "messages at once\tns per message\tat best\tfuel per message\tlongest call\t")
	for _, n := range []int{1, 16, 64, 256} {
		m := l.measure(n, d)
		fmt.Fprintf(w, "%d\t%.1f\t%.1f\t%d\t%v\t\n", n, m.perMessage, m.best, m.fuel, m.longest)
	}
	return errors.Join(w.Flush(), l.failed())
}

// measurement is the result for one size of batch.
type measurement struct {
	perMessage float64 // nanoseconds
	best       float64 // of all rounds, because other programs slow some of them down
	fuel       uint64  // per message
	longest    time.Duration
}

// measure repeats a call about n messages for the duration d.
func (l *lab) measure(n int, d time.Duration) measurement {
	hs := l.attach(newQueue())
	ms, vs := plainMessages(hook.WhyEnqueue, n)
	now := instantOf(defaultStart)
	hs.OnEnqueue(now, ms, vs)
	before := l.info()
	var m measurement
	began := time.Now()
	last := began
	for shortest := d; last.Sub(began) < d; {
		calls := max(1, 64/n) // reading the clock costs as much as a small call
		for range calls {
			clear(vs)
			hs.OnEnqueue(now, ms, vs)
		}
		at := time.Now()
		round := at.Sub(last)
		last = at
		shortest = min(shortest, round)
		m.best = float64(shortest.Nanoseconds()) / float64(calls*n)
		m.longest = max(m.longest, round/time.Duration(calls))
	}
	after := l.info()
	asked := after.Messages - before.Messages
	if asked == 0 {
		return m // the policy has no hook for entering messages
	}
	m.perMessage = float64(last.Sub(began).Nanoseconds()) / float64(asked)
	m.fuel = (after.FuelUsed - before.FuelUsed) / asked
	return m
}
