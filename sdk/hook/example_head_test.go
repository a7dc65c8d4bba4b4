package hook_test

import (
	"fmt"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// audit publishes messages that expire in queues to an exchange, instead of their dead-letter exchange.
type audit struct{ exchange string }

func (audit) Arguments() []hook.Argument { return nil }

func (p audit) Attach(hook.Queue) hook.Hooks {
	target := &hook.Target{Exchange: p.exchange} // once, for all messages
	return hook.Hooks{Shared: true, OnHead: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			if v := &vs[i]; v.Action == hook.Drop && v.Reason == hook.ReasonExpired {
				v.Action, v.Target = hook.Route, target
			}
		}
	}}
}

// OnHead is called for messages that are due, at the head of the queue, or being removed. Earlier plugins have already decided: here, the
// queue's expiry strategy has dropped the first message, and a consumer has rejected the second.
func ExampleHooks_onHead() {
	hooks := audit{exchange: "expired"}.Attach(hooktest.NewQueue(hooktest.Spec{}))
	ms := hooktest.Messages(hook.Message{Why: hook.WhyDue}, hook.Message{Why: hook.WhyLeaving})
	vs := []hook.Verdict{
		{Action: hook.Drop, Reason: hook.ReasonExpired},
		{Action: hook.Drop, Reason: hook.ReasonRejected},
	}
	hooks.OnHead(1, ms, vs)
	for _, v := range vs {
		fmt.Println(v.Reason, v.Action == hook.Route)
	}
	// Output:
	// expired true
	// rejected false
}
