package main

import (
	"github.com/curfewmq/curfew/plugins/deadletter"
	"github.com/curfewmq/curfew/plugins/expires"
	"github.com/curfewmq/curfew/plugins/maxlength"
	"github.com/curfewmq/curfew/plugins/ttl"
	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/hook"
)

// plugins are the plugins this binary is built with. A plugin from outside the
// tree is one more import and one more line; plugins.chain then names it.
func plugins() []hook.Factory {
	return []hook.Factory{
		ttl.Factory,
		wasm.Factory,
		maxlength.Factory,
		deadletter.Factory,
		expires.Factory,
	}
}
