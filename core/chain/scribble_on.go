//go:build invariants

package chain

import (
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// scribbles gives every plugin a copy of the messages and overwrites the copy afterwards, so that a plugin that retains messages reads
// garbage at once.
const scribbles = true

func lend(ms []hook.Message) []hook.Message { return slices.Clone(ms) }

func scribble(ms []hook.Message) { hooktest.Scribble(ms) }
