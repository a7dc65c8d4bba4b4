package policy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
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

// hold holds a ready message, if the verdict says so.
func (s *simulation) hold(m *stored, v *hook.Verdict) {
	if v.Action != hook.Keep || v.Hold <= s.now {
		return
	}
	if m.where == ready {
		s.countReady(m, -1)
	}
	m.where, m.hold = held, v.Hold
	s.releases.Push(deadline.Item{At: int64(m.hold), Slot: s.byID[m.id]})
}

// moveDeadlines makes the TTLs of messages that are held as they enter count from the end of their holds, as the broker does.
func (s *simulation) moveDeadlines(vs []hook.Verdict) {
	for i := range vs {
		if v := &vs[i]; v.Action == hook.Keep && v.Hold > s.now && v.Deadline != 0 && guest.Digest(v) == 0 {
			v.Deadline = v.Deadline.Add(v.Hold.Sub(s.now))
		}
	}
}

// release makes messages ready whose hold has ended.
func (s *simulation) release() {
	for s.releases.Len() > 0 && hook.Instant(s.releases.Top().At) <= s.now {
		it := s.releases.Pop()
		m := s.messages[it.Slot]
		if m.where != held || m.hold != hook.Instant(it.At) {
			continue
		}
		m.hold = 0
		s.record(noHook, m.id, "released")
		s.enqueue(m)
		s.countReady(m, 1)
		s.remind(m)
	}
}

// remind makes the clock stop at a message's deadline.
func (s *simulation) remind(m *stored) {
	if m.Deadline != 0 {
		s.deadlines.Push(deadline.Item{At: int64(m.Deadline), Slot: s.byID[m.id]})
	}
}

// countReady counts n messages like m in the queue.
func (s *simulation) countReady(m *stored, n int) {
	s.queue.ready += n
	s.queue.bytes += int64(n * m.Size)
}

// nextInstant returns the instant of the next event that is not in the trace; false = there is none.
func (s *simulation) nextInstant() (at hook.Instant, ok bool) {
	for _, h := range []*deadline.Heap{&s.deadlines, &s.releases} {
		if h.Len() == 0 {
			continue
		}
		if t := hook.Instant(h.Top().At); !ok || t < at {
			at, ok = t, true
		}
	}
	return at, ok
}

// miss records that the trace delivers a message that is held. The broker would deliver it later, so the rest of the trace about that
// delivery is ignored.
func (s *simulation) miss(m *stored) {
	s.record(noHook, m.id, "not delivered: it is held")
	m.missed = true
}

// heldNow returns how many messages are held.
func (s *simulation) heldNow() (n int) {
	for _, m := range s.messages {
		if m.where == held {
			n++
		}
	}
	return n
}

// expireDue calls the policy about the due messages.
func (s *simulation) expireDue() {
	if due := s.due(); len(due) > 0 {
		s.settle(abi.OnDeadline, hook.WhyDue, due)
	}
}
