// Package retry holds messages that come back to their queue before they are delivered again, each time for longer.
package retry

import (
	"math"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.retry; it has no keys.
type Config struct{}

// Factory makes the plugin.
var Factory = hook.NewFactory("retry", Config{}, func(Config) (hook.Plugin, error) { return plugin{}, nil })

type plugin struct{}

// Attach implements [hook.Plugin]. It has no hooks for a queue without retries.
func (plugin) Attach(q hook.Queue) hook.Hooks {
	hs := hook.Hooks{Shared: true}
	if b, ok := backoffOf(q); ok {
		hs.OnReturn = b.hold
	}
	return hs
}

// backoff describes how long the messages of a queue wait.
type backoff struct {
	failed, nacked bool    // messages that came back in these ways wait
	min, max       int64   // milliseconds; max may be lower than min
	multiplier     float64 // 0 = the wait grows by min each time
}

// backoffOf reads a queue's settings; ok is false if its messages do not wait. Arguments and policies are checked separately,
// so their combination may violate the checks.
func backoffOf(q hook.Queue) (b backoff, ok bool) {
	switch kind, _ := hook.StringSetting(q, keyType); kind {
	case retryAll:
		b.failed, b.nacked = true, true
	case retryFailed:
		b.failed = true
	case retryReturned:
		b.nacked = true
	default:
		return b, false
	}
	least, most := hook.IntSetting(q, keyMin), hook.IntSetting(q, keyMax)
	if !least.Set() || least.N() == 0 {
		return b, false
	}
	b.min = least.N()
	if v, ok := q.Setting(keyMultiplier); ok {
		b.multiplier, _ = multiplier(v)
	}
	b.max = b.min // RabbitMQ's default
	if b.multiplier != 0 {
		b.max = hook.MaxMillis
	}
	if most.Set() {
		b.max = most.N()
	}
	return b, true
}

// hold is the callback.
func (b backoff) hold(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		if m := &ms[i]; m.Return == hook.ReturnFailed && b.failed || m.Return == hook.ReturnNacked && b.nacked {
			vs[i].Hold = max(vs[i].Hold, now.AddMillis(b.wait(m.Returns)))
		}
	}
}

// wait returns how many milliseconds a message waits that has come back n times.
func (b backoff) wait(n uint32) int64 {
	n = max(n, 1)
	if b.multiplier == 0 {
		if b.min > b.max/int64(n) { // avoids an overflow
			return b.max
		}
		return b.min * int64(n)
	}
	const rounding = 1e-12 // of the powers: 1.1 squared is slightly more than 1.21
	ms := math.Ceil(float64(b.min) * math.Pow(b.multiplier, float64(n-1)) * (1 - rounding))
	if ms >= float64(b.max) { // true for infinity, too
		return b.max
	}
	return int64(ms)
}
