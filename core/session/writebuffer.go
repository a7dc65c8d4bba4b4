package session

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/queue"
)

// writeBuffer is what waits to be written to a connection. Its mutex is the one lock of a connection: it guards the pending bytes
// and everything a delivery touches (delivery tags, unacknowledged messages, confirms), because deliveries come from queue
// turns while the reader handles acks. Nothing is called on a queue while it is held.
//
// To write: take mu, reserve, append whole frames to pending, kick, let go.
type writeBuffer struct {
	mu       sync.Mutex
	pending  []byte        // encoded frames
	chunks   []chunk       // what is to be written before pending: frames of large messages, and bodies where they lie
	stalled  []*consumer   // stalled by a full buffer, in the order they were served last; woken when it drains
	served   uint64        // counts deliveries
	wake     chan struct{} // capacity 1; tells the writer that there is something to do
	asleep   bool          // the writer waits on wake
	closed   bool          // the peer is gone: bytes are thrown away
	sealed   bool          // the last frame is pending or written, but for answers to connection.close
	ended    bool          // the writer has nothing to wait for when all is written
	sealedAt int           // what of pending lies before the seal

	chunksWeight   int            // the weights of earlier
	block          *block.Block   // pending lies in it, unless it was outgrown
	takenBlocks    []*block.Block // what the writer took last lies in them
	taken          [][]byte       // that
	expected       int            // of the frames in it: as much is expected again
	refers         bool           // bodies may be written from where they lie
	lastBody       *block.Block   // that a body in earlier lies in, of those the last
	takes          uint64         // how often the writer took something
	heartbeatTakes uint64         // that, as it was or will be when the last heartbeat is written, or was not needed

	congested atomic.Bool   // the reader should pause: the peer does not read its answers
	resumed   chan struct{} // capacity 1; tells the reader that congested is over
	accounted int           // what of the waiting bytes is in total
	total     *atomic.Int64 // bytes pending in all connections, more or less
}

const (
	// maxDeliveryBuffer bounds what a slow peer can make the broker hold for it: beyond it deliveries stay in their queues.
	maxDeliveryBuffer = 512 << 10
	// maxReplyBuffer is where the peer's requests stop being read, because their answers, which are always taken, pile up.
	maxReplyBuffer = 4 * maxDeliveryBuffer
	// largestChunk is how much is written at once, unless a single frame is larger.
	largestChunk = 2 * maxDeliveryBuffer
	// accountingStep is how far the count of pending bytes may lag behind.
	accountingStep = 64 << 10
)

// newWriteBuffer returns one that holds on to large bodies, if it refers to them, instead of copying them.
func newWriteBuffer(total *atomic.Int64, refers bool) writeBuffer {
	return writeBuffer{wake: make(chan struct{}, 1), resumed: make(chan struct{}, 1), total: total, refers: refers}
}

// chunk is frames or, within one, a part of a body.
type chunk struct {
	bytes  []byte
	block  *block.Block // they lie in it
	body   bool         // of somebody else
	weight int          // what it counts for: its size, and some of what else there is in a block that is held for it
}

// size is about the memory of what waits to be written. The caller holds mu.
func (o *writeBuffer) size() int { return o.chunksWeight + len(o.pending) }

// full reports whether deliveries should wait. The caller holds mu.
func (o *writeBuffer) full() bool { return o.size() >= maxDeliveryBuffer || o.sealed || o.closed }

// reserve makes room in pending for n more bytes. Appending without is not wrong, only slower. The caller holds mu.
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

// bufferSize is the size of a buffer for n bytes. There are few sizes: every step up copies what is pending.
func bufferSize(n int) int {
	for _, size := range [...]int{4 << 10, 32 << 10, 256 << 10, largestChunk} {
		if n <= size {
			return size
		}
	}
	return n
}

// kick wakes the writer if it sleeps, and notices when too much is pending. The caller holds mu and has added bytes.
func (o *writeBuffer) kick() {
	if o.sealed || o.closed {
		o.pending = o.pending[:min(o.sealedAt, len(o.pending))]
	}
	if n := o.size(); n >= o.accounted+accountingStep {
		o.account(n)
		o.congested.Store(n >= maxReplyBuffer)
	}
	if o.asleep {
		o.asleep = false
		signal(o.wake)
	}
}

// heartbeat appends a heartbeat, unless something else was written since the last one or waits to be. The caller holds mu.
func (o *writeBuffer) heartbeat() {
	if o.takes != o.heartbeatTakes || o.size() > 0 {
		o.heartbeatTakes = o.takes
		return
	}
	o.pending = amqp.AppendHeartbeat(o.pending)
	o.heartbeatTakes = o.takes + 1
	o.kick()
}

// heartbeatDue makes what is written next no reason to leave the first heartbeat out.
func (o *writeBuffer) heartbeatDue() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.heartbeatTakes = o.takes + 1
}

