package vhost

import (
	"slices"

	"github.com/curfewmq/curfew/core/telemetry"
)

// enteredOf names the queues of batches; nil if there are none. It returns before again if that has the same names: most messages of a run
// go to the same queues, whichever way each is routed.
func enteredOf(before *telemetry.Entered, batches []queueBatch, slots []int) *telemetry.Entered {
	var names [telemetry.MostEntered]string
	n, more := 0, 0
	for _, slot := range slots {
		c := batches[slot].mailbox.Config()
		switch {
		case c.Schedule != nil: // an exchange holds it: that is no queue, even if one has the exchange's name
		case n == len(names):
			more++
		default:
			names[n] = c.Name
			n++
		}
	}
	switch {
	case n == 0:
		return nil
	case before != nil && before.More == more && slices.Equal(before.Names, names[:n]):
		return before
	}
	return &telemetry.Entered{Names: slices.Clone(names[:n]), More: more}
}
