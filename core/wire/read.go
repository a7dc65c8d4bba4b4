package wire

import (
	"errors"
	"os"
	"time"

	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/sdk/hook"
)

func (c *conn) read() {
	for c.state <= session.Closing && c.failure == nil {
		switch {
		case c.mayNotRead():
			c.wait()
		case c.unfed:
			c.feed(c.srv.options.Clock(), 0)
		default:
			c.fill()
		}
	}
}

// fill reads once and feeds the session.
func (c *conn) fill() {
	space, direct := c.readSpace()
	n, err := c.receive(space, direct)
	now := c.srv.options.Clock()
	if c.moderation.note(now, n) {
		c.poll()
	}
	if n > 0 {
		c.silentIntervals = 0
		c.traffic.read(n)
		if direct {
			c.session.BodyRead(n)
		} else {
			c.in.added(n)
		}
		c.feed(now, n)
		if c.relaying() != nil {
			now = c.srv.options.Clock() // it may have waited for the owner for a long time
		}
	}
	switch {
	case errors.Is(err, errWouldBlock):
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.rearm = true
	case err != nil && c.relaying() != nil:
		c.clientEnded(c.relaying(), now, err)
	case err != nil && c.state == session.Closing:
		c.session.End() // the peer may still read the pending bytes
		c.plan(now)
		return
	case err != nil && c.state < session.Closing:
		c.failure = err
		return
	}
	c.handleRequests(now)
}

// readSpace returns the memory to read into. direct reports that this is the session's memory for a message body.
func (c *conn) readSpace() (space []byte, direct bool) {
	const little = 4 << 10
	if len(c.in.unread()) == 0 {
		if b := c.session.BodySpace(); b != nil {
			return b, true
		}
	}
	space = c.in.space()
	if c.session.InsideBody() {
		space = space[:min(len(space), little)]
	}
	return space, false
}

// receive reads into the memory that readSpace returned. While polling it waits for the next tick, otherwise until bytes arrive.
func (c *conn) receive(space []byte, direct bool) (n int, err error) {
	if c.moderation.polling && !c.readOn {
		if c.ticks.wait() != nil { // continue without polling
			c.moderation.stop()
			c.poll()
		}
	}
	if c.tcp != nil && c.tcp.onIdle != nil && !direct && !c.moderation.polling {
		n, err = c.tcp.readOrIdle(space)
		if n > 0 || err != nil {
			c.readOn = n >= fatRead || n == len(space)
			return n, err
		}
		space, _ = c.readSpace() // onIdle may have released it
	}
	if n, err = c.socket.Read(space); n > 0 {
		n, err = c.readBuffered(space, n), nil
	}
	c.readOn = n >= fatRead || n == len(space)
	return n, err
}

// readBuffered appends to the first n bytes of space the TLS records that were read ahead. An error shows up again in the next Read.
func (c *conn) readBuffered(space []byte, n int) int {
	if c.tcp == nil || c.tcp.buf == nil {
		return n
	}
	c.tcp.bufferedOnly = true
	defer func() { c.tcp.bufferedOnly = false }()
	for n < len(space) {
		k, err := c.socket.Read(space[n:])
		n += k
		if err != nil {
			break
		}
	}
	return n
}

// feed passes the input on to the session; n bytes of it are new.
func (c *conn) feed(now hook.Instant, n int) {
	if r := c.relaying(); r != nil {
		c.passUp(r)
		return
	}
	if c.skip > 0 {
		c.skipFrame()
	}
	c.in.consumed(c.session.Feed(now, c.in.block, c.in.unread()))
	c.unfed = c.session.Unfed()
	if c.state == session.Handshake {
		c.login()
	}
	c.throttle(n)
	c.logCaughtUp = c.session.LogCaughtUp()
	if c.session.Published() {
		c.block(c.srv.alarm())
		c.holdBack()
	}
	c.plan(now)
}

// A publisher that is faster than its consumers pauses for pauseFor after every pauseEvery bytes. That slows it down to the speed of its
// consumers, but not below some 250 MB/s: slow consumers do not stop it.
const (
	pauseEvery = largest
	pauseFor   = time.Millisecond
)

// throttle pauses a publisher that is faster than its consumers after n more bytes were fed. A large message counts when its last byte has
// come. Bytes published to queues that keep up do not count.
func (c *conn) throttle(n int) {
	c.fedSincePause += n
	caughtUp := c.session.ConsumersCaughtUp()
	if caughtUp == nil {
		c.fedSincePause = min(c.fedSincePause, c.session.IncompleteBytes())
		return
	}
	if c.fedSincePause < pauseEvery {
		return
	}
	pauses := c.fedSincePause / pauseEvery
	c.fedSincePause %= pauseEvery
	c.pause(caughtUp, time.Duration(pauses)*pauseFor)
}

// pause waits until the consumers have caught up, the time is over, or there are requests.
func (c *conn) pause(caughtUp <-chan struct{}, most time.Duration) {
	if c.requested() {
		return
	}
	c.srv.blocked[forConsumers].Add(1)
	defer c.srv.blocked[forConsumers].Add(-1)
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-caughtUp:
	case <-timer.C:
	case <-c.wakeup:
		c.wake() // so that the request gets handled
	}
}

// block stops a publisher until an alarm is over; a nil channel means that there is no alarm.
func (c *conn) block(over <-chan struct{}, reason string) {
	if over == nil || c.alarm != nil || c.session.State() != session.Open {
		return
	}
	c.alarm = over
	c.session.Block(reason)
}

// unblock lets the publisher continue, unless there is another alarm.
func (c *conn) unblock() {
	switch c.alarm, _ = c.srv.alarm(); {
	case c.alarm != nil:
	case c.suspended.Load():
		c.session.Block(suspendedReason)
	default:
		c.session.Unblock()
	}
}

