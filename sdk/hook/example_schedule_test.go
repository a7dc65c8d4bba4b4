package hook_test

import (
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// embargo offers the exchange type x-embargo: messages are routed as by a topic
// exchange, but not before the instant in their header "embargo", in milliseconds since
// 1970. The header "story" identifies a message, so that a later one takes its place.
type embargo struct{ hook.NoHooks }

// ExchangeTypes implements [hook.ExchangeTyper].
func (embargo) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{
		Name:        "x-embargo",
		Description: "Routes as topic does, when a message's embargo is over.",
		Schedule: func(*hook.Exchange) hook.Schedule {
			return hook.Schedule{Inner: "topic", Plan: plan, MaxHeld: hook.LimitOf(100_000)}
		},
	}}
}

func plan(m *hook.Publishing, p *hook.Plan) error {
	until, ok := m.HeaderInt("embargo")
	if !ok {
		if _, has := m.Header("embargo"); has {
			return errors.New("invalid header 'embargo': expected milliseconds since 1970")
		}
		return nil // the zero Plan: it is routed at once
	}
	p.Hold = hook.Instant(0).AddMillis(until) // an instant that has passed holds nothing
	p.ID, _ = m.HeaderText("story")
	return nil
}

// A type with a Schedule decides which messages wait. The broker stores them, and routes them by the inner type when their time comes.
func ExampleSchedule() {
	s, err := hooktest.NewSchedule(embargo{}, hooktest.ExchangeSpec{Type: "x-embargo"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, headers := range []map[string]any{
		{"embargo": int64(1000), "story": "a"},
		{"embargo": "tomorrow"},
		{},
	} {
		var p hook.Plan
		err := s.Plan(hooktest.Publish(1, "news.local", hooktest.Content{Headers: headers}), &p)
		fmt.Println(p.Hold.Time().Format("15:04:05"), string(p.ID), err)
	}
	// Output:
	// 00:00:01 a <nil>
	// 00:00:00  invalid header 'embargo': expected milliseconds since 1970
	// 00:00:00  <nil>
}
