package vhost

import (
	"slices"
	"unsafe"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// deathSize is about how many bytes a death adds to a message's properties.
const deathSize = 640

// deathWriter adds deaths to the properties of messages that died in one queue at one time.
type deathWriter struct {
	queue    string
	now      hook.Instant
	recorder death.Recorder
	keys     [][]byte
}

// append appends d's properties, with this death added, to dst.
func (w *deathWriter) append(dst []byte, d *queue.DeadLetter, cc []string) []byte {
	w.keys = death.Keys(w.keys[:0], d.Key, cc, d.BCC)
	w.recorder.Prepare(death.Death{Queue: w.queue, Reason: d.Reason, Exchange: d.Exchange, Keys: w.keys, At: w.now})
	// Append fails only on properties that cannot be indexed, and these were.
	dst, _ = w.recorder.Append(dst, d.Props, d.Flags&queue.HasDeathHistory != 0)
	return dst
}

// ccKeys returns the routing keys in the CC header. They apply until the message has been routed by a dead-letter routing key. After that
// its last death has the keys that it was published with, which differ from its present keys.
func ccKeys(d *queue.DeadLetter, headers amqp.RawTable) []string {
	cc, _, err := death.SenderSelected(headers)
	if err != nil || len(cc) == 0 || d.Flags&queue.HasDeathHistory == 0 {
		return cc
	}
	before := lastDeathKeys(headers)
	if len(before) <= len(cc) || before[0] != any(string(d.Key)) {
		return nil
	}
	return cc
}

func lastDeathKeys(headers amqp.RawTable) amqp.Array {
	v, _, _ := headers.Lookup("x-death")
	deaths, _ := v.(amqp.Array)
	if len(deaths) == 0 {
		return nil
	}
	last, _ := deaths[0].(amqp.Table)
	keys, _ := last.Lookup("routing-keys")
	list, _ := keys.(amqp.Array)
	return list
}

// blockWriter writes properties and bodies into blocks.
type blockWriter struct {
	block *block.Block
	used  int
}

// reserve makes sure that about n more bytes fit. If that takes a new block, the block is large enough for all of ds, up to a limit.
func (w *blockWriter) reserve(n int, ds []queue.DeadLetter) {
	if w.block != nil && w.used+n <= len(w.block.Buf) {
		return
	}
	const limit = 256 << 10
	w.release()
	w.block = block.New(max(n, expectedSize(ds, limit)))
}

// expectedSize is about how many bytes ds will take, or limit if that is less.
func expectedSize(ds []queue.DeadLetter, limit int) (bytes int) {
	for i := range ds {
		if bytes >= limit { // the next block has the rest
			return limit
		}
		bytes += len(ds[i].Body)
		if i == 0 || !alike(&ds[i-1], &ds[i]) {
			bytes += len(ds[i].Props) + deathSize
		}
	}
	return min(bytes, limit)
}

// free returns the unused end of the block, to append to.
func (w *blockWriter) free() []byte { return w.block.Buf[w.used:w.used] }

// commit makes the bytes that were appended to free a part of the block.
func (w *blockWriter) commit(b []byte) []byte {
	if unsafe.SliceData(b) == unsafe.SliceData(w.block.Buf[w.used:]) { // else it did not fit, and append moved it
		w.used += len(b)
	}
	return slices.Clip(b)
}

// copy copies b into the block if it fits.
func (w *blockWriter) copy(b []byte) []byte {
	if len(b) > len(w.block.Buf)-w.used {
		return slices.Clone(b)
	}
	end := w.used + copy(w.block.Buf[w.used:], b)
	b = w.block.Buf[w.used:end:end]
	w.used = end
	return b
}

// release lets go of the block. Batches that refer to it hold it themselves.
func (w *blockWriter) release() {
	if w.block != nil {
		w.block.Release()
	}
	w.block, w.used = nil, 0
}
