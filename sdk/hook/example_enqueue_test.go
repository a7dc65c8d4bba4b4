package hook_test

import (
	"fmt"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// sizeLimit keeps large messages out of queues, and low priorities waiting for at
// most a minute.
type sizeLimit struct{ most int }

func (sizeLimit) Arguments() []hook.Argument { return nil }

func (p sizeLimit) Attach(hook.Queue) hook.Hooks {
	return hook.Hooks{Shared: true, OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			m, v := &ms[i], &vs[i]
			switch {
			case m.Size > p.most:
				*v = hook.Verdict{Action: hook.Refuse} // the publisher gets basic.nack
			case m.Priority == 0:
				// A plugin that is not an expiry strategy can only make a deadline earlier.
				if t := m.Enqueued.AddMillis(60_000); v.Deadline == 0 || t < v.Deadline {
					v.Deadline = t
				}
			}
		}
	}}
}

// OnEnqueue is called for messages that are about to be enqueued.
func ExampleHooks_onEnqueue() {
	hooks := sizeLimit{most: 1000}.Attach(hooktest.NewQueue(hooktest.Spec{}))
	const now = hook.Instant(1_000_000_000)
	ms := hooktest.Messages(
		hook.Message{Enqueued: now, Size: 2000},
		hook.Message{Enqueued: now, Size: 10},
		hook.Message{Enqueued: now, Size: 10, Priority: 5},
	)
	vs := make([]hook.Verdict, len(ms))
	hooks.OnEnqueue(now, ms, vs)
	for _, v := range vs {
		fmt.Println(v.Action == hook.Refuse, v.Deadline.Sub(0))
	}
	// Output:
	// true 0s
	// false 1m1s
	// false 0s
}
