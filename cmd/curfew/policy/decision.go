package policy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// decision is a line of the result: the policy's decision, or the fate of a message about which it was not called.
type decision struct {
	at      int64  // milliseconds since the start
	hook    string // "-": it was not called
	id      string // of the message; "-" the queue
	verdict string
}

// noHook is the hook of a decision without a call.
const noHook = abi.Hooks

// String returns the decision as a line. Times are milliseconds since the start of the trace.
func (d decision) String() string {
	return fmt.Sprintf("%10d  %-11s  %-8s  %s", d.at, d.hook, d.id, d.verdict)
}

func (s *simulation) record(h abi.Hook, id, verdict string) {
	name := "-"
	if h != noHook {
		name = h.String()
	}
	s.decisions = append(s.decisions, decision{at: s.millis(s.now), hook: name, id: id, verdict: verdict})
}

// traced records an attribute that the policy adds to a message's trace.
func (s *simulation) traced(m *hook.Message, key, value string) {
	for i := range s.views {
		if m == &s.views[i] {
			s.decisions = append(s.decisions, decision{at: s.millis(s.now), hook: "trace", id: s.asked[i].id, verdict: fmt.Sprintf("%s=%q", key, value)})
		}
	}
}

func (s *simulation) millis(t hook.Instant) int64 { return t.Sub(s.start).Milliseconds() }

// words describes the effect of a verdict on a message.
func (s *simulation) words(v *hook.Verdict, m *stored) string {
	var b strings.Builder
	switch {
	case v.Action == hook.Route:
		fmt.Fprintf(&b, "dead-letter to %q", v.Target.Exchange)
		if v.Target.HasKey {
			fmt.Fprintf(&b, " with key %q", v.Target.Key)
		}
	case v.Action == hook.Refuse:
		b.WriteString("refuse")
	case v.Action == hook.Drop && v.Final:
		b.WriteString("drop")
	case v.Action == hook.Drop:
		b.WriteString("expire")
	case v.Deadline == 0:
		b.WriteString("keep for ever")
	default:
		b.WriteString("keep until " + strconv.FormatInt(s.millis(v.Deadline), 10))
	}
	if v.Action == hook.Keep && v.State != m.State {
		fmt.Fprintf(&b, ", state %d", v.State)
	}
	if v.Action == hook.Keep && v.AskHead {
		b.WriteString(", ask at the head")
	}
	if v.Action == hook.Keep && v.Hold > s.now {
		b.WriteString(", hold until " + strconv.FormatInt(s.millis(v.Hold), 10))
	}
	return b.String()
}

// String counts the messages of a trace by their fates.
func (o outcome) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{o.refused, "refused"},
		{o.expired, "expired"},
		{o.dropped, "dropped"},
		{o.routed, "dead-lettered elsewhere"},
		{o.acked, "acknowledged"},
		{o.published - o.refused - o.expired - o.dropped - o.routed - o.acked, "still there"},
		{o.held, "of them held"},
	} {
		if p.n > 0 {
			parts = append(parts, strconv.Itoa(p.n)+" "+p.what)
		}
	}
	return strconv.Itoa(o.published) + " messages: " + strings.Join(parts, ", ")
}
