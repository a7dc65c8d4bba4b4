package vhost

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// showEntered prints the queues of a message.
func showEntered(e *telemetry.Entered) string {
	if e == nil {
		return "none"
	}
	return fmt.Sprint(e.Names, e.More)
}

// Nothing said to which queues a dead letter went: the exchange and the key do, but only with the bindings of that time.
func TestDeadLettersNameTheirQueues(t *testing.T) {
	many := "[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] 4"
	for _, tt := range []struct {
		name, exchange, key string
		reason              hook.Reason
		want                string
	}{
		{"one queue", "", "0", hook.ReasonExpired, "[0] 0"},
		{"many queues", "amq.fanout", "", hook.ReasonExpired, many},
		{"a queue where it died before", "amq.direct", "circle", hook.ReasonExpired, "[1] 0"},
		{"redriven there", "amq.direct", "circle", hook.ReasonRedriven, "[from 1] 0"},
		{"no queue", "amq.direct", "none", hook.ReasonExpired, "none"},
		{"no exchange", "none", "", hook.ReasonExpired, "none"},
		{"an exchange that holds it", "held", "", hook.ReasonExpired, "none"},
		{"that exchange, and a queue", "both", "", hook.ReasonExpired, "[2] 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, _ := newHoldingVHost(t, &holder{}, nil)
				from := declare(t, v, "from")
				for i := range 20 {
					declare(t, v, strconv.Itoa(i))
					bind(t, v, "amq.fanout", strconv.Itoa(i), "")
				}
				bind(t, v, "amq.direct", "from", "circle")
				bind(t, v, "amq.direct", "1", "circle")
				exchangeOf(t, v, "held", "x-held", "x-inner", "fanout", "x-wait", int32(1000))
				exchangeOf(t, v, "both", "fanout")
				bind(t, v, "both", "2", "")
				bindExchange(t, v, "both", "held", "")
				m := withProps(text("m"), amqp.Properties{Headers: args("n", int32(1))}, amqp.PropHeaders)
				ds := make([]queue.DeadLetter, 3)
				for i := range ds {
					ds[i] = queue.DeadLetter{Key: []byte("k"), Props: m.Props, Body: []byte("m"), Reason: tt.reason, Target: &hook.Target{Exchange: tt.exchange, Key: tt.key, HasKey: true}}
				}
				v.QueueHost().DeadLetter(from.Config(), v.clock(), ds, queue.Tracking{})
				for i := range ds {
					if got := showEntered(ds[i].Entered); got != tt.want || ds[i].Entered != ds[0].Entered {
						t.Errorf("message %d: got %s, want %s, one for all", i, got, tt.want)
					}
				}
			})
		})
	}
}

// entered returns which queues the events of a kind name.
func entered(r *telemetry.Recorder, kind telemetry.Kind) (all []string) {
	es := make([]telemetry.Event, 100)
	for _, e := range es[:r.Events().Read(0, es)] {
		if e.Kind == kind {
			all = append(all, e.Queue+" "+showEntered(e.Entered))
		}
	}
	return all
}

func TestEventsNameQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newHoldingVHost(t, &holder{}, nil)
		v.host.telemetry = telemetry.New(telemetry.Options{Clock: v.clock, Events: 100})
		declare(t, v, "a", "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead")
		q, _ := v.Queue("a", 0)
		declare(t, v, "dead")
		publish(q, text("m"))
		leave(t, q, queue.Reject)
		synctest.Wait()
		redrive(t, v, RedriveRequest{From: "dead", To: ToQueue, Queue: "a"})
		exchangeOf(t, v, "later", "x-held", "x-inner", "fanout")
		bind(t, v, "later", "dead", "")
		sent{exchange: "later", body: "b", props: headersOf("wait", int32(100))}.send(t, v)
		time.Sleep(time.Second)
		for kind, want := range map[telemetry.Kind]string{
			telemetry.MessageDeadLettered: "[a [dead] 0]", telemetry.MessageRedriven: "[dead [a] 0]", telemetry.MessageReleased: "[later [dead] 0]",
		} {
			if got := fmt.Sprint(entered(v.host.telemetry, kind)); got != want {
				t.Errorf("%v: got %s, want %s", kind, got, want)
			}
		}
	})
}
