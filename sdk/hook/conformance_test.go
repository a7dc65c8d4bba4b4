package hook_test

import (
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// The examples themselves pass the conformance suite.
func TestExamplesConform(t *testing.T) {
	ttl := map[string]any{"message-ttl": int32(1000)}
	for _, tc := range []struct {
		name   string
		plugin hook.Plugin
		cases  []hooktest.Case
	}{
		{"size-limit", sizeLimit{most: 1000}, nil},
		{"audit", audit{exchange: "e"}, nil},
		{"patience", patience{}, []hooktest.Case{{Name: "ttl", Queue: hooktest.Spec{Settings: ttl}}}},
		{"sweeper", sweeper{after: time.Hour}, nil},
		{"share", share{most: 3}, nil},
		{"batch-size", batchSize{}, nil},
		{"tenants", tenants{}, []hooktest.Case{{Name: "header", Exchange: hooktest.ExchangeSpec{
			Keys:     []string{"acme", "globex"},
			Contents: []hooktest.Content{{Headers: map[string]any{"tenant": "acme"}}, {Headers: map[string]any{"tenant": "globex"}}},
		}}}},
		{"fresh", fresh{}, []hooktest.Case{{Name: "age", Exchange: hooktest.ExchangeSpec{
			Args:     hook.Args{{Name: "x-max-age", Value: int32(5)}},
			Contents: []hooktest.Content{{Headers: map[string]any{"published-at": int64(1_700_000_000_000)}}},
		}}}},
		{"by-name", firstOnly{}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hooktest.Run(t, hook.NewFactory(tc.name, struct{}{}, func(struct{}) (hook.Plugin, error) { return tc.plugin, nil }), tc.cases...)
		})
	}
	t.Run("lenient", func(t *testing.T) {
		hooktest.Run(t, Factory, hooktest.Case{Name: "ttl", Queue: hooktest.Spec{Settings: ttl}})
	})
}

// firstOnly offers the Router byName.
type firstOnly struct{ hook.NoHooks }

func (firstOnly) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{
		Name: "x-first", Description: "Routes to the first destination by name.",
		New: func(*hook.Exchange) hook.Router { return new(byName) },
	}}
}
