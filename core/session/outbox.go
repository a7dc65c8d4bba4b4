package session

import "github.com/curfewmq/curfew/core/block"

import "github.com/curfewmq/curfew/core/queue"

// outbox collects messages by the queue they go to, so that each queue gets them at once. Messages of one channel to one
// queue stay in order.
type outbox struct {
	index   keyIndex[batchKey]
	batches []*queue.Batch // by place
	flushes uint64         // counts how often it was emptied
}

// batchKey is where one batch goes.
type batchKey struct {
	queue  *queue.Mailbox
	source *channel // that waits for confirms; nil if nobody does
}

// blockRefs is the blocks that a message may lie in; nil where there is none.
type blockRefs [3]*block.Block

// addCached adds a message for the queues of a route, which remembers their places.
func (o *outbox) addCached(r *cachedRoute, source *channel, m *queue.Message, mem *blockRefs) {
	if !r.located || r.round != o.flushes || r.source != source {
		o.locate(r, source)
	}
	for _, i := range r.places {
		add(o.batches[i], m, mem)
	}
}

func (o *outbox) locate(r *cachedRoute, source *channel) {
	r.places = r.places[:0]
	for _, shell := range r.shells {
		r.places = append(r.places, o.place(batchKey{shell, source}))
	}
	r.located, r.round, r.source = true, o.flushes, source
}

// addTo adds a message for queues.
func (o *outbox) addTo(shells []*queue.Mailbox, source *channel, m *queue.Message, mem *blockRefs) {
	for _, shell := range shells {
		add(o.batches[o.place(batchKey{shell, source})], m, mem)
	}
}

func add(b *queue.Batch, m *queue.Message, mem *blockRefs) {
	b.Messages = append(b.Messages, *m)
	for _, k := range mem {
		if k != nil {
			b.Hold(k)
		}
	}
}

// place returns the place of a batch, which is begun if there is none.
func (o *outbox) place(d batchKey) int {
	i, added := o.index.find(d)
	if added {
		b := queue.NewBatch()
		if d.source != nil {
			b.Publisher = d.source
		}
		o.batches = append(o.batches, b)
	}
	return i
}

// pacer is a journal that reports when it falls behind: the channel that CaughtUp returns is closed once it has caught up. nil
// means that it keeps up. *journal.Writer is one; a test holds that.
type pacer interface{ CaughtUp() <-chan struct{} }

// flush hands every queue its batch. When one has more than its consumers can take, it returns what is closed once they
// have caught up, and when one has more than the disk can take, what is closed once that has.
func (o *outbox) flush() (caughtUp, written <-chan struct{}) {
	if len(o.batches) == 0 {
		return nil, nil
	}
	for i, b := range o.batches {
		shell := o.index.keys[i].queue
		if c := shell.Publish(b); c != nil {
			caughtUp = c
		}
		if c := behind(shell); c != nil {
			written = c
		}
		o.batches[i] = nil
	}
	o.batches = o.batches[:0]
	o.index.reset()
	o.flushes++
	return caughtUp, written
}

// behind returns what is closed once the journal of a queue keeps up again, nil while it does.
func behind(shell *queue.Mailbox) <-chan struct{} {
	r := shell.Config().Storage
	if r == nil {
		return nil
	}
	if p, ok := r.Journal.(pacer); ok {
		return p.CaughtUp()
	}
	return nil
}
