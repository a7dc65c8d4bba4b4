package hook_test

import (
	"fmt"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// batchSize limits what a queue may hold to whole batches.
type batchSize struct{}

// Arguments implements [hook.Plugin]: x-batch-size in declarations, and batch-size in
// policies and operator policies. The lowest of them applies.
func (batchSize) Arguments() []hook.Argument {
	return []hook.Argument{{
		Name:  "x-batch-size",
		Check: func(v any, _ hook.Args) error { return hook.CheckInt(v, 1, 1000) },
		Policy: &hook.PolicyKey{
			Check:    hook.PolicyInt(1, 1000, "batch size, expected 1 to 1000 messages"),
			Operator: true, Merge: hook.TakeLower, Argument: hook.TakeLower,
		},
	}}
}

func (batchSize) Attach(q hook.Queue) hook.Hooks {
	size := hook.IntSetting(q, "batch-size") // without "x-", wherever it was set
	if !size.Set() {
		return hook.Hooks{Shared: true}
	}
	return hook.Hooks{Shared: true, Length: hook.LimitOf(10 * size.N())}
}

// An argument of queues is checked when a client declares a queue. With a PolicyKey it
// is a key of policies as well, whose values come from JSON.
func ExampleArgument() {
	a := batchSize{}.Arguments()[0]
	fmt.Println(a.Check(int32(50), nil), a.Check(int32(0), nil), a.Check("many", nil))
	fmt.Println(a.Policy.Check(int64(50)), a.Policy.Check(2.5))

	hooks := batchSize{}.Attach(hooktest.NewQueue(hooktest.Spec{Settings: map[string]any{"batch-size": int64(50)}}))
	fmt.Println("at most", hooks.Length.N(), "messages")
	// Output:
	// <nil> {value_zero,0} "expected integer, got longstr"
	// <nil> not a valid batch size, expected 1 to 1000 messages
	// at most 500 messages
}
