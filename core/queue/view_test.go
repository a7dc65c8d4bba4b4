package queue

import (
	"fmt"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// look describes what a callback finds in a message.
func look(m *hook.Message) string {
	var parts []string
	for p := range hook.Parts {
		if p != hook.PartHeaders {
			parts = append(parts, string(m.Part(p)))
		}
	}
	n, isInt := m.HeaderInt("n")
	half, isWhole := m.HeaderInt("half")
	digits, isDigits := m.HeaderInt("digits")
	text, isText := m.HeaderText("digits")
	return fmt.Sprintf("%q priority %d, %d %t, %d %t, %d %t, %s %t, headers %t, deaths %d",
		parts, m.Priority, n, isInt, half, isWhole, digits, isDigits, text, isText, len(m.Part(hook.PartHeaders)) > 0, m.Deaths())
}

// Hooks find the same in a message when it enters and when it leaves.
func TestHooksSeeTheWholeMessage(t *testing.T) {
	var seen []string
	see := func(_ hook.Instant, ms []hook.Message, _ []hook.Verdict) {
		for i := range ms {
			seen = append(seen, look(&ms[i]))
		}
	}
	h := ttlHooks(hook.ScanAnywhere, nil)
	stamp := h.OnEnqueue
	h.OnEnqueue = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) { see(now, ms, vs); stamp(now, ms, vs) }
	h.OnHead = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		see(now, ms, vs)
		for i := range vs {
			vs[i].Action, vs[i].Reason = hook.Drop, hook.ReasonExpired
		}
	}
	for _, levels := range []int{0, 2, 9} {
		seen = nil
		enterAndExpire(t, levels, h)
		want := []string{
			`["x" "key" "id" "corr" "type" "app" "user" "5" "1700000000" "body"] priority 7, 7 true, 0 false, 12 true, 12 true, headers true, deaths 0`,
			`["x" "key" "" "" "" "" "" "" "" ""] priority 0, 0 false, 0 false, 0 false,  false, headers false, deaths 0`,
		}
		want = append(want, want...)
		slices.Sort(want)
		slices.Sort(seen) // a priority queue's levels are asked about one by one
		if got, want := fmt.Sprint(seen), fmt.Sprint(want); got != want {
			t.Errorf("with %d priorities:\ngot  %s\nwant %s", levels, got, want)
		}
	}
}

// enterAndExpire has a rich message and a bare one enter a queue and expire there.
func enterAndExpire(t *testing.T, levels int, h hook.Hooks) {
	t.Helper()
	q, _ := passive(t, Config{Profile: &Profile{Levels: levels}}, h)
	p := amqp.Properties{
		Headers:   amqp.Table{{Key: "n", Value: uint8(7)}, {Key: "half", Value: 0.5}, {Key: "digits", Value: "12"}},
		MessageID: "id", CorrelationID: "corr", Timestamp: 1700000000, Type: "type", AppID: "app", UserID: "user", Expiration: "5", Priority: 7,
	}
	for _, f := range []amqp.Property{amqp.PropHeaders, amqp.PropMessageID, amqp.PropCorrelationID, amqp.PropTimestamp, amqp.PropType, amqp.PropAppID, amqp.PropUserID, amqp.PropExpiration, amqp.PropPriority} {
		p.Set(f)
	}
	m := Message{Routing: origin, Props: p.Append(nil), Body: []byte("body"), Expiration: hook.LimitOf(5), Priority: 7}
	bare := Message{Routing: origin, Props: noProps, Expiration: hook.LimitOf(5)}
	q.enqueue(second, batchOf(m, bare))
	q.tick(second.AddMillis(6))
}
