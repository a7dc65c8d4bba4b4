// Package conformance checks an SDK for expiry policies and a host of policies against each other. README.md describes the guest. It is
// called about messages that make it use every host function and every verdict, and the results are compared with a transcript.
package conformance

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// Expected is the transcript of a correct guest and host.
//
//go:embed transcript.txt
var Expected string

// Policy is the guest, loaded by the host.
type Policy interface {
	// Attach returns the hooks for a queue.
	Attach(q hook.Queue) hook.Hooks
	// Said returns the guest's log lines, counts and trace attributes since the last call, one line each.
	Said() []string
}

// Config is the guest's configuration. The guest needs all grants, and a log that accepts level info.
func Config() map[string]any {
	return map[string]any{"exchange": "parking", "key": "lost", "deep": map[string]any{"number": -42, "text": "über"}}
}

// Refused is Config with a setting that the guest must refuse, with the text "as asked".
func Refused() map[string]any {
	c := Config()
	c["refuse"] = 1
	return c
}

// start is the time of all questions. Guests do not see the part below a millisecond.
const start = hook.Instant(1_700_000_000_123_456_789)

// queue is the queue of all questions.
func queue() *hooktest.Queue {
	return hooktest.NewQueue(hooktest.Spec{Strategy: "wasm/x", Settings: map[string]any{
		"message-ttl": int32(202), "max-length": int64(77), "overflow": "reject-publish", "dead-letter-exchange": "dlx",
	}})
}

// Run asks the guest all questions and fails the test if an answer is wrong.
func Run(tb testing.TB, p Policy) {
	tb.Helper()
	got, want := strings.Split(Transcript(p), "\n"), strings.Split(Expected, "\n")
	for i := range max(len(got), len(want)) {
		g, w := lineOf(got, i), lineOf(want, i)
		if g != w {
			tb.Errorf("line %d of the transcript: got %q, want %q", i+1, g, w)
		}
	}
}

func lineOf(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}

// Transcript asks the guest all questions and returns the answers.
func Transcript(p Policy) string {
	t := transcript{policy: p, hooks: p.Attach(queue())}
	t.section("on_enqueue", t.hooks.OnEnqueue, entering(), hook.WhyEnqueue)
	t.section("on_deadline", t.hooks.OnHead, due(), hook.WhyDue)
	t.section("on_head", t.hooks.OnHead, atHead(), hook.WhyHead)
	t.section("on_requeue", t.hooks.OnRequeue, comingBack(), hook.WhyRequeue)
	t.idle()
	return t.b.String()
}

type transcript struct {
	policy Policy
	hooks  hook.Hooks
	b      strings.Builder
}

type callback = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict)

// section calls a hook: for each question by itself, and then for all at once, which must give the same answers.
func (t *transcript) section(name string, ask callback, qs []question, why hook.Why) {
	fmt.Fprintln(&t.b, name)
	for i := range qs {
		vs := verdicts(qs[i:i+1], why)
		ask(start, messages(qs[i:i+1], why), vs)
		fmt.Fprintf(&t.b, "  %d %s: %s\n", qs[i].priority, qs[i].name, answer(&vs[0]))
		for _, said := range t.policy.Said() {
			fmt.Fprintln(&t.b, "    "+said)
		}
	}
	vs := verdicts(qs, why)
	ask(start, messages(qs, why), vs)
	fmt.Fprintln(&t.b, "  all at once")
	for i := range vs {
		fmt.Fprintf(&t.b, "    %s\n", answer(&vs[i]))
	}
	t.policy.Said()
}

// messages returns the questions' messages; the priority is the question's number.
func messages(qs []question, why hook.Why) []hook.Message {
	ms, contents := make([]hook.Message, len(qs)), make([]hooktest.Content, len(qs))
	for i := range qs {
		ms[i], contents[i] = qs[i].message, qs[i].content
		ms[i].Priority, ms[i].Why = qs[i].priority, why
		if ms[i].Enqueued == 0 {
			ms[i].Enqueued = start
		}
	}
	hooktest.Bind(ms, contents...)
	return ms
}

// verdicts returns the broker's initial verdicts.
func verdicts(qs []question, why hook.Why) []hook.Verdict {
	vs := make([]hook.Verdict, len(qs))
	if why == hook.WhyEnqueue {
		return vs
	}
	for i := range qs {
		vs[i] = hook.Verdict{Deadline: qs[i].message.Deadline, State: qs[i].message.State}
	}
	return vs
}

// answer describes a verdict in words.
func answer(v *hook.Verdict) string {
	var b strings.Builder
	switch v.Action {
	case hook.Keep:
		b.WriteString("keep " + after(v.Deadline))
	case hook.Drop:
		b.WriteString("expire")
		if v.Final {
			b.WriteString(" for good")
		}
	case hook.Route:
		fmt.Fprintf(&b, "to exchange %q", v.Target.Exchange)
		if v.Target.HasKey {
			fmt.Fprintf(&b, " with key %q", v.Target.Key)
		}
	default:
		fmt.Fprintf(&b, "%+v", *v)
	}
	if v.Action == hook.Keep && v.State != 0 {
		fmt.Fprintf(&b, ", state %d", v.State)
	}
	if v.AskHead {
		b.WriteString(", ask at the head")
	}
	if v.Hold != 0 {
		b.WriteString(", held " + after(v.Hold))
	}
	return b.String()
}

// after describes an instant relative to the time of the questions.
func after(t hook.Instant) string {
	if t == 0 {
		return "for ever"
	}
	return "for " + t.Sub(start).String()
}

// idle asks about a queue without consumers.
func (t *transcript) idle() {
	fmt.Fprintln(&t.b, "on_idle")
	for ready := range 4 {
		q := queue()
		q.Spec.Ready, q.Spec.Unacked = ready, 3
		v := hook.Verdict{Deadline: start.AddMillis(60_000)}
		t.policy.Attach(q).OnIdle(start, 7*time.Second, &v)
		fmt.Fprintf(&t.b, "  %d messages: %s\n", ready, answer(&v))
	}
}
