package queue

import (
	"sync"

	"github.com/curfewmq/curfew/sdk/hook"
)

// maxBatch is how many messages a hook sees at once, and how many due ones a turn
// handles before other queues have theirs.
const maxBatch = 256

// turnBuffers is memory for one turn's batches. A queue borrows one for a turn, so that
// an idle queue owns none.
type turnBuffers struct {
	messages   []hook.Message
	verdicts   []hook.Verdict
	view       messageView
	leaving    []leaving
	settled    []Ref // that leave
	due        []Ref // whose hooks are asked
	asked      []Ref // kept by their hooks, which were asked because they are next
	deliveries []Delivery
	removals   removals
	ops        opBuffer
	gone       goneBuffer
	parting    *DeferredRemoval // whose messages are about to be freed
	unsent     bool             // there was no space for the dead letters that DeadLetter got
	late       bool             // hooks see messages that come back from consumers

	// committing means that a transaction carries out its part in a queue. Dead letters
	// wait meanwhile, because they would be in commits of their own.
	committing bool
}

// abandon drops the buffers of a turn that did not come to its end, because the next turn is
// another queue's. The operations of completed work stay.
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
