package session

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/queue"
)

// writeBuffer holds the bytes to be written to a connection. Its mutex is the connection's only lock. It guards the pending bytes and
// all state that a delivery uses (delivery tags, unacknowledged messages, confirms), because queue turns deliver while the reader handles
// acks. No method of a queue is called with the lock held.
//
// To write: lock mu, reserve, append whole frames to pending, kick, unlock.
type writeBuffer struct {
	mu       sync.Mutex
	pending  []byte        // encoded frames
	chunks   []chunk       // written before pending: frames of large messages, and bodies that are not copied
	stalled  []*consumer   // consumers stalled by a full buffer, the least recently served first
	served   uint64        // deliveries so far
	wake     chan struct{} // capacity 1; has a value when the writer has something to do
	asleep   bool          // the writer waits on wake
	closed   bool          // the peer is gone; bytes are discarded
	sealed   bool          // the last frame is pending or written, except for answers to connection.close
	ended    bool          // the writer may end when everything is written
	sealedAt int           // length of pending up to the seal

	chunksWeight   int            // sum of the weights of chunks
	delivered      int            // size of the pending deliveries, at least, but no more than is pending
	block          *block.Block   // block that pending lies in; nil if pending has outgrown it
	takenBlocks    []*block.Block // blocks that taken lies in
	taken          [][]byte       // the bytes that the writer is writing
	expected       int            // size of the next block: the number of frame bytes that the writer took last
	tick           func()         // makes the reader call Tick; set once
	refers         bool           // bodies may be written from their own blocks
	lastBody       *block.Block   // block that the last body in chunks lies in
	takes          uint64         // number of times that the writer took bytes
	heartbeatTakes uint64         // takes as of the last heartbeat, including that one

	congested atomic.Bool   // the peer does not read its answers: the reader pauses
	resumed   chan struct{} // capacity 1; has a value when congested has ended
	accounted int           // share of total
	total     *atomic.Int64 // pending bytes of all connections, roughly
}

const (
	// maxDeliveryBuffer bounds the bytes that are buffered for a slow peer. Beyond it, messages stay in their queues.
	maxDeliveryBuffer = 512 << 10
	// maxReplyBuffer is the amount of unread answers beyond which the peer's requests are no longer read. Deliveries are not answers: a
	// single-threaded client may send a large message before it reads a large delivery, and both sides would wait for ever.
	maxReplyBuffer = 4 * maxDeliveryBuffer
	// largestChunk bounds the bytes that are written at once, unless a single frame is larger.
	largestChunk = 2 * maxDeliveryBuffer
	// accountingStep is how far accounted may lag behind.
	accountingStep = 64 << 10
)

// newWriteBuffer returns a buffer that adds to total. If refers is set, it retains the blocks of large bodies instead of copying.
func newWriteBuffer(total *atomic.Int64, refers bool) writeBuffer {
	return writeBuffer{wake: make(chan struct{}, 1), resumed: make(chan struct{}, 1), total: total, refers: refers}
}

// chunk is whole frames, or a part of a frame or of a body.
type chunk struct {
	bytes  []byte
	block  *block.Block // that bytes lie in
	body   bool
	weight int // its size, plus some of the rest of the block that is retained for it
}

// size returns the approximate memory of the pending bytes. The caller holds mu.
func (o *writeBuffer) size() int { return o.chunksWeight + len(o.pending) }

// replies returns roughly the memory of the pending answers: some of them may count as deliveries. The caller holds mu.
func (o *writeBuffer) replies() int { return o.size() - o.delivered }

// full reports whether deliveries must wait. The caller holds mu.
func (o *writeBuffer) full() bool { return o.size() >= maxDeliveryBuffer || o.sealed || o.closed }

// reserve makes space in pending for n more bytes, so that appending does not reallocate. The caller holds mu.
func (o *writeBuffer) reserve(n int) {
	if cap(o.pending)-len(o.pending) >= n {
		return
	}
	if len(o.pending)+n > largestChunk && len(o.pending) > 0 && !o.sealed {
		o.pushChunk(chunk{bytes: o.pending, block: o.block, weight: len(o.pending)})
		o.pending, o.block = nil, nil
	}
	k := block.New(bufferSize(max(len(o.pending)+n, o.expected)))
	o.pending = k.Buf[:copy(k.Buf, o.pending)]
	release(o.block)
	o.block = k
}

