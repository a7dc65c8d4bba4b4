// Package heavy is an example of a plugin from outside Curfew's tree: heavy messages may wait for a shorter time than others.
package heavy

import (
	"fmt"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.heavy.
type Config struct {
	Over int           `koanf:"over" range:"0..1073741824" doc:"Bytes of body above which a message is heavy."`
	TTL  time.Duration `koanf:"ttl" doc:"How long heavy messages may wait."`
}

// Factory makes the plugin.
var Factory = hook.NewFactory("heavy", Config{Over: 1 << 20, TTL: time.Minute}, build)

type plugin struct{ Config }

func build(c Config) (hook.Plugin, error) {
	if c.TTL < time.Millisecond {
		return nil, fmt.Errorf("ttl: %s is out of range; accepted are 1ms and more", c.TTL)
	}
	return plugin{c}, nil
}

// Arguments implements [hook.Plugin]. x-heavy-ttl, in milliseconds, replaces the configured ttl for one queue, and heavy-ttl in a policy for
// many.
func (plugin) Arguments() []hook.Argument {
	const what = "heavy TTL, expected 1 to 315360000000 milliseconds"
	return []hook.Argument{{
		Name:  "x-heavy-ttl",
		Check: func(v any, _ hook.Args) error { return hook.CheckInt(v, 1, hook.MaxMillis) },
		Policy: &hook.PolicyKey{
			Check:    hook.PolicyInt(1, hook.MaxMillis, what),
			Operator: true, Merge: hook.TakeLower, Argument: hook.TakeLower,
		},
	}}
}

// Attach implements [hook.Plugin].
func (p plugin) Attach(q hook.Queue) hook.Hooks {
	millis := hook.LimitOf(p.TTL.Milliseconds())
	if own := hook.IntSetting(q, "heavy-ttl"); own.Set() {
		millis = own
	}
	stamp := func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			if ms[i].Size <= p.Over {
				continue
			}
			t := ms[i].Enqueued.AddMillis(millis.N())
			if v := &vs[i]; v.Deadline == 0 || t < v.Deadline {
				v.Deadline = t
			}
		}
	}
	return hook.Hooks{OnEnqueue: stamp, Shared: true}
}