// pushChunk adds to earlier, behind which pending goes on.
func (o *writeBuffer) pushChunk(c chunk) {
	o.chunks = append(o.chunks, c)
	o.chunksWeight += c.weight
}

// refersTo reports whether the body of a message is written from where it lies.
func (o *writeBuffer) refersTo(d *queue.Delivery) bool {
	return d.Block != nil && len(d.Body) >= queue.WorthHolding && o.refers && !o.sealed && !o.closed
}

// appendContent appends the header and the body of a message. The caller holds mu.
func (o *writeBuffer) appendContent(channel uint16, d *queue.Delivery, frameMax int) {
	o.reserve(contentOverhead + len(d.Props))
	o.pending = amqp.AppendContentHeader(o.pending, channel, uint64(len(d.Body)), d.Props)
	held := 0
	refers := o.refersTo(d)
	if refers {
		held = o.heldWeight(d)
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
		o.appendBodyRef(part, d.Block, len(part)+held)
		o.pending = append(o.pending, amqp.FrameEnd)
		held = 0
	}
}

// heldWeight returns how much counts that is held for the sake of a body besides it: who reads slowly must not hold much more than
// what counts for them. What lies in one block with the body before counted with that.
func (o *writeBuffer) heldWeight(d *queue.Delivery) int {
	if d.Block == o.lastBody {
		return 0
	}
	o.lastBody = d.Block
	return min(len(d.Block.Buf)-len(d.Body), 3*len(d.Body))
}

// appendBodyRef has a part of a body written where pending ends, which goes on behind it.
func (o *writeBuffer) appendBodyRef(part []byte, block *block.Block, weight int) {
	if o.block != nil {
		o.block.Retain()
	}
	o.pushChunk(chunk{bytes: o.pending, block: o.block, weight: len(o.pending)})
	o.pending = o.pending[len(o.pending):]
	block.Retain()
	o.pushChunk(chunk{bytes: part, block: block, body: true, weight: weight})
}

// contentOverhead is the size of a content header without its properties.
const contentOverhead = amqp.FrameOverhead + 12

// account makes n the share of what waits in the total.
func (o *writeBuffer) account(n int) {
	o.total.Add(int64(n - o.accounted))
	o.accounted = n
}

// seal appends a frame that is the last to be written but for another sealing one. The caller holds mu.
func (o *writeBuffer) seal(frame []byte) {
	if o.sealed {
		o.pending = o.pending[:min(o.sealedAt, len(o.pending))]
	}
	o.pending = append(o.pending, frame...)
	o.sealed, o.sealedAt = true, len(o.pending)
	o.kick()
}

// end lets the writer end when what is pending is written. The caller holds mu.
func (o *writeBuffer) end() {
	if !o.sealed {
		o.seal(nil)
	}
	o.ended = true
	o.kick()
}

// next hands the writer what is to be written next, which stays valid until the next call, and the consumers that may be
// woken now. No bytes mean that the writer should wait for wake, and ok=false that there will be none any more.
func (o *writeBuffer) next() (bs [][]byte, woken []*queue.Consumer, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.releaseTaken()
	o.take()
	if len(o.taken) == 0 {
		o.asleep = !o.closed && !o.ended
		return nil, nil, o.asleep
	}
	o.takes++
	if o.size() < maxReplyBuffer && o.congested.Swap(false) {
		signal(o.resumed)
	}
	if o.size() < maxDeliveryBuffer {
		woken = o.takeStalled()
	}
	return o.taken, woken, true
}

// written is next for who writes no more.
func (o *writeBuffer) written() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.releaseTaken()
}

// releaseTaken lets go of what the writer took last.
func (o *writeBuffer) releaseTaken() {
	for _, k := range o.takenBlocks {
		k.Release()
	}
	clear(o.takenBlocks)
	clear(o.taken)
	o.takenBlocks, o.taken = o.takenBlocks[:0], o.taken[:0]
}

// takeStalled returns the consumers that may be woken now, which are in line no more. The caller holds mu.
func (o *writeBuffer) takeStalled() (woken []*queue.Consumer) {
	for _, s := range o.stalled {
		woken = append(woken, &s.Consumer)
	}
	clear(o.stalled)
	o.stalled = o.stalled[:0]
	return woken
}

// take takes out what is to be written next: no more than a chunk that is the largest, but something if there is anything.
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
		release(o.block) // of frames that were thrown away
		o.block, o.pending = nil, nil
	}
	if n > 0 {
		o.expected = min(frames, maxDeliveryBuffer)
	}
	o.account(o.size())
}

// close throws away what is pending and whatever comes: the peer is gone.
func (o *writeBuffer) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.sealedAt, o.stalled = true, 0, nil
	release(o.block)
	for _, c := range o.chunks {
		release(c.block)
	}
	o.block, o.pending, o.chunks, o.lastBody, o.chunksWeight = nil, nil, nil, nil, 0
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

// signal sends on a channel of capacity 1; a signal that waits there already is enough.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
