package hook_test

import (
	"fmt"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// fresh drops messages that are too old when they are published. Exchanges of any type enable it with the argument x-max-age, in seconds.
type fresh struct{ hook.NoHooks }

// ExchangeArguments implements [hook.ExchangeFilterer].
func (fresh) ExchangeArguments() []hook.ExchangeArgument {
	return []hook.ExchangeArgument{{Name: "x-max-age", Compared: true, Check: func(_ *hook.Exchange, v any) error {
		if n, ok := hook.Int(v); !ok || n < 1 {
			return fmt.Errorf("invalid arg 'x-max-age': expected a number of seconds from 1, got %v", v)
		}
		return nil
	}}}
}

// Filter implements [hook.ExchangeFilterer].
func (fresh) Filter(x *hook.Exchange) hook.Filter {
	v, ok := x.Args.Lookup("x-max-age")
	if !ok {
		return nil // this exchange costs nothing
	}
	seconds, _ := hook.Int(v)
	return func(m *hook.Publishing) bool {
		published, ok := m.HeaderInt("published-at") // milliseconds, or a string of digits
		return !ok || published < 0 || hook.Instant(0).AddMillis(published).AddMillis(seconds*1000) >= m.Now
	}
}

// A filter decides about messages before an exchange of any type routes them.
func ExampleExchangeFilterer() {
	x, err := hooktest.Declare(fresh{}, hooktest.ExchangeSpec{Type: "topic", Args: hook.Args{{Name: "x-max-age", Value: int64(60)}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	const now = hook.Instant(1_000_000_000_000)
	for _, published := range []any{int64(999_000), int64(900_000), "yesterday", nil} {
		m := hooktest.Publish(now, "k", hooktest.Content{Headers: map[string]any{"published-at": published}})
		fmt.Println(published, x.Passes(m))
	}
	// Output:
	// 999000 true
	// 900000 false
	// yesterday true
	// <nil> true
}
