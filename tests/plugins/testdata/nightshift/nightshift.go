// Package nightshift has an expiry strategy for consumers that sleep: messages expire by day only.
package nightshift

import (
	"errors"
	"fmt"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.nightshift.
type Config struct {
	From time.Duration `koanf:"from" doc:"When the night begins, as the time since midnight in UTC."`
	To   time.Duration `koanf:"to" doc:"When the night ends; the same as from = there is none."`
}

// Factory makes the plugin.
var Factory = hook.NewFactory("nightshift", Config{From: 22 * time.Hour, To: 6 * time.Hour}, build)

// strategy is the value of x-expiry-strategy.
const strategy = "nightshift"

type plugin struct{ night Config }

var _ hook.Strategist = plugin{}

const day = 24 * time.Hour

func build(c Config) (hook.Plugin, error) {
	return plugin{c}, errors.Join(checkTime("from", c.From), checkTime("to", c.To))
}

func checkTime(key string, d time.Duration) error {
	if d < 0 || d >= day {
		return fmt.Errorf("%s: %s is out of range; accepted are 0s and more, and less than 24h", key, d)
	}
	return nil
}

// Arguments implements [hook.Plugin]: x-nightshift-ttl, in milliseconds, which policies can set as well.
func (plugin) Arguments() []hook.Argument {
	return []hook.Argument{{
		Name:  "x-nightshift-ttl",
		Check: func(v any, _ hook.Args) error { return hook.CheckInt(v, 1, hook.MaxMillis) },
		Policy: &hook.PolicyKey{
			Check:    hook.PolicyInt(1, hook.MaxMillis, "nightshift ttl, expected 1 to 315360000000 milliseconds"),
			Operator: true, Merge: hook.TakeLower, Argument: hook.TakeLower,
		},
	}}
}

// Strategies implements [hook.Strategist].
func (plugin) Strategies() []string { return []string{strategy} }

// DefaultStrategy implements [hook.Strategist].
func (plugin) DefaultStrategy() string { return "" }

// Attach implements [hook.Plugin].
func (p plugin) Attach(q hook.Queue) hook.Hooks {
	if q.Strategy() != strategy {
		return hook.Hooks{Shared: true}
	}
	s := shift{ttl: hook.IntSetting(q, "nightshift-ttl"), night: p.night}
	return hook.Hooks{OnEnqueue: s.stamp, OnRestamp: s.stamp, OnHead: expire, Strategy: true, Shared: true}
}

// shift is what a queue's messages get.
type shift struct {
	ttl   hook.Limit // milliseconds
	night Config
}

func (s shift) stamp(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		ttl := s.ttl.Min(ms[i].Expiration)
		if !ttl.Set() {
			continue
		}
		t := s.night.after(ms[i].Enqueued.AddMillis(ttl.N()))
		if v := &vs[i]; v.Deadline == 0 || t < v.Deadline {
			v.Deadline = t
		}
	}
}

// after returns t, or the end of the night in which t is.
func (c Config) after(t hook.Instant) hook.Instant {
	const nanos = int64(day)
	since := time.Duration(((int64(t)-int64(c.From))%nanos + nanos) % nanos) // the night began
	if length := (c.To - c.From + day) % day; since < length {
		return t.Add(length - since)
	}
	return t
}

func expire(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		if v := &vs[i]; v.Action == hook.Keep && ms[i].Deadline != 0 && now >= ms[i].Deadline {
			v.Action, v.Reason = hook.Drop, hook.ReasonExpired
		}
	}
}
