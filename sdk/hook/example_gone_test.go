package hook_test

import (
	"fmt"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// share lets each tenant have a number of messages in a queue.
type share struct{ most int }

func (share) Arguments() []hook.Argument { return nil }

func (p share) Attach(hook.Queue) hook.Hooks {
	queued := map[string]int{} // of this queue; empty again when its settings change
	tenant := func(m *hook.Message) string {
		name, _ := m.HeaderText("tenant")
		return string(name)
	}
	return hook.Hooks{
		OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				name := tenant(&ms[i])
				switch {
				case vs[i].Action != hook.Keep: // an earlier plugin keeps it out
				case queued[name] >= p.most:
					vs[i] = hook.Verdict{Action: hook.Refuse}
				default:
					queued[name]++
					vs[i].Watch = true // and tell OnGone when it leaves
				}
			}
		},
		OnGone: func(ms []hook.Message) {
			if ms == nil { // the queue was purged
				clear(queued)
			}
			for i := range ms {
				if name := tenant(&ms[i]); queued[name] > 0 {
					queued[name]--
				}
			}
		},
	}
}

// OnGone is called for messages that leave the queue, for any reason, if a plugin has set Watch in OnEnqueue.
func ExampleHooks_onGone() {
	hooks := share{most: 1}.Attach(hooktest.NewQueue(hooktest.Spec{}))
	acme := func() []hook.Message {
		ms := make([]hook.Message, 1)
		hooktest.Bind(ms, hooktest.Content{Headers: map[string]any{"tenant": "acme"}})
		return ms
	}
	publish := func() {
		vs := make([]hook.Verdict, 1)
		hooks.OnEnqueue(1, acme(), vs)
		fmt.Println("refused:", vs[0].Action == hook.Refuse)
	}
	publish()
	publish()
	hooks.OnGone(acme()) // acknowledged
	publish()
	// Output:
	// refused: false
	// refused: true
	// refused: false
}
