package main

import (
	"github.com/curfewmq/curfew/plugins/deadletter"
	"github.com/curfewmq/curfew/plugins/expires"
	"github.com/curfewmq/curfew/plugins/maxlength"
	"github.com/curfewmq/curfew/plugins/ttl"
	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/hook"
)

// plugins returns the plugins of this binary. A plugin from outside the tree is one more import and one more line here, and a name
// in plugins.chain.
func plugins() []hook.Factory {
	return []hook.Factory{
		ttl.Factory,
		wasm.Factory,
		maxlength.Factory,
		deadletter.Factory,
		expires.Factory,
	}
}
