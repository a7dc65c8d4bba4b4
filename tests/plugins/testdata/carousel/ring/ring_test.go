package ring

import (
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestConformance(t *testing.T) {
	hooktest.Run(t, Factories[0], hooktest.Case{
		Name: "repeated", Exchange: hooktest.ExchangeSpec{Type: "x-carousel", Args: hook.Args{{Name: "x-repeat", Value: int32(3)}}},
	})
}

func TestTurns(t *testing.T) {
	x := hooktest.NewExchange(t, hooktest.New(t, Factories[0], nil), hooktest.ExchangeSpec{
		Type: "x-carousel", Args: hook.Args{{Name: "x-repeat", Value: int32(2)}},
	})
	for _, queue := range []string{"c", "a", "b", "a"} {
		if err := x.Bind(queue, queue); err != nil {
			t.Fatal(err)
		}
	}
	var turns []string
	for range 7 {
		turns = append(turns, x.Queues(t, "", hooktest.Content{}))
	}
	if got, want := strings.Join(turns, " "), "a a b b c c a"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