// bufferSize returns the size of a buffer for n bytes. There are few sizes, because growing copies the pending bytes.
func bufferSize(n int) int {
	for _, size := range [...]int{4 << 10, 32 << 10, 256 << 10, largestChunk} {
		if n <= size {
			return size
		}
	}
	return n
}

// send appends a method and kicks. The caller holds mu.
func (o *writeBuffer) send(channel uint16, m amqp.Method) {
	o.pending = amqp.AppendMethod(o.pending, channel, m)
	o.kick()
}

// post sends a method, and locks the buffer for that.
func (o *writeBuffer) post(channel uint16, m amqp.Method) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.send(channel, m)
}

// postLast sends a method of the connection as the last one, and locks the buffer for that.
func (o *writeBuffer) postLast(m amqp.Method) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seal(amqp.AppendMethod(nil, 0, m))
}

// postRaw sends bytes, and locks the buffer for that.
func (o *writeBuffer) postRaw(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending = append(o.pending, b...)
	o.kick()
}

// kick wakes the writer and updates congested. The caller holds mu and has appended bytes.
func (o *writeBuffer) kick() {
	if o.sealed || o.closed {
		o.pending = o.pending[:min(o.sealedAt, len(o.pending))]
	}
	if n := o.size(); n >= o.accounted+accountingStep {
		o.account(n)
		o.congested.Store(o.replies() >= maxReplyBuffer)
	}
	if o.asleep {
		o.asleep = false
		signal(o.wake)
	}
}

// heartbeat appends a heartbeat, unless something was written since the previous call or is pending. The caller holds mu.
func (o *writeBuffer) heartbeat() {
	if o.takes != o.heartbeatTakes || o.size() > 0 {
		o.heartbeatTakes = o.takes
		return
	}
	o.pending = amqp.AppendHeartbeat(o.pending)
	o.heartbeatTakes = o.takes + 1
	o.kick()
}

// heartbeatDue makes sure that the next write does not suppress the first heartbeat.
func (o *writeBuffer) heartbeatDue() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.heartbeatTakes = o.takes + 1
}

func (o *writeBuffer) pushChunk(c chunk) {
	o.chunks = append(o.chunks, c)
	o.chunksWeight += c.weight
}

// refersTo reports whether the body of a message is written from its own block.
func (o *writeBuffer) refersTo(d *queue.Delivery) bool {
	return d.Block != nil && len(d.Body) >= queue.WorthHolding && o.refers && !o.sealed && !o.closed
}

// contentOverhead is the size of a content header without its properties.
const contentOverhead = amqp.FrameOverhead + contentHeadSize

// appendContent appends the header and the body of a message. The caller holds mu.
func (o *writeBuffer) appendContent(channel uint16, d *queue.Delivery, frameMax int) {
	o.reserve(contentOverhead + len(d.Props))
	o.pending = amqp.AppendContentHeader(o.pending, channel, uint64(len(d.Body)), d.Props)
	extra := 0
	refers := o.refersTo(d)
	if refers {
		extra = o.heldWeight(d)
	}
	for body := d.Body; len(body) > 0; {
		part := body[:min(len(body), amqp.MaxBodyPart(frameMax))]
		body = body[len(part):]
		if !refers {
			o.reserve(amqp.FrameOverhead + len(part))
			o.pending = amqp.AppendBody(o.pending, channel, part, frameMax)
			continue
		}
		o.reserve(amqp.FrameOverhead)
		o.pending = amqp.AppendBodyHead(o.pending, channel, len(part))
		o.appendBodyRef(part, d.Block, len(part)+extra)
		o.pending = append(o.pending, amqp.FrameEnd)
		extra = 0
	}
}

// heldWeight returns the weight of the rest of a body's block, so that a slow reader cannot retain much more memory than is
// counted. The rest was already counted if the previous body lies in the same block.
func (o *writeBuffer) heldWeight(d *queue.Delivery) int {
	if d.Block == o.lastBody {
		return 0
	}
	o.lastBody = d.Block
	return min(len(d.Block.Buf)-len(d.Body), 3*len(d.Body))
}

