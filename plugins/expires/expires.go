// Package expires deletes unused queues. The setting expires is a queue's lease,
// which each use renews.
package expires

import (
	"math"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.expires.
type Config struct {
	// OnlyIfEmpty means that a queue with messages does not expire.
	OnlyIfEmpty bool `koanf:"only-if-empty" doc:"Keep queues as long as they have messages."`
	// DeadLetter dead-letters the messages of an expiring queue, with the reason
	// queue_expired.
	DeadLetter bool `koanf:"dead-letter" doc:"Dead-letter the messages of expired queues."`
}

// Factory makes the plugin.
var Factory = hook.NewFactory("expires", Config{}, func(c Config) (hook.Plugin, error) { return plugin{c}, nil })

// plugin implements [hook.Plugin].
type plugin struct{ config Config }

func (plugin) Arguments() []hook.Argument {
	return []hook.Argument{{Name: "x-expires", Check: checkExpires, Order: 10, Policy: &hook.PolicyKey{
		Check:    hook.PolicyInt(1, math.MaxInt64, "queue expiry"), // without the arguments' limit, as in RabbitMQ
		Operator: true, Merge: hook.TakeLower, Argument: hook.TakeLower,
	}}}
}

func checkExpires(v any, _ hook.Args) error { return hook.CheckInt(v, 1, hook.MaxMillis) }

// callback is the type of [hook.Hooks.OnIdle].
type callback = func(now hook.Instant, idle time.Duration, v *hook.Verdict)

func (p plugin) Attach(q hook.Queue) hook.Hooks {
	period := hook.IntSetting(q, "expires")
	switch {
	case !period.Set():
		return hook.Hooks{Shared: true}
	case p.config.OnlyIfEmpty:
		return hook.Hooks{OnIdle: ifEmpty(q, period.N(), p.config.DeadLetter)}
	}
	return hook.Hooks{OnIdle: lease(period.N(), p.config.DeadLetter), Shared: true}
}

// lease returns the callback for a queue with a lease of period milliseconds. The closure captures nothing else, because there may be many
// such queues.
func lease(period int64, deadLetter bool) callback {
	return func(now hook.Instant, idle time.Duration, v *hook.Verdict) {
		if t := end(now, idle, period); now < t {
			askAt(v, t)
			return
		}
		v.Action, v.Reason, v.DeadLetter = hook.Drop, hook.ReasonQueueExpired, deadLetter
	}
}

// ifEmpty is lease for OnlyIfEmpty: a queue with messages, whether ready, held or unacknowledged, gets another period.
func ifEmpty(q hook.Queue, period int64, deadLetter bool) callback {
	lease := lease(period, deadLetter)
	return func(now hook.Instant, idle time.Duration, v *hook.Verdict) {
		if now >= end(now, idle, period) && q.Ready()+q.Unacked()+q.Held() > 0 {
			askAt(v, now.AddMillis(period))
			return
		}
		lease(now, idle, v)
	}
}

// end returns the end of the lease of a queue that has been unused for idle.
func end(now hook.Instant, idle time.Duration, period int64) hook.Instant {
	return now.Add(-idle).AddMillis(period)
}

// askAt makes the broker ask again at t, or earlier if another plugin has requested that.
func askAt(v *hook.Verdict, t hook.Instant) {
	if v.Deadline == 0 || t < v.Deadline {
		v.Deadline = t
	}
}
