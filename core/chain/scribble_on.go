//go:build invariants

package chain

import (
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// scribbles makes every plugin work on a copy of the messages that is written
// over afterwards, so that one that keeps them reads garbage at once.
const scribbles = true

func lend(ms []hook.Message) []hook.Message { return slices.Clone(ms) }

func scribble(ms []hook.Message) { hooktest.Scribble(ms) }
