package hooktest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// situation is a message for a callback, with its present verdict.
type situation struct {
	message hook.Message
	content Content
	verdict hook.Verdict
}

// now is the clock of the suite, far from both ends.
const now = hook.Instant(1_700_000_000_123_456_789)

// situations makes n situations that can occur at hook point p. Equal seeds give equal situations.
func situations(p point, seed uint64, n int) []situation {
	r := rand.New(rand.NewPCG(seed, uint64(len(p))))
	all := make([]situation, n)
	for i := range all {
		all[i] = situate(p, r)
	}
	return all
}

func situate(p point, r *rand.Rand) situation {
	s := situation{message: message(r), content: content(r)}
	m, v := &s.message, &s.verdict
	switch p {
	case onEnqueue:
		m.Why, m.Enqueued = hook.WhyEnqueue, now
		*v = predecessors(r, hook.Keep, hook.Keep, hook.Drop, hook.Route)
		v.Deadline = pick(r, 0, 0, now-1, now, now+1, now.Add(time.Hour))
		v.Hold = pick(r, 0, 0, 0, 1, now+1, now.Add(time.Hour))
		return s
	case onHead:
		m.Why, m.Deadline = hook.WhyHead, pick(r, 0, 1, now-1, now, now+1, now.Add(time.Hour))
		*v = predecessors(r, hook.Keep, hook.Keep, hook.Drop, hook.Route)
		if m.Deadline != 0 && m.Deadline <= now {
			m.Why = hook.WhyDue
			v.Hold = pick(r, 0, 0, now+1, now.Add(time.Hour)) // it is held, and due
		}
		if v.Action != hook.Keep {
			m.Why = hook.WhyLeaving
		}
	case onRestamp:
		m.Why, m.Deadline = hook.WhyChange, pick(r, 0, now-1, now.Add(time.Hour))
		return s
	case onRequeue:
		m.Why, m.Deadline, m.Redelivered = hook.WhyRequeue, pick(r, 0, now-1, now.Add(time.Hour)), true
		m.Return = pick(r, hook.ReturnFailed, hook.ReturnNacked)
		v.Hold = pick(r, 0, 0, now+1)
	case onReturn:
		m.Why, m.Deadline, m.Redelivered = hook.WhyRequeue, pick(r, 0, now-1, now.Add(time.Hour)), true
		m.Return, m.Returns = pick(r, hook.ReturnFailed, hook.ReturnNacked), pick[uint32](r, 1, 2, 20, math.MaxUint32)
		v.Hold = pick(r, 0, 0, 1, now.Add(time.Hour))
	}
	guest.Restore(v, m)
	return s
}

func message(r *rand.Rand) hook.Message {
	m := hook.Message{
		Enqueued:    now.Add(-time.Duration(r.Int64N(int64(time.Hour)))),
		State:       pick(r, 0, 1, -1, math.MaxInt64, math.MinInt64, r.Int64()),
		Expiration:  pick(r, 0, 0, hook.LimitOf(0), hook.LimitOf(1), hook.LimitOf(r.Int64N(1e6)), hook.LimitOf(math.MaxInt64)),
		Size:        pick(r, 0, 1, 100, 1<<20, math.MaxInt32),
		Deliveries:  pick[uint32](r, 0, 0, 1, 20, math.MaxUint32),
		Priority:    uint8(r.Uint32()),
		Redelivered: r.Uint32()%2 == 0,
		Persistent:  r.Uint32()%2 == 0,
		Traced:      r.Uint32()%2 == 0,
	}
	guest.SetMessageDigest(&m, pick(r, 0, 0, r.Uint64()))
	return m
}

func content(r *rand.Rand) Content {
	return Content{
		Exchange:   pick(r, "", "amq.topic", "\xff"),
		RoutingKey: pick(r, "", "q", "a.b.c"),
		Headers:    map[string]any{"x-delay": pick(r, anything...), "x-retry": pick(r, anything...)},
		Deaths:     pick(r, 0, 1, math.MaxInt32),
	}
}

// predecessors returns a verdict that another plugin, or the broker, may have left.
func predecessors(r *rand.Rand, actions ...hook.Action) hook.Verdict {
	v := hook.Verdict{Action: pick(r, actions...), AskHead: r.Uint32()%8 == 0}
	if v.Action == hook.Keep {
		return v
	}
	v.Reason = hook.Reason(1 + r.UintN(uint(hook.Reasons)-1))
	if v.Reason == hook.ReasonDuplicate { // only ever dropped
		v.Action, v.Final = hook.Drop, true
	}
	if v.Action == hook.Route {
		v.Target = &hook.Target{Exchange: "elsewhere", Key: "k", HasKey: true}
	}
	return v
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// unzip converts situations to the arguments of a callback.
func unzip(in []situation) ([]hook.Message, []hook.Verdict) {
	ms, vs, contents := make([]hook.Message, len(in)), make([]hook.Verdict, len(in)), make([]Content, len(in))
	for i, s := range in {
		ms[i], vs[i], contents[i] = s.message, s.verdict, s.content
	}
	Bind(ms, contents...)
	return ms, vs
}

// show formats a callback's arguments if there is only one message.
func show(in []situation) string {
	if len(in) != 1 {
		return fmt.Sprintf("a batch of %d", len(in))
	}
	return fmt.Sprintf("%+v with headers %v and the verdict %s", in[0].message, in[0].content.Headers, format(in[0].verdict))
}

// same reports whether two verdicts are equal; targets are compared by their content.
func same(a, b hook.Verdict) bool {
	if a.Target != nil && b.Target != nil && *a.Target == *b.Target {
		a.Target = b.Target
	}
	return a == b
}

// format prints a verdict with its target.
func format(v hook.Verdict) string {
	target := v.Target
	v.Target = nil
	return fmt.Sprintf("%+v %+v", v, target)
}
