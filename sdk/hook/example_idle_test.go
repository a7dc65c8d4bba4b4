package hook_test

import (
	"fmt"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// sweeper deletes empty queues that have not been used for a while.
type sweeper struct{ after time.Duration }

func (sweeper) Arguments() []hook.Argument { return nil }

func (p sweeper) Attach(q hook.Queue) hook.Hooks {
	// Not Shared: the callback reads live counts of this queue.
	return hook.Hooks{OnIdle: func(now hook.Instant, idle time.Duration, v *hook.Verdict) {
		switch {
		case v.Action == hook.Drop: // another plugin deletes it
		case idle < p.after:
			v.Deadline = now.Add(p.after - idle) // ask again then
		case q.Ready()+q.Unacked() == 0:
			*v = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonQueueExpired}
		default:
			v.Deadline = now.Add(p.after)
		}
	}}
}

// OnIdle is called for a queue without consumers, when it becomes unused and at the Deadline of its verdict.
func ExampleHooks_onIdle() {
	queue := hooktest.NewQueue(hooktest.Spec{Ready: 1})
	hooks := sweeper{after: time.Hour}.Attach(queue)
	const now = hook.Instant(1_000_000_000)
	ask := func(idle time.Duration) {
		var v hook.Verdict
		hooks.OnIdle(now, idle, &v)
		if v.Action == hook.Drop {
			fmt.Println("deleted:", v.Reason)
			return
		}
		fmt.Println("asked again after", v.Deadline.Sub(now))
	}
	ask(20 * time.Minute)
	ask(time.Hour)
	queue.Spec.Ready = 0
	ask(time.Hour)
	// Output:
	// asked again after 40m0s
	// asked again after 1h0m0s
	// deleted: queue_expired
}
