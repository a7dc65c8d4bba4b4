package metrics

import (
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// holder is a plugin that holds every message for five seconds.
type holder struct{ hook.NoHooks }

func (holder) Attach(hook.Queue) hook.Hooks {
	return hook.Hooks{OnEnqueue: func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			vs[i].Hold = now.AddMillis(5000)
		}
	}}
}

func TestHeldMessages(t *testing.T) {
	r := newRig(t, 10, chain.Named{Name: "holder", Plugin: holder{}})
	ch, done := r.dial("/")
	declare(t, ch, "q", nil)
	declare(t, ch, "empty", nil)
	publish(t, ch, "q", 3)
	next := float64(r.now.Load()+5e9) / 1e9
	c := r.collect()
	for series, n := range map[string]float64{
		`curfew_messages_held{held_by="queue"}`:                            3,
		`curfew_messages_held{held_by="exchange"}`:                         0,
		`curfew_messages_held_due{due_in="0s-1s"}`:                         0,
		`curfew_messages_held_due{due_in="1s-10s"}`:                        3,
		`curfew_messages_due{due_in="1h-inf"}`:                             0,
		"curfew_next_release_timestamp_seconds":                            next,
		`curfew_queue_messages_held{vhost="/",queue="q"}`:                  3,
		`curfew_queue_next_release_timestamp_seconds{vhost="/",queue="q"}`: next,
		`rabbitmq_queue_messages{vhost="/",queue="q"}`:                     3,
		`rabbitmq_queue_messages_ready{vhost="/",queue="q"}`:               0,
	} {
		want(t, c, series, n)
	}
	if _, ok := value(c, `curfew_queue_messages_held{vhost="/",queue="empty"}`); ok {
		t.Error("a queue that holds nothing has a series")
	}
	done()
}

// Released, cancelled and redriven messages have families of their own, so that alerts on lost messages do not fire.
func TestHeldMessagesAreNeitherExpiredNorDropped(t *testing.T) {
	r := newRig(t, 10)
	v := r.vhost("v")
	cfg := r.declare(v, "q").Config()
	to, now := &hook.Target{}, hook.Instant(r.now.Load())
	v.QueueHost().Removed(cfg, now, []telemetry.Removal{
		{Reason: hook.ReasonReleased, Outcome: telemetry.Ready, Held: now - 2e6},
		{Reason: hook.ReasonReleased, Outcome: telemetry.Ready},
		{Reason: hook.ReasonReleased, Outcome: telemetry.DeadLettered, Target: to, Held: now - 1e6},
		{Reason: hook.ReasonReleased, Outcome: telemetry.Unroutable, Target: to, Held: now},
		{Reason: hook.ReasonRedriven, Outcome: telemetry.DeadLettered, Target: &hook.Target{AtLeastOnce: true}},
		{Reason: hook.ReasonRedriven, Outcome: telemetry.NoExchange, Target: to},
		{Reason: hook.ReasonCancelled},
	})
	c := r.collect()
	lost := `curfew_messages_dropped_total{vhost="v",strategy="` + cfg.Strategy + `",reason=`
	for series, n := range map[string]float64{
		`curfew_messages_released_total{vhost="v",outcome="ready"}`:  2,
		`curfew_messages_released_total{vhost="v",outcome="routed"}`: 1,
		`curfew_schedules_cancelled_total{vhost="v"}`:                1,
		`curfew_redriven_total{vhost="v"}`:                           1,
		lost + `"released",outcome="unroutable"}`:                    1,
		lost + `"redriven",outcome="no_exchange"}`:                   1,
		`rabbitmq_global_messages_dead_lettered_confirmed_total{queue_type="rabbit_quorum_queue",dead_letter_strategy="at_least_once"}`: 0,
		`curfew_messages_expired_total{vhost="v",strategy="` + cfg.Strategy + `"}`:                                                      0,
	} {
		want(t, c, series, n)
	}
	for _, f := range c.Families {
		switch {
		case f.Name == "curfew_messages_dropped_total" && len(f.Points) != 2, f.Name == "curfew_messages_dead_lettered_total" && len(f.Points) != 0,
			f.Name == "curfew_expiry_lateness_seconds" && len(f.Points) != 0:
			t.Errorf("%s has %+v", f.Name, f.Points)
		case strings.HasPrefix(f.Name, "rabbitmq_global_messages_dead_lettered_"):
			for _, p := range f.Points {
				if p.Value != 0 {
					t.Errorf("%s has %+v", f.Name, p)
				}
			}
		}
	}
	late := c.Families[slices.IndexFunc(c.Families, func(f *Family) bool { return f.Name == "curfew_release_lateness_seconds" })]
	if len(late.Points) != 1 || late.Points[0].Distribution.Count != 3 || late.Points[0].Distribution.Sum != 0.003 {
		t.Errorf("lateness is %+v, want that of three messages, 3 ms", late.Points)
	}
}
