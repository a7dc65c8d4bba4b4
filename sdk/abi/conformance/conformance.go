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

// question is a message about which the guest is called. Its priority tells the guest what to do; README.md has the list.
type question struct {
	priority uint8
	name     string
	message  hook.Message
	content  hooktest.Content
}

// entering are the questions of on_enqueue.
func entering() []question {
	qs := []question{
		{priority: 0, name: "no opinion", message: hook.Message{Expiration: hook.LimitOf(101)}},
		{priority: 1, name: "keep for a second"},
		{priority: 2, name: "keep for ever"},
		{priority: 3, name: "expire"},
		{priority: 4, name: "drop"},
		{priority: 5, name: "ask again after five seconds"},
		{priority: 6, name: "dead-letter"},
		{priority: 7, name: "dead-letter with its own key"},
		{priority: 12, name: "number of the configuration"},
		{priority: 13, name: "text of the configuration"},
		{priority: 14, name: "number of the queue"},
		{priority: 15, name: "text of the queue"},
		{priority: 16, name: "log"},
		{priority: 17, name: "count", message: hook.Message{Size: 1234}},
		{priority: 17, name: "count", message: hook.Message{Size: 4321}},
		{priority: 20, name: "ask at the head"},
		{priority: 21, name: "hold"},
		{priority: 22, name: "hold with no opinion"},
		{priority: 23, name: "hold taken back"},
	}
	return append(append(qs, records()...), contents()...)
}

// records are questions about the content of a record.
func records() []question {
	record := hook.Message{Expiration: hook.LimitOf(101), Deadline: start.AddMillis(303), State: 404, Size: 505, Deliveries: 606}
	flags := hook.Message{Enqueued: start.AddMillis(-70), Redelivered: true, Persistent: true}
	return []question{
		{priority: 18, name: "record", message: record},
		{priority: 19, name: "rest of the record", message: flags, content: hooktest.Content{Deaths: 8}},
		{priority: 19, name: "rest of the record of another", message: hook.Message{Persistent: true}},
	}
}

// contents are questions about the content of a message.
func contents() []question {
	number := func(v any) hooktest.Content {
		return hooktest.Content{Headers: map[string]any{"number": v}}
	}
	text := func(v any) hooktest.Content {
		return hooktest.Content{Headers: map[string]any{"text": v}}
	}
	parts := map[hook.Part][]byte{
		hook.PartMessageID: []byte("m-1"), hook.PartType: []byte("order"), hook.PartAppID: []byte("shop"), hook.PartUserID: []byte("guest"),
	}
	body := func(s string) hooktest.Content {
		return hooktest.Content{Parts: map[hook.Part][]byte{hook.PartBody: []byte(s)}}
	}
	return []question{
		{priority: 8, name: "number of a header", content: number(int64(1) << 40)},
		{priority: 8, name: "number of a header that is text", content: number("-12")},
		{priority: 8, name: "number of a header that is none", content: number("soon")},
		{priority: 8, name: "number of no header"},
		{priority: 9, name: "text of a header", content: text("grün")},
		{priority: 9, name: "text of an empty header", content: text("")},
		{priority: 9, name: "text of a long header", content: text(strings.Repeat("0123456789", 30))},
		{priority: 9, name: "text of a header that is a number", content: text(int64(5))},
		{priority: 9, name: "text of no header"},
		{priority: 10, name: "properties", content: hooktest.Content{Exchange: "amq.topic", RoutingKey: "a.b", Parts: parts}},
		{priority: 10, name: "no properties"},
		{priority: 11, name: "body", content: body("0123456789abcdef")},
		{priority: 11, name: "end of a body", content: body("0123456")},
		{priority: 11, name: "beyond a body", content: body("012")},
	}
}

// due are the questions of on_deadline.
func due() []question {
	qs := []question{
		{priority: 0, name: "expire"},
		{priority: 1, name: "keep for a second"},
		{priority: 2, name: "dead-letter"},
		{priority: 3, name: "ask again after five seconds"},
		{priority: 4, name: "drop"},
		{priority: 5, name: "no opinion"},
	}
	for i := range qs {
		qs[i].message = hook.Message{Enqueued: start.AddMillis(-1_000), Deadline: start, State: 9}
	}
	return qs
}

// atHead are the questions of on_head, and comingBack those of on_requeue.
func atHead() []question {
	return inForce("keep for ten milliseconds", "no opinion", "hold for ten milliseconds")
}

func comingBack() []question {
	return inForce("keep for a second longer", "no opinion", "hold until the deadline")
}

func inForce(names ...string) []question {
	var qs []question
	for i, name := range names {
		m := hook.Message{Enqueued: start, Deadline: start.AddMillis(2_000), State: 9, Deliveries: 5}
		qs = append(qs, question{priority: uint8(i), name: name, message: m})
	}
	return qs
}