// mayNotRead reports whether reading from the connection must stop for now.
func (c *conn) mayNotRead() bool {
	if c.state == session.Elsewhere || c.state == session.Relayed {
		return c.hasEnough()
	}
	return c.session.Congested() || (c.alarm != nil || c.logCaughtUp != nil || c.heldBack()) && c.state == session.Open || c.unfed && c.session.LoggingIn()
}

// wait waits until the result of mayNotRead may have changed. It ends polling if that takes long, because ticks cost processor time.
func (c *conn) wait() {
	var memory, disk <-chan struct{} // closed when there is an alarm that the client must be told about; nil if the client knows of one
	if c.logCaughtUp != nil && c.alarm == nil {
		memory, disk = c.srv.nextAlarms()
		c.block(c.srv.alarm())
	}
	why := c.reasons()
	c.srv.blocked.add(why, 1)
	defer c.srv.blocked.add(why, -1)
	most := c.timer().Sub(c.srv.options.Clock())
	if c.moderation.polling {
		most = min(most, maxPolledWait)
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-c.session.Resumed():
		c.silentIntervals = 0 // the peer has read something
	case <-c.alarm:
		c.unblock()
	case <-c.logCaughtUp:
		c.logCaughtUp = nil
	case <-memory:
	case <-disk:
	case <-c.wakeup:
	case <-timer.C:
		c.moderation.stop()
		c.poll()
	}
	if !forClientAlone(why) {
		c.silentIntervals = 0 // the peer's bytes were not read, so it may not have been silent
	}
	c.handleRequests(c.srv.options.Clock())
}

// lowWater is how many bytes a polled socket collects before the system reports them.
const lowWater = fatRead

// poll begins or ends polling, or changes the interval, as moderation decided.
func (c *conn) poll() {
	if !c.moderation.polling {
		c.unpoll()
		return
	}
	err := errNoMetronome
	switch {
	case c.ticks != nil:
		err = c.ticks.tick(c.moderation.interval)
	case c.tcp != nil:
		c.ticks, err = c.srv.ticks.take(c.moderation.interval)
	}
	if err != nil {
		c.moderation.stop()
		c.unpoll()
		return
	}
	c.tcp.noWait = true
	c.tcp.setLowWater(lowWater)
}

func (c *conn) unpoll() {
	if c.ticks == nil {
		return
	}
	c.srv.ticks.give(c.ticks)
	c.ticks = nil
	c.tcp.noWait = false
	c.tcp.setLowWater(1)
}

const (
	smallest = 4 << 10   // read buffer
	largest  = 256 << 10 // read buffer, unless a frame needs more
)

// input holds bytes that were read and not yet consumed. They lie in a block, which published messages may refer to. It belongs to the
// reader goroutine.
type input struct {
	block      *block.Block // nil while nothing is unread and nothing is being read
	start, end int          // of the unread bytes
	size       int          // of the next block
	thin       int          // reads in a row that would have fit into a quarter of it
	read       int          // bytes since shrinkIdle
}

func newInput() input { return input{size: smallest} }

// space returns the memory to read into, which is never empty.
func (in *input) space() []byte {
	if in.block == nil {
		in.block = block.New(in.size)
	}
	return in.block.Buf[in.end:]
}

// unread returns the bytes that were not yet consumed.
func (in *input) unread() []byte {
	if in.block == nil {
		return nil
	}
	return in.block.Buf[in.start:in.end]
}

// park releases a small block without unread bytes, so that a connection that waits for input has no buffer.
func (in *input) park() {
	if in.block != nil && in.start == in.end && len(in.block.Buf) == smallest {
		in.release()
	}
}

// added records that n bytes were read into space, and chooses the size of the next block by how full this one is.
func (in *input) added(n int) {
	in.end += n
	in.read += n
	switch {
	case in.end == len(in.block.Buf):
		in.size, in.thin = min(2*in.size, largest), 0
	case in.end > in.size/4 || in.size == smallest:
		in.thin = 0
	default:
		in.thin++
	}
	const patience = 64
	if in.thin == patience {
		in.size, in.thin = in.size/2, 0
	}
}

// consumed drops the first n unread bytes, and makes space for more.
func (in *input) consumed(n int) {
	if in.block == nil {
		return
	}
	in.start += n
	rest, have := in.end-in.start, len(in.block.Buf)
	fits := have == in.size || have > in.size && rest > in.size/2 // a large block stays while a large frame arrives
	switch free := have - in.end; {
	case fits && rest == 0 && !in.block.Shared():
		in.start, in.end = 0, 0
	case fits && free >= have/2:
		// no message refers to the bytes after end: keep reading there
	case fits && rest < have && !in.block.Shared():
		in.start, in.end = 0, copy(in.block.Buf, in.unread())
	case rest >= in.size:
		in.replace(2 * rest)
	default:
		in.replace(in.size)
	}
}

// replace moves the unread bytes to a new block.
func (in *input) replace(size int) {
	k := block.New(size)
	rest := copy(k.Buf, in.unread())
	in.block.Release()
	in.block, in.start, in.end = k, 0, rest
}

// shrinkIdle replaces a large block by a small one if little more than heartbeats was read since the previous call.
func (in *input) shrinkIdle() {
	idle := in.read < smallest/4
	in.read = 0
	if !idle || in.block == nil || len(in.block.Buf) == smallest || len(in.unread()) >= smallest {
		return
	}
	in.size, in.thin = smallest, 0
	in.replace(smallest)
}

func (in *input) release() {
	if in.block != nil {
		in.block.Release()
	}
	in.block, in.start, in.end = nil, 0, 0
}
