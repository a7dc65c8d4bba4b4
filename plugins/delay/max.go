package delay

import "github.com/curfewmq/curfew/sdk/hook"

// MaxHold returns how long a message may be held, in milliseconds. The broker passes it to
// plugins that hold messages on behalf of others' code.
func (p *plugin) MaxHold() hook.Limit { return hook.LimitOf(p.max) }
