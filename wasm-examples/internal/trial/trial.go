// Package trial runs policies in the broker's own host of policies, without a
// broker around it: a test asks a module what the broker would ask, and compares
// the answers.
package trial

import (
	"encoding/json"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
	"github.com/curfewmq/curfew/wasm-examples/internal/build"
)

// Start is when tests begin: a Tuesday, 2023-11-14 22:13:20 UTC.
const Start = hook.Instant(1_700_000_000_000_000_000)

// Settings are a module's settings, as the configuration of the broker has them.
type Settings = hooktest.Section

// Policy is a module that is loaded.
type Policy struct {
	tb   testing.TB
	host *wasm.Host
	file string
}

// Load loads a module from a file, or what [build.Same] has tests load in its place,
// with settings of plugins.wasm.modules.NAME such as config and grants. It has to
// be accepted.
func Load(tb testing.TB, file string, s Settings) *Policy {
	tb.Helper()
	p, err := load(tb, file, s)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// Refusal loads a module that has to be refused, and returns why it is.
func Refusal(tb testing.TB, file string, s Settings) string {
	tb.Helper()
	_, err := load(tb, file, s)
	if err == nil {
		tb.Fatalf("%s with %v is accepted", file, s)
	}
	return err.Error()
}

func load(tb testing.TB, file string, s Settings) (*Policy, error) {
	tb.Helper()
	s = maps.Clone(s)
	if s == nil {
		s = Settings{}
	}
	file = build.Path(file)
	s["path"] = file
	h, _ := hooktest.New(tb, wasm.Factory, Settings{"modules": Settings{"x": s}}).(*wasm.Host)
	tb.Cleanup(func() {
		if err := h.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &Policy{tb, h, file}, h.Open(wasm.Env{})
}

// Refusal loads the module once more, beside itself, with a configuration that it
// has to refuse, and returns why it does. Large modules are compiled only once that
// way.
func (p *Policy) Refusal(config Settings) string {
	p.tb.Helper()
	module, err := os.ReadFile(p.file)
	if err != nil {
		p.tb.Fatal(err)
	}
	b, err := json.Marshal(config)
	if err != nil {
		p.tb.Fatal(err)
	}
	i := p.Info()
	_, err = p.host.Load("again", module, wasm.Options{Config: b, Grants: i.Grants, Fuel: i.Fuel})
	if err == nil {
		p.tb.Fatalf("%s with %v is accepted", p.file, config)
	}
	return err.Error()
}

// Info is what the host knows of the policy.
func (p *Policy) Info() wasm.Info {
	i, _ := p.host.Info("x")
	return i
}

// Queue is a queue that has chosen the policy.
type Queue struct {
	*hooktest.Queue

	policy *Policy
	hooks  hook.Hooks
}

// Queue returns a queue with settings by the names that policies have:
// "message-ttl", not "x-message-ttl".
func (p *Policy) Queue(settings map[string]any) *Queue {
	q := hooktest.NewQueue(hooktest.Spec{Strategy: "wasm/x", Settings: settings})
	return &Queue{q, p, p.host.Attach(q)}
}

// Message is a message, and what it carries.
type Message struct {
	hook.Message
	hooktest.Content
}

// Enter asks about messages that are about to enter.
func (q *Queue) Enter(now hook.Instant, ms ...Message) []hook.Verdict {
	for i := range ms {
		ms[i].Enqueued, ms[i].Why = now, hook.WhyEnqueue
	}
	return q.ask(q.hooks.OnEnqueue, now, make([]hook.Verdict, len(ms)), ms)
}

// Due asks about messages whose deadline is reached.
func (q *Queue) Due(now hook.Instant, ms ...Message) []hook.Verdict {
	for i := range ms {
		ms[i].Deadline, ms[i].Why = now, hook.WhyDue
	}
	return q.ask(q.hooks.OnHead, now, inForce(ms), ms)
}

// Head asks about messages that are delivered next.
func (q *Queue) Head(now hook.Instant, ms ...Message) []hook.Verdict {
	for i := range ms {
		ms[i].Why = hook.WhyHead
	}
	return q.ask(q.hooks.OnHead, now, inForce(ms), ms)
}

// Requeue asks about messages that come back unacknowledged.
func (q *Queue) Requeue(now hook.Instant, ms ...Message) []hook.Verdict {
	for i := range ms {
		ms[i].Why = hook.WhyRequeue
	}
	return q.ask(q.hooks.OnRequeue, now, inForce(ms), ms)
}

// Idle asks about the queue after so long without consumers.
func (q *Queue) Idle(now hook.Instant, idle time.Duration) hook.Verdict {
	q.policy.tb.Helper()
	var v hook.Verdict
	q.hooks.OnIdle(now, idle, &v)
	q.policy.healthy()
	return v
}

// inForce are the verdicts that the broker starts with for messages that are
// there.
func inForce(ms []Message) []hook.Verdict {
	vs := make([]hook.Verdict, len(ms))
	for i := range ms {
		vs[i] = hook.Verdict{Deadline: ms[i].Deadline, State: ms[i].State}
	}
	return vs
}

func (q *Queue) ask(callback func(hook.Instant, []hook.Message, []hook.Verdict), now hook.Instant, vs []hook.Verdict, ms []Message) []hook.Verdict {
	q.policy.tb.Helper()
	messages, contents := make([]hook.Message, len(ms)), make([]hooktest.Content, len(ms))
	for i := range ms {
		messages[i], contents[i] = ms[i].Message, ms[i].Content
	}
	hooktest.Bind(messages, contents...)
	callback(now, messages, vs)
	q.policy.healthy()
	return vs
}

// Wait is the time that a message that would enter is given to wait: how long
// until its deadline, -1 if there is none. A message that goes at once fails the
// test.
func (q *Queue) Wait(now hook.Instant, m Message) int64 {
	q.policy.tb.Helper()
	v := q.Enter(now, m)[0]
	if v.Action != hook.Keep {
		q.policy.tb.Fatalf("message %+v: got %+v, want it kept", m, v)
	}
	return Millis(now, v.Deadline)
}

// Millis is how many milliseconds there are between two instants, -1 if to is
// none.
func Millis(from, to hook.Instant) int64 {
	if to == 0 {
		return -1
	}
	return to.Sub(from).Milliseconds()
}

// healthy fails the test if the policy failed.
func (p *Policy) healthy() {
	p.tb.Helper()
	if i := p.Info(); i.LastError != "" {
		p.tb.Errorf("the policy failed: %s", i.LastError)
	}
}