// appendBodyRef turns pending, and a part of a body that is not copied, into chunks. The
// rest of pending's block is used for bytes after them.
func (o *writeBuffer) appendBodyRef(part []byte, k *block.Block, weight int) {
	if o.block != nil {
		o.block.Retain()
	}
	o.pushChunk(chunk{bytes: o.pending, block: o.block, weight: len(o.pending)})
	o.pending = o.pending[len(o.pending):]
	k.Retain()
	o.pushChunk(chunk{bytes: part, block: k, body: true, weight: weight})
}

// account updates this connection's share of total.
func (o *writeBuffer) account(n int) {
	o.total.Add(int64(n - o.accounted))
	o.accounted = n
}

// seal appends the last frame. A later seal may replace it. The caller holds mu.
func (o *writeBuffer) seal(frame []byte) {
	if o.sealed {
		o.pending = o.pending[:min(o.sealedAt, len(o.pending))]
	}
	o.pending = append(o.pending, frame...)
	o.sealed, o.sealedAt = true, len(o.pending)
	o.kick()
}

// end lets the writer end after the pending bytes are written. The caller holds mu.
func (o *writeBuffer) end() {
	if !o.sealed {
		o.seal(nil)
	}
	o.ended = true
	o.kick()
}

// next implements [Writer.Next].
func (o *writeBuffer) next() (bs [][]byte, stalled []*queue.Consumer, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.releaseTaken()
	o.take()
	if len(o.taken) == 0 {
		o.asleep = !o.closed && !o.ended
		return nil, nil, o.asleep
	}
	o.takes++
	if o.replies() < maxReplyBuffer && o.congested.Swap(false) {
		signal(o.resumed)
	}
	if o.size() < maxDeliveryBuffer {
		for _, cs := range o.stalled {
			stalled = append(stalled, &cs.Consumer)
		}
		clear(o.stalled)
		o.stalled = o.stalled[:0]
	}
	return o.taken, stalled, true
}

// written implements [Writer.End].
func (o *writeBuffer) written() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.releaseTaken()
}

func (o *writeBuffer) releaseTaken() {
	for _, k := range o.takenBlocks {
		k.Release()
	}
	clear(o.takenBlocks)
	clear(o.taken)
	o.takenBlocks, o.taken = o.takenBlocks[:0], o.taken[:0]
}

// take moves chunks, and then pending, to taken: at most largestChunk bytes, but at least one chunk if there is any.
func (o *writeBuffer) take() {
	n, frames := 0, 0
	add := func(c *chunk) {
		o.taken = append(o.taken, c.bytes)
		if c.block != nil {
			o.takenBlocks = append(o.takenBlocks, c.block)
		}
		n += len(c.bytes)
		if !c.body {
			frames += len(c.bytes)
		}
	}
	fits := func(b []byte) bool { return n == 0 || n+len(b) <= largestChunk }
	i := 0
	for i < len(o.chunks) && fits(o.chunks[i].bytes) {
		add(&o.chunks[i])
		o.chunksWeight -= o.chunks[i].weight
		i++
	}
	o.chunks = slices.Delete(o.chunks, 0, i)
	if len(o.chunks) == 0 && len(o.pending) > 0 && fits(o.pending) {
		add(&chunk{bytes: o.pending, block: o.block})
		o.block, o.pending, o.lastBody, o.sealedAt = nil, nil, nil, 0
	}
	if n == 0 {
		release(o.block) // its frames were discarded
		o.block, o.pending = nil, nil
	} else {
		o.expected = min(frames, maxDeliveryBuffer)
	}
	o.delivered = min(o.delivered, o.size())
	o.account(o.size())
}

// close discards all pending and later bytes, because the peer is gone.
func (o *writeBuffer) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.sealedAt, o.stalled = true, 0, nil
	release(o.block)
	for _, c := range o.chunks {
		release(c.block)
	}
	o.block, o.pending, o.chunks, o.lastBody, o.chunksWeight, o.delivered = nil, nil, nil, nil, 0, 0
	o.account(0)
	o.congested.Store(false)
	signal(o.resumed)
	signal(o.wake)
}

func release(k *block.Block) {
	if k != nil {
		k.Release()
	}
}

// signal sends on a channel of capacity 1, unless a value waits there already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
