package delay

import "github.com/curfewmq/curfew/sdk/hook"

// MaxHold returns how long a message may be held, in milliseconds. The broker passes it to plugins that run others' code to decide about
// holds.
func (p *plugin) MaxHold() hook.Limit { return hook.LimitOf(p.max) }
