package queue

import (
	"sync"

	"github.com/curfewmq/curfew/sdk/hook"
)

// maxBatch is how many messages a hook sees at once, and how many due messages a turn
// handles before other queues get the processor.
const maxBatch = 256

// turnBuffers is memory for one turn's batches. A queue borrows one for a turn, so that
// an idle queue owns none.
type turnBuffers struct {
	messages   []hook.Message
	verdicts   []hook.Verdict
	view       messageView
	leaving    []leaving
	settled    []Ref // settled messages that leave
	due        []Ref // messages that hooks are asked about
	asked      []Ref // messages that hooks kept at the head: see markAsked
	deliveries []Delivery
	removals   removals
	ops        opBuffer
	gone       goneBuffer
	parting    *DeferredRemoval // of messages that are about to be freed
	unsent     bool             // Expect found no space for the dead letters of this turn: see wasUnsent
	late       bool             // hooks are asked about messages that consumers returned

	// committing means that a transaction carries out its part in a queue. Dead letters
	// wait meanwhile, because they would be in commits of their own.
	committing bool
}

// abandon clears the buffers of a turn that did not come to its end, for the next queue
// that uses them. The operations of completed work stay.
func (w *turnBuffers) abandon() {
	w.view = messageView{}
	w.removals.clear()
	w.asked, w.ops.enqueued, w.committing, w.late = w.asked[:0], 0, false, false
	w.ops.keeps, w.ops.once = false, false
	w.parting, w.unsent = nil, false
}

var turnBufferPool = sync.Pool{New: func() any { return new(turnBuffers) }}

// batch returns n cleared messages and verdicts.
func (w *turnBuffers) batch(n int) ([]hook.Message, []hook.Verdict) {
	if cap(w.messages) < n {
		w.messages = make([]hook.Message, maxBatch)
		w.verdicts = make([]hook.Verdict, maxBatch)
	}
	clear(w.verdicts[:n])
	return w.messages[:n], w.verdicts[:n]
}
