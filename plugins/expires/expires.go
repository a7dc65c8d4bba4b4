// Package expires deletes queues that nobody has used for as long as their
// expires setting says: a lease on the queue, renewed by using it.
package expires

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.expires.
type Config struct {
	// OnlyIfEmpty lets a queue live for as long as it holds messages.
	OnlyIfEmpty bool `koanf:"only-if-empty" doc:"Keep queues for as long as they hold messages."`
	// DeadLetter sends the messages of a queue that expires to its dead-letter
	// exchange, with the reason queue_expired.
	DeadLetter bool `koanf:"dead-letter" doc:"Dead-letter the messages of queues that expire."`
}

// Factory makes the plugin.
var Factory = hook.NewFactory("expires", Config{}, func(c Config) (hook.Plugin, error) { return plugin{c}, nil })

type plugin struct{ config Config }

// Arguments implements [hook.Plugin].
func (plugin) Arguments() []hook.Argument {
	return []hook.Argument{{Name: "x-expires", Check: checkExpires}}
}

func checkExpires(v any, _ hook.Args) error { return hook.CheckInt(v, 1, hook.MaxMillis) }

// callback is what the queue calls.
type callback = func(now hook.Instant, idle time.Duration, v *hook.Verdict)

// Attach implements [hook.Plugin].
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

// lease returns the callback of a queue that goes when it was not used for
// period milliseconds. It holds no more than that: there are many such queues.
func lease(period int64, deadLetter bool) callback {
	return func(now hook.Instant, idle time.Duration, v *hook.Verdict) {
		if t := end(now, idle, period); now < t {
			askAt(v, t)
			return
		}
		v.Action, v.Reason, v.DeadLetter = hook.Drop, hook.ReasonQueueExpired, deadLetter
	}
}

// ifEmpty is lease for a queue that must be empty to go: with messages in it
// or handed out when its time is up, it is given another period.
func ifEmpty(q hook.Queue, period int64, deadLetter bool) callback {
	lease := lease(period, deadLetter)
	return func(now hook.Instant, idle time.Duration, v *hook.Verdict) {
		if now >= end(now, idle, period) && q.Ready()+q.Unacked() > 0 {
			askAt(v, now.AddMillis(period))
			return
		}
		lease(now, idle, v)
	}
}

// end returns when the lease of a queue that was last used idle ago runs out.
func end(now hook.Instant, idle time.Duration, period int64) hook.Instant {
	return now.Add(-idle).AddMillis(period)
}

// askAt has the queue asked again at t, or earlier if another plugin wants so.
func askAt(v *hook.Verdict, t hook.Instant) {
	if v.Deadline == 0 || t < v.Deadline {
		v.Deadline = t
	}
}
