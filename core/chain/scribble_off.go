//go:build !invariants

package chain

import "github.com/curfewmq/curfew/sdk/hook"

// scribbles is off: plugins see the broker's own messages.
const scribbles = false

func lend([]hook.Message) []hook.Message { return nil }

func scribble([]hook.Message) {}
