package hooktest

import (
	"errors"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// shift is an argument for hours, and a key of policies.
func shift(change func(a *hook.Argument, k *hook.PolicyKey)) []hook.Argument {
	a := hook.Argument{Name: "x-shift", Check: func(v any, _ hook.Args) error { return hook.CheckInt(v, 0, 23) }}
	k := &hook.PolicyKey{Check: func(v any) error {
		if n, ok := hook.Int(v); !ok || n < 0 || n > 23 {
			return &hook.InvalidError{What: "shift, expected 0 to 23 hours"}
		}
		return nil
	}}
	a.Policy = k
	change(&a, k)
	return []hook.Argument{a}
}

func TestBadPolicyKeys(t *testing.T) {
	higher := hook.TakeHigher
	for _, tc := range []struct {
		name   string
		change func(a *hook.Argument, k *hook.PolicyKey)
		attach func(q hook.Queue) hook.Hooks
		want   string
	}{
		{name: "is good", change: func(*hook.Argument, *hook.PolicyKey) {}},
		{
			name: "is good and merged",
			change: func(_ *hook.Argument, k *hook.PolicyKey) {
				k.Operator, k.Merge, k.QuorumArgument = true, hook.TakeLower, &higher
			},
		},
		{
			name: "needs another argument, as the argument does",
			change: func(a *hook.Argument, k *hook.PolicyKey) {
				check := a.Check
				a.Check = func(v any, all hook.Args) error {
					if _, ok := all.Lookup("x-other"); !ok {
						return &hook.ArgError{Term: "alone"}
					}
					return check(v, all)
				}
			},
			want: "the argument x-shift refuses it", // the plugin has no such argument
		},
		{
			name: "assumes a type",
			change: func(_ *hook.Argument, k *hook.PolicyKey) {
				k.Check = func(v any) error { _ = v.(int64); return nil }
			},
			want: "policy key shift = <nil> <nil>: the check panics",
		},
		{
			name: "changes a value",
			change: func(_ *hook.Argument, k *hook.PolicyKey) {
				k.Check = func(v any) error {
					if list, ok := v.([]any); ok && len(list) > 0 {
						list[0] = "mine"
					}
					return errors.New("no")
				}
			},
			want: "the check changes the value",
		},
		{
			name:   "accepts less than the argument",
			change: func(_ *hook.Argument, k *hook.PolicyKey) { k.Check = func(any) error { return errors.New("no") } },
			want:   "policy key shift = int64 0: the argument x-shift accepts the value, policies refuse it",
		},
		{
			name:   "accepts more than the argument",
			change: func(_ *hook.Argument, k *hook.PolicyKey) { k.Check = nil },
			want:   "policy key shift = bool true: policies accept the value, the argument x-shift refuses it",
		},
		{
			name:   "compares what may be no integer",
			change: func(_ *hook.Argument, k *hook.PolicyKey) { k.Check, k.Argument = nil, hook.TakeLower },
			want:   "but its check accepts <nil>",
		},
		{
			name:   "compares what may be no integer, for quorum queues",
			change: func(_ *hook.Argument, k *hook.PolicyKey) { k.Check, k.QuorumArgument = nil, &higher },
			want:   "but its check accepts <nil>",
		},
		{
			name:   "merges what there is not",
			change: func(_ *hook.Argument, k *hook.PolicyKey) { k.Merge = hook.TakeLower },
			want:   "operator policies cannot have the key",
		},
		{
			name:   "makes up a way to merge",
			change: func(_ *hook.Argument, k *hook.PolicyKey) { k.Argument = 99 },
			want:   "there is no Merge 99",
		},
		{
			name:   "makes up a queue type",
			change: func(_ *hook.Argument, k *hook.PolicyKey) { k.QueueTypes = []string{"lazy"} },
			want:   `there is no queue type "lazy"`,
		},
		{
			name:   "is for no queue",
			change: func(_ *hook.Argument, k *hook.PolicyKey) { k.QueueTypes = []string{} },
			want:   "QueueTypes is empty",
		},
		{
			name: "refuses with a nil pointer",
			change: func(_ *hook.Argument, k *hook.PolicyKey) {
				k.Check = func(any) error { return (*hook.InvalidError)(nil) }
			},
			want: "policy key shift = <nil> <nil>: the check panics",
		},
		{
			name:   "attaches only what is accepted today",
			change: func(*hook.Argument, *hook.PolicyKey) {},
			attach: func(q hook.Queue) hook.Hooks {
				if v, ok := q.Setting("shift"); ok {
					n, _ := hook.Int(v)
					_ = [24]bool{}[n]
				}
				return hook.Hooks{}
			},
			want: "policy key shift = int64 -1: Attach panics",
		},
		{
			name:   "fails to attach",
			change: func(*hook.Argument, *hook.PolicyKey) {},
			attach: func(q hook.Queue) hook.Hooks {
				if v, ok := q.Setting("shift"); ok {
					_ = v.(int32)
				}
				return hook.Hooks{}
			},
			want: "policy key shift = int64 0: Attach panics",
		},
		{
			name:   "knows one integer type",
			change: func(*hook.Argument, *hook.PolicyKey) {},
			attach: func(q hook.Queue) hook.Hooks {
				v, _ := q.Setting("shift")
				n, _ := v.(int32)
				return hook.Hooks{Length: hook.LimitOf(int64(n) - 1)}
			},
			want: "differs with shift = 1 from a policy and from an argument",
		},
	} {
		p := fake{arguments: shift(tc.change), attach: tc.attach}
		got := record(func(r reporter) { checkPolicyKeys(r, p, map[string]any{"shift": int32(7)}) })
		if !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("a key that %s: got %.400q, want %q", tc.name, got, tc.want)
		}
	}
}
