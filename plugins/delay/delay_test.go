package delay

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	messages := []hooktest.Content{
		{Headers: map[string]any{delayHeader: int32(300)}},
		{Headers: map[string]any{delayHeader: "300", idHeader: "a"}},
		{Headers: map[string]any{idHeader: "a", cancelHeader: true}},
		{Headers: map[string]any{idHeader: "a", everyHeader: int32(5000), countHeader: int32(5), missedHeader: "skip"}},
		{Headers: map[string]any{idHeader: "a", cronHeader: "0 9 * * 1-5", zoneHeader: "Europe/Berlin", untilHeader: int64(4e12)}},
	}
	exchange := func(name string, args ...hook.Arg) hooktest.Case {
		args = append(hook.Args{{Name: innerArgument, Value: "topic"}}, args...)
		return hooktest.Case{Name: name, Exchange: hooktest.ExchangeSpec{Type: exchangeType, Args: args, Contents: messages}}
	}
	hooktest.Run(t, Factory,
		hooktest.Case{Name: "queue", Queue: hooktest.Spec{Settings: map[string]any{keyDelay: int32(1000)}}},
		exchange("exchange"),
		exchange("exchange with limits", hook.Arg{Name: delayArgument, Value: int32(500)}, hook.Arg{Name: maxDelayArgument, Value: int64(1000)}, hook.Arg{Name: maxHeldArgument, Value: int32(10)}))
}

func TestConfig(t *testing.T) {
	const limits = " is out of range; accepted are whole milliseconds from 1ms to 87600h0m0s"
	for _, tc := range []struct {
		section hooktest.Section
		want    string
	}{
		{hooktest.Section{"max": "0s"}, "max: 0s" + limits},
		{hooktest.Section{"max": "-1h"}, "max: -1h0m0s" + limits},
		{hooktest.Section{"max": "1500us"}, "max: 1.5ms" + limits},
		{hooktest.Section{"max": "87600h0m0.001s"}, "max: 87600h0m0.001s" + limits},
		{hooktest.Section{"max-held": -1}, "max-held: -1 is out of range; accepted are 0 (no limit) and more"},
		{hooktest.Section{"max": "1h", "max-held": 10, "headers": false}, ""},
		{hooktest.Section{"max": "87600h", "max-held": 0}, ""},
	} {
		got := ""
		if _, _, err := Factory.New(tc.section.Decode); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%v:\n got %q\nwant %q", tc.section, got, tc.want)
		}
	}
}
