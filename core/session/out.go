package session

import (
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
)

// out is what waits to be written to a connection. Its mutex is the one lock of a connection: it guards the pending bytes
// and everything a delivery touches (delivery tags, unacknowledged messages, confirms), because deliveries come from queue
// turns while the reader handles acks. Nothing is called on a queue while it is held.
//
// To write: take mu, reserve, append whole frames to pending, kick, let go.
type out struct {
	mu      sync.Mutex
	pending []byte        // encoded frames
	earlier []chunk       // what is to be written before pending: frames of large messages
	waiting []*consumer   // stalled by a full buffer, in the order they were served last; woken when it drains
	served  uint64        // counts deliveries
	wake    chan struct{} // capacity 1; tells the writer that there is something to do
	asleep  bool          // the writer waits on wake
	closed  bool          // the peer is gone: bytes are thrown away
	sealed  bool          // the last frame is pending or written, but for answers to connection.close
	ended   bool          // the writer has nothing to wait for when all is written
	last    int           // what of pending lies before the seal

	before  int          // bytes of earlier
	held    *queue.Block // pending lies in it, unless it was outgrown
	writing *queue.Block // the same for what the writer took last
	size    int          // of what the writer took last: as much is expected again
	taken   uint64       // how often the writer took something
	beaten  uint64       // that, as it was or will be when the last heartbeat is written, or was not needed

	congested atomic.Bool   // the reader should pause: the peer does not read its answers
	resumed   chan struct{} // capacity 1; tells the reader that congested is over
	counted   int           // what of the waiting bytes is in total
	total     *atomic.Int64 // bytes pending in all connections, more or less
}

const (
	// room bounds what a slow peer can make the broker hold for it: beyond it deliveries stay in their queues.
	room = 512 << 10
	// congestion is where the peer's requests stop being read, because their answers, which are always taken, pile up.
	congestion = 4 * room
	// largestChunk is how much is written at once, unless a single frame is larger.
	largestChunk = 2 * room
	// grain is how far the count of pending bytes may lag behind.
	grain = 64 << 10
)

func newOut(total *atomic.Int64) out {
	return out{wake: make(chan struct{}, 1), resumed: make(chan struct{}, 1), total: total}
}

// chunk is frames in a block.
type chunk struct {
	frames []byte
	block  *queue.Block
}

// bytes is how many wait to be written. The caller holds mu.
func (o *out) bytes() int { return o.before + len(o.pending) }

// full reports whether deliveries should wait. The caller holds mu.
func (o *out) full() bool { return o.bytes() >= room || o.sealed || o.closed }

// reserve makes room in pending for n more bytes. Appending without is not wrong, only slower. The caller holds mu.
func (o *out) reserve(n int) {
	if cap(o.pending)-len(o.pending) >= n {
		return
	}
	if len(o.pending)+n > largestChunk && len(o.pending) > 0 && !o.sealed {
		o.earlier = append(o.earlier, chunk{o.pending, o.held})
		o.before += len(o.pending)
		o.pending, o.held = nil, nil
	}
	k := queue.NewBlock(bufferSize(max(len(o.pending)+n, o.size)))
	o.pending = k.Buf[:copy(k.Buf, o.pending)]
	release(o.held)
	o.held = k
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
func (o *out) kick() {
	if o.sealed || o.closed {
		o.pending = o.pending[:min(o.last, len(o.pending))]
	}
	if n := o.bytes(); n >= o.counted+grain {
		o.count(n)
		o.congested.Store(n >= congestion)
	}
	if o.asleep {
		o.asleep = false
		signal(o.wake)
	}
}

// beat appends a heartbeat, unless something else was written since the last one or waits to be. The caller holds mu.
func (o *out) beat() {
	if o.taken != o.beaten || o.bytes() > 0 {
		o.beaten = o.taken
		return
	}
	o.pending = amqp.AppendHeartbeat(o.pending)
	o.beaten = o.taken + 1
	o.kick()
}

// expectBeat makes what is written next no reason to leave the first heartbeat out.
func (o *out) expectBeat() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.beaten = o.taken + 1
}

// content appends the header and the body of a message. The caller holds mu.
func (o *out) content(channel uint16, props, body []byte, frameMax int) {
	o.reserve(contentOverhead + len(props))
	o.pending = amqp.AppendContentHeader(o.pending, channel, uint64(len(body)), props)
	for len(body) > 0 {
		part := body[:min(len(body), amqp.MaxBodyPart(frameMax))]
		o.reserve(amqp.FrameOverhead + len(part))
		o.pending = amqp.AppendBody(o.pending, channel, part, frameMax)
		body = body[len(part):]
	}
}

// contentOverhead is the size of a content header without its properties.
const contentOverhead = amqp.FrameOverhead + 12

// count makes n the share of what waits in the total.
func (o *out) count(n int) {
	o.total.Add(int64(n - o.counted))
	o.counted = n
}

// seal appends a frame that is the last to be written but for another sealing one. The caller holds mu.
func (o *out) seal(frame []byte) {
	if o.sealed {
		o.pending = o.pending[:min(o.last, len(o.pending))]
	}
	o.pending = append(o.pending, frame...)
	o.sealed, o.last = true, len(o.pending)
	o.kick()
}

// end lets the writer end when what is pending is written. The caller holds mu.
func (o *out) end() {
	if !o.sealed {
		o.seal(nil)
	}
	o.ended = true
	o.kick()
}

// next hands the writer what is to be written next, which stays valid until the next call, and the consumers that may be
// woken now. No bytes mean that the writer should wait for wake, and ok=false that there will be none any more.
func (o *out) next() (b []byte, woken []*queue.Consumer, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	release(o.writing)
	b = o.take()
	if len(b) == 0 {
		o.asleep = !o.closed && !o.ended
		return nil, nil, o.asleep
	}
	o.size = min(len(b), room)
	o.taken++
	if o.bytes() < congestion && o.congested.Swap(false) {
		signal(o.resumed)
	}
	if o.bytes() < room {
		woken = o.awake()
	}
	return b, woken, true
}

// awake returns the consumers that may be woken now, which are in line no more. The caller holds mu.
func (o *out) awake() (woken []*queue.Consumer) {
	for _, s := range o.waiting {
		woken = append(woken, &s.Consumer)
	}
	clear(o.waiting)
	o.waiting = o.waiting[:0]
	return woken
}

// take takes out what is to be written next: a chunk, or at last what is pending.
func (o *out) take() (b []byte) {
	defer func() { o.count(o.bytes()) }()
	if len(o.earlier) > 0 {
		c := o.earlier[0]
		o.earlier[0] = chunk{}
		o.earlier = o.earlier[1:]
		o.before -= len(c.frames)
		o.writing = c.block
		return c.frames
	}
	b = o.pending
	o.writing, o.held, o.pending, o.earlier = o.held, nil, nil, nil
	o.last = 0
	return b
}

// close throws away what is pending and whatever comes: the peer is gone.
func (o *out) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.last, o.waiting = true, 0, nil
	release(o.held)
	for _, c := range o.earlier {
		release(c.block)
	}
	o.held, o.pending, o.earlier, o.before = nil, nil, nil, 0
	o.count(0)
	o.congested.Store(false)
	signal(o.resumed)
	signal(o.wake)
}

func release(k *queue.Block) {
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
