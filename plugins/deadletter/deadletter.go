// Package deadletter republishes messages that a queue drops to its dead-letter exchange.
package deadletter

import (
	"fmt"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.deadletter; it has no keys.
type Config struct{}

// Factory makes the plugin.
var Factory = hook.NewFactory("deadletter", Config{}, func(Config) (hook.Plugin, error) { return plugin{}, nil })

type plugin struct{}

const (
	exchangeArgument = "x-dead-letter-exchange"

	// longestName is the maximum length of a name or routing key, in bytes [AMQP 4.2.5.3].
	longestName = 255

	atMostOnceName, atLeastOnceName = "at-most-once", "at-least-once"
)

// Arguments implements [hook.Plugin].
func (plugin) Arguments() []hook.Argument {
	return []hook.Argument{
		{
			Name: exchangeArgument, Check: checkExchange, Order: 30, NamesExchange: true,
			Policy: key(hook.PolicyString(longestName, "dead letter exchange name")),
		},
		{
			Name: "x-dead-letter-routing-key", Check: checkKey, Order: 40,
			Policy: key(hook.PolicyString(longestName, "dead letter routing key")),
		},
		{
			Name: "x-dead-letter-strategy", Check: checkStrategy, Order: 50,
			Policy: key(hook.PolicyOneOf("dead letter strategy", atMostOnceName, atLeastOnceName)),
		},
	}
}

// key returns a policy key over which the argument takes precedence, and that operator policies cannot have.
func key(check func(any) error) *hook.PolicyKey {
	return &hook.PolicyKey{Check: check, Argument: hook.TakeWeaker}
}

// checkExchange accepts any name, because the exchange may be declared later, or deleted and declared again.
func checkExchange(v any, _ hook.Args) error {
	if _, ok := v.(string); !ok {
		return &hook.ArgTypeError{Type: hook.TypeName(v)}
	}
	return checkLength(v)
}

func checkKey(v any, all hook.Args) error {
	if err := hook.CheckString(v); err != nil {
		return err
	}
	if _, ok := all.Lookup(exchangeArgument); !ok {
		return &hook.ArgError{Term: "routing_key_but_no_dlx_defined"}
	}
	return checkLength(v)
}

func checkLength(v any) error {
	if s, _ := v.(string); len(s) > longestName {
		return &hook.ArgError{Term: fmt.Sprintf(`"expected at most %d bytes, got %d"`, longestName, len(s))}
	}
	return nil
}

func checkStrategy(v any, _ hook.Args) error {
	return hook.CheckOneOf(v, "invalid_dlx_strategy", atMostOnceName, atLeastOnceName)
}

// Attach implements [hook.Plugin]. It returns no hooks for a queue without a dead-letter exchange.
func (plugin) Attach(q hook.Queue) hook.Hooks {
	exchange, ok := hook.StringSetting(q, "dead-letter-exchange")
	if !ok {
		return hook.Hooks{Shared: true}
	}
	t := &hook.Target{Exchange: exchange}
	t.Key, t.HasKey = hook.StringSetting(q, "dead-letter-routing-key")
	t.AtLeastOnce = atLeastOnce(q)
	route := func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			if v := &vs[i]; v.Action == hook.Drop && !v.Final && v.Reason != hook.ReasonDuplicate {
				v.Action, v.Target = hook.Route, t
			}
		}
	}
	return hook.Hooks{OnEnqueue: route, OnHead: route, DeadLetters: t, Shared: true}
}

// atLeastOnce reports whether a queue can dead-letter at least once. As in RabbitMQ it must
// refuse messages instead of dropping them. Unlike there it may be a classic queue.
func atLeastOnce(q hook.Queue) bool {
	strategy, _ := hook.StringSetting(q, "dead-letter-strategy")
	overflow, _ := hook.StringSetting(q, "overflow")
	return strategy == atLeastOnceName && overflow == "reject-publish"
}
