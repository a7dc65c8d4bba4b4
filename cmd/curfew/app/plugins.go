package app

import (
	"slices"

	"github.com/curfewmq/curfew/plugins/deadletter"
	"github.com/curfewmq/curfew/plugins/expires"
	"github.com/curfewmq/curfew/plugins/maxlength"
	"github.com/curfewmq/curfew/plugins/ttl"
	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/hook"
)

// allPlugins returns the plugins of the repository and others, in the order in which the default chain asks them. Others come after
// the strategies of the repository, and before what acts on their verdicts: the limits of queues and dead-lettering.
func allPlugins(others []hook.Factory) []hook.Factory {
	return slices.Concat(
		[]hook.Factory{ttl.Factory, wasm.Factory},
		others,
		[]hook.Factory{maxlength.Factory, deadletter.Factory, expires.Factory},
	)
}
