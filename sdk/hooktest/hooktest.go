// Package hooktest has a conformance suite for plugins, and fakes of the broker's queues
// and messages. It needs only package hook, so plugins from outside the tree use it like
// the built-in ones:
//
//	func TestConformance(t *testing.T) { hooktest.Run(t, ttl.Factory) }
package hooktest

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Case is a configuration and a queue for [Run].
type Case struct {
	Name    string
	Section Section // the plugin's section; nil = its defaults
	Queue   Spec    // Strategy "" and Type "" = each value in turn
	// Exchange is for plugins with exchange types or filters; Type "" = each in turn.
	Exchange ExchangeSpec
}

// Run checks that a plugin fulfils the contract of package hook:
//
//   - its defaults are valid, its section is decoded into a tagged struct, and it
//     returns the decoder's errors;
//   - its argument checks take any value and refuse in the broker's terms;
//   - the checks of its policy keys accept any JSON value as input, agree with the checks of the
//     arguments, fit the way in which values are merged, and lead to the same hooks; Attach
//     works even with values that they refuse;
//   - it reads any expiration property, the same way each time, and retains none;
//   - it reads any value of the headers that hold messages, the same way each time;
//   - it reads live counts in callbacks only, and not in shared ones;
//   - callbacks take any message, any verdict and empty batches, give valid
//     verdicts, change no message and retain none;
//   - the same calls get the same answers, and a batch gets the answers of its
//     messages one by one;
//   - it starts no goroutine and does not block;
//   - checks of exchanges and bindings take anything, and answer the same each time;
//   - exchanges route to bound destinations only, from any goroutine, and retain
//     neither bindings nor messages;
//   - exchanges of a type that is not Volatile route by their bindings and the message
//     alone, in whatever order the bindings came, and by the routing keys alone if
//     Route read nothing else.
//
// Run uses plain queues and exchanges and those of the cases, which should make the
// plugin use all of its callbacks. Run it with the race detector, too.
func Run(t *testing.T, f hook.Factory, cases ...Case) {
	t.Helper()
	t.Run("Config", func(t *testing.T) { checkConfig(t, f) })
	t.Run("Arguments", func(t *testing.T) { checkArguments(t, f) })
	t.Run("Exchanges", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { checkExchanges(t, f, cases) })
	})
	for _, c := range append([]Case{{Name: "plain"}}, cases...) {
		p, _, err := f.New(c.Section.Decode)
		if err != nil {
			t.Errorf("case %s: %v", c.Name, err)
			continue
		}
		t.Run(c.Name+"/Expirations", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkExpirations(t, p) })
		})
		t.Run(c.Name+"/Holds", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkHolds(t, p) })
		})
		t.Run(c.Name+"/Policies", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkPolicyKeys(t, p, c.Queue.Settings) })
		})
		for _, s := range c.specs(p) {
			name := fmt.Sprintf("%s/%s/%s", c.Name, s.Type, s.Strategy)
			t.Run(name, func(t *testing.T) {
				// In a bubble, a goroutine that stays behind is a failure.
				synctest.Test(t, func(t *testing.T) { (&subject{t: t, plugin: p, spec: s}).check() })
			})
		}
	}
}

// specs fills in each queue type and each strategy if the case names none.
func (c Case) specs(p hook.Plugin) []Spec {
	types, strategies := []string{c.Queue.Type}, []string{c.Queue.Strategy}
	if c.Queue.Type == "" {
		types = []string{"classic", "quorum"}
	}
	if c.Queue.Strategy == "" {
		strategies = []string{"somebody-elses"}
		if s, ok := p.(hook.Strategist); ok {
			strategies = append(strategies, s.Strategies()...)
		}
	}
	var all []Spec
	for _, kind := range types {
		for _, strategy := range strategies {
			s := c.Queue
			s.Type, s.Strategy = kind, strategy
			all = append(all, s)
		}
	}
	return all
}

// New makes the plugin from a section; nil means its defaults. It fails the test if the plugin refuses the section.
func New(tb testing.TB, f hook.Factory, s Section) hook.Plugin {
	tb.Helper()
	p, _, err := f.New(s.Decode)
	if err != nil {
		tb.Fatalf("plugins.%s: %v", f.Name, err)
	}
	return p
}

// Term returns the term with which the plugin's check of argument name refuses v, given the other arguments of the declaration; "" if it
// accepts v, and "invalid type 'T'" for a [hook.ArgTypeError].
func Term(tb testing.TB, p hook.Plugin, name string, v any, others ...hook.Arg) string {
	tb.Helper()
	for _, a := range p.Arguments() {
		if a.Name == name {
			err := a.Check(v, append(hook.Args{{Name: name, Value: v}}, others...))
			if err == nil {
				return ""
			}
			return err.Error()
		}
	}
	tb.Fatalf("the plugin has no argument %s", name)
	return ""
}

// Batch is the number of messages that [Bench] passes per call, similar to a busy connection.
const Batch = 64

// Bench measures a callback per message, in batches of equal messages.
func Bench(b *testing.B, call func(now hook.Instant, ms []hook.Message, vs []hook.Verdict), like hook.Message) {
	b.Helper()
	ms, vs := make([]hook.Message, Batch), make([]hook.Verdict, Batch)
	for i := range ms {
		ms[i] = like
	}
	Bind(ms)
	b.ReportAllocs()
	for b.Loop() {
		clear(vs)
		call(like.Enqueued, ms, vs)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*Batch), "ns/message")
}
