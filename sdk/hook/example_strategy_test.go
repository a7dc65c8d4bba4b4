package hook_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// patience is an expiry strategy: a message may wait for the queue's message-ttl, and
// for as long again after each delivery that came back.
type patience struct{}

// Strategies implements [hook.Strategist].
func (patience) Strategies() []string { return []string{"patience"} }

// DefaultStrategy implements [hook.Strategist]. It leaves the default to other plugins.
func (patience) DefaultStrategy() string { return "" }

func (patience) Arguments() []hook.Argument { return nil }

func (p patience) Attach(q hook.Queue) hook.Hooks {
	ttl := hook.IntSetting(q, "message-ttl")
	if !slices.Contains(p.Strategies(), q.Strategy()) || !ttl.Set() {
		return hook.Hooks{Shared: true} // a queue of another strategy
	}
	stamp := func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			vs[i].Deadline = ms[i].Enqueued.AddMillis(ttl.N())
		}
	}
	extend := func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			vs[i].Deadline = now.AddMillis(ttl.N())
			vs[i].State = ms[i].State + 1 // 8 bytes of its own, here the number of extensions
		}
	}
	expire := func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			// Messages that another plugin has decided about, or that are not due, stay as they are.
			if v := &vs[i]; v.Action == hook.Keep && v.Deadline != 0 && v.Deadline <= now {
				*v = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired}
			}
		}
	}
	return hook.Hooks{
		Strategy: true, Scan: hook.ScanAnywhere, Shared: true,
		OnEnqueue: stamp, OnHead: expire, OnRequeue: extend, OnRestamp: stamp,
	}
}

// An expiry strategy sets deadlines, and decides about messages that are due. Queues choose it with the argument x-expiry-strategy or a
// policy.
func ExampleStrategist() {
	queue := hooktest.NewQueue(hooktest.Spec{Strategy: "patience", Settings: map[string]any{"message-ttl": int32(1000)}})
	hooks := patience{}.Attach(queue)
	const now = hook.Instant(5_000_000_000)

	vs := make([]hook.Verdict, 1)
	hooks.OnEnqueue(now, hooktest.Messages(hook.Message{Enqueued: now}), vs)
	fmt.Println("due after", vs[0].Deadline.Sub(now))

	due := hook.Message{Enqueued: now, Deadline: vs[0].Deadline, Why: hook.WhyDue}
	hooks.OnHead(due.Deadline, hooktest.Messages(due), vs)
	fmt.Println("then", vs[0].Reason)
	// Output:
	// due after 1s
	// then expired
}

// OnRequeue is called for new deadlines and states of requeued messages.
func ExampleHooks_onRequeue() {
	queue := hooktest.NewQueue(hooktest.Spec{Strategy: "patience", Settings: map[string]any{"message-ttl": int32(1000)}})
	hooks := patience{}.Attach(queue)
	const now = hook.Instant(5_000_000_000)
	m := hook.Message{Deadline: now.Add(10 * time.Millisecond), State: 2, Why: hook.WhyRequeue}
	vs := []hook.Verdict{{Deadline: m.Deadline, State: m.State}} // what is in force
	hooks.OnRequeue(now, hooktest.Messages(m), vs)
	fmt.Println(vs[0].Deadline.Sub(now), vs[0].State)
	// Output: 1s 3
}

// OnRestamp is called for messages already in the queue when its settings change. The queue is attached again first, so the callbacks use the
// new settings.
func ExampleHooks_onRestamp() {
	queue := hooktest.NewQueue(hooktest.Spec{Strategy: "patience", Settings: map[string]any{"message-ttl": int32(1000)}})
	const enqueued = hook.Instant(5_000_000_000)
	m := hook.Message{Enqueued: enqueued, Deadline: enqueued.AddMillis(1000), Why: hook.WhyChange}

	queue.Settings["message-ttl"] = int64(3000) // a policy now says so
	hooks := patience{}.Attach(queue)
	vs := make([]hook.Verdict, 1) // without a deadline
	hooks.OnRestamp(enqueued.AddMillis(700), hooktest.Messages(m), vs)
	fmt.Println(vs[0].Deadline.Sub(enqueued))
	// Output: 3s
}
