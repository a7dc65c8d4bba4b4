package wire

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/sdk/hook"
)

// conn is one socket. It belongs to its reader, the goroutine of run, but for what is atomic or a channel; the writer, the
// goroutine of write, uses the socket, unwritten and written.
type conn struct {
	srv        *Server
	socket     net.Conn
	tcp        *tcpConn     // under socket; nil if that is not TCP
	source     netip.Prefix // where the socket comes from
	session    *session.Conn
	in         input
	moderation moderation
	ticks      *metronome // while hot.polling
	readOn     bool       // the last read was so fat that the next one does not wait for a tick

	state         session.State   // as it was last seen
	deadline      hook.Instant    // when something is to be done if nothing is read
	rearm         bool            // the socket's read deadline is not what due says
	fedSincePause int             // bytes fed that it was not held back for yet, while it is ahead or a message of it is not complete
	unfed         bool            // in holds frames that were left because of congestion, or because the client is being logged in
	alarm         <-chan struct{} // closed when the alarm it waits for is over, while it is blocked
	logCaughtUp   <-chan struct{} // closed when the disk has caught up with it; nil while it need not wait for that
	failure       error           // why reading ended, if not by agreement
	cancelLogin   func()          // ends the login; nil = there was none

	heartbeatAt     hook.Instant // when it is looked next whether anything was written
	heartbeats      uint         // how often that was
	silentIntervals int          // how often in a row it was looked whether anything was read, and nothing was

	requests  atomic.Uint32 // what others ask of the reader
	wakeup    chan struct{} // capacity 1; wakes a reader that does not read
	unwritten net.Buffers   // what the writer is about to write
	written   chan struct{} // closed when the writer has ended
	traffic   traffic
}

// What can be asked of a reader.
const (
	requestShutdown uint32 = 1 << iota // close the connection in good order
	requestStop                        // the socket is closed: end
	requestTick                        // the session has something to do
)

const (
	deniedDelay  = 3 * time.Second  // how long a failed handshake is left without an answer
	closeTimeout = 5 * time.Second  // how long a peer has to take note of an end
	idleInterval = 30 * time.Second // how often an idle connection is looked at
	minInterval  = 50 * time.Millisecond
)

func newConn(s *Server, socket net.Conn) *conn {
	c := &conn{srv: s, socket: socket, source: sourceOf(socket), in: newInput(), wakeup: make(chan struct{}, 1), written: make(chan struct{})}
	if c.tcp = tcpConnOf(socket); readsNow && c.tcp != nil && c.tcp.buf == nil {
		c.tcp.onIdle = c.in.park
	}
	c.session = s.sessions.Accept(peerOf(socket), func() { c.request(requestTick) })
	return c
}

// request wakes the reader to do something.
func (c *conn) request(what uint32) {
	c.requests.Or(what)
	_ = c.socket.SetReadDeadline(time.Unix(1, 0)) // fails when the socket is closed, which wakes the reader too
	c.wake()
}

func (c *conn) wake() {
	select {
	case c.wakeup <- struct{}{}:
	default:
	}
}

// run reads the connection until it ends, and then tidies up.
func (c *conn) run() {
	now := c.srv.options.Clock()
	c.plan(now)
	c.handleRequests(now)
	c.read()
	c.end()
}

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

// fill reads once.
func (c *conn) fill() {
	space, placed := c.readSpace()
	n, err := c.receive(space, placed)
	now := c.srv.options.Clock()
	if c.moderation.note(now, n) {
		c.poll()
	}
	if n > 0 {
		c.silentIntervals = 0
		c.traffic.read(n)
		if placed {
			c.session.BodyRead(n)
		} else {
			c.in.added(n)
		}
		c.feed(now, n)
	}
	switch {
	case errors.Is(err, errWouldBlock):
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.rearm = true
	case err != nil && c.state == session.Closing:
		c.session.End() // what is pending may still be of interest
		c.plan(now)
		return
	case err != nil && c.state < session.Closing:
		c.failure = err
		return
	}
	c.handleRequests(now)
}

// feed hands the session what was read, of which n bytes are new.
func (c *conn) feed(now hook.Instant, n int) {
	c.in.consumed(c.session.Feed(now, c.in.block, c.in.unread()))
	c.unfed = c.session.Congested()
	if c.state == session.Handshake {
		c.login()
	}
	c.pace(n)
	c.logCaughtUp = c.session.LogCaughtUp()
	if c.session.Published() {
		c.block(c.srv.alarm())
	}
	c.plan(now)
}

// login has the client's credentials checked beside the reader, which notices when the time is up or the client has gone. What
// the client says meanwhile waits.
func (c *conn) login() {
	if login := c.session.Login(); login != nil {
		ctx, cancel := context.WithCancel(context.Background())
		c.cancelLogin = cancel
		c.srv.running.Go(func() { login(ctx) })
	}
	c.unfed = c.unfed || c.session.LoggingIn() && len(c.in.unread()) > 0
}

// loggedIn forgets the login, and ends it if it goes on.
func (c *conn) loggedIn() {
	if c.cancelLogin != nil {
		c.cancelLogin()
		c.cancelLogin = nil
	}
}

// A publisher that is ahead of the consumers takes a breath for every stride of bytes. It is slowed down to what they take,
// but not below a stride a breath, some 250 MB/s: slow consumers do not stop it.
const (
	pauseEvery = largest
	pauseFor   = time.Millisecond
)

// pace keeps a publisher that is ahead, and has just been fed n bytes of, from running away. A large message comes in many
// pieces, and all of them count when the last one is there. What was published meanwhile to others, that keep up, does not.
func (c *conn) pace(n int) {
	c.fedSincePause += n
	caughtUp := c.session.ConsumersCaughtUp()
	if caughtUp == nil {
		c.fedSincePause = min(c.fedSincePause, c.session.IncompleteBytes())
		return
	}
	if c.fedSincePause < pauseEvery {
		return
	}
	breaths := c.fedSincePause / pauseEvery
	c.fedSincePause %= pauseEvery
	c.pause(caughtUp, time.Duration(breaths)*pauseFor)
}

// pause waits until the consumers have caught up, the time is over, or the reader is asked for something.
func (c *conn) pause(caughtUp <-chan struct{}, most time.Duration) {
	if c.asked() {
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
		c.wake() // it is attended to later, by who may wait for that
	}
}

// asked reports whether the reader is asked for something. If not, poked has no value of an earlier time.
func (c *conn) asked() bool {
	select {
	case <-c.wakeup:
	default:
	}
	if c.requests.Load() == 0 {
		return false
	}
	c.wake()
	return true
}

// plan sets due when the connection has got further.
func (c *conn) plan(now hook.Instant) {
	state := c.session.State()
	if state == c.state && c.deadline != 0 {
		return
	}
	c.state, c.rearm = state, true
	switch state {
	case session.Handshake:
		c.deadline = now.Add(c.srv.options.HandshakeTimeout)
	case session.Open:
		c.loggedIn()
		c.srv.opened(c)
		c.heartbeatAt = aligned(now, c.halfBeat())
		c.deadline = c.nextCheck(now)
	default:
		c.deadline = now.Add(closeTimeout)
	}
}

// handleRequests does what was asked for and what is due, and sets the socket's deadline to what is due next.
func (c *conn) handleRequests(now hook.Instant) {
	for c.failure == nil && (c.rearm || now >= c.deadline || c.requests.Load() != 0) {
		asks := c.requests.Swap(0)
		if asks&requestStop != 0 {
			c.failure = net.ErrClosed
		}
		if asks&requestShutdown != 0 {
			c.session.Shutdown(now, "shutdown")
			c.plan(now)
		}
		if asks&requestTick != 0 {
			c.session.Tick(now)
			c.plan(now)
		}
		if now >= c.deadline {
			c.overdue(now)
		}
		// Whoever asks sets a deadline of its own after the ask: the loop sees the one or the read the other.
		c.rearm = false
		_ = c.socket.SetReadDeadline(time.Now().Add(c.deadline.Sub(now))) // fails when the socket is closed: so does the read
	}
}

// overdue is called when due has come.
func (c *conn) overdue(now hook.Instant) {
	switch c.state {
	case session.Handshake:
		c.failure = errHandshake
	case session.Open:
		c.check(now)
	default:
		c.failure = errLeftOpen
	}
}

var (
	errHandshake = errors.New("handshake timeout")
	errLeftOpen  = errors.New("client did not close its socket")
	errSilent    = errors.New("missed heartbeats from client")
)

// halfBeat is half the interval of heartbeats; 0 = there are none.
func (c *conn) halfBeat() time.Duration {
	return time.Duration(c.session.Heartbeat()) * time.Second / 2
}

// nextCheck is when an open connection is looked at next.
func (c *conn) nextCheck(now hook.Instant) hook.Instant {
	interval := idleInterval
	if t := c.srv.options.Session.ConsumerTimeout; t > 0 {
		interval = min(interval, max(t/4, minInterval))
	}
	next := aligned(now, interval)
	if c.halfBeat() > 0 {
		next = min(next, c.heartbeatAt)
	}
	return next
}

// aligned is about an interval from now, rather less, and the same for connections that are looked at in the same intervals: one
// at a time each of them would wake a processor, which costs more than the look does.
func aligned(now hook.Instant, interval time.Duration) hook.Instant {
	at, grain := now.Add(interval), hook.Instant(interval/256)
	if grain == 0 {
		return at
	}
	return at - at%grain
}

// check looks at an open connection.
func (c *conn) check(now hook.Instant) {
	if half := c.halfBeat(); half > 0 && now >= c.heartbeatAt {
		c.heartbeatAt = aligned(now, half)
		if !c.heartbeat() {
			c.failure = errSilent
			return
		}
	}
	c.deadline = c.nextCheck(now)
	c.in.shrinkIdle()
	if c.tcp != nil {
		c.tcp.shrink()
	}
	c.session.Tick(now)
	c.plan(now)
}

// maxSilentIntervals is how many intervals in a row must have passed without a word until a peer is given up. What it said last may have
// been said at the end of the interval before: it is cut off between two and three intervals after that, as by RabbitMQ.
const maxSilentIntervals = 3

// heartbeat sends a heartbeat if nothing was written for half an interval. After every whole interval it looks whether the peer said
// anything, and returns false when it is to be given up [AMQP 4.2.7].
func (c *conn) heartbeat() (alive bool) {
	c.session.SendHeartbeat()
	if c.heartbeats++; c.heartbeats%2 != 0 {
		return true
	}
	c.silentIntervals++
	return c.silentIntervals < maxSilentIntervals || c.mayNotRead()
}

// block stops a publisher until an alarm is over; nil is none.
func (c *conn) block(over <-chan struct{}, reason string) {
	if over == nil || c.alarm != nil || c.session.State() != session.Open {
		return
	}
	c.alarm = over
	c.session.Block(reason)
}

// unblock lets the publisher go on, unless there is another alarm by now.
func (c *conn) unblock() {
	if c.alarm, _ = c.srv.alarm(); c.alarm == nil {
		c.session.Unblock()
	}
}

// mayNotRead reports that the connection may not be read from now.
func (c *conn) mayNotRead() bool {
	return c.session.Congested() || (c.alarm != nil || c.logCaughtUp != nil) && c.state == session.Open || c.unfed && c.session.LoggingIn()
}

// wait waits for a reason to look again. If that takes long it ends polling: ticks that nobody waits for cost the system time.
func (c *conn) wait() {
	why := c.reasons()
	c.srv.blocked.enter(&why)
	defer c.srv.blocked.leave(&why)
	most := c.deadline.Sub(c.srv.options.Clock())
	if c.moderation.polling {
		most = min(most, pollHeld)
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-c.session.Resumed():
	case <-c.alarm:
		c.unblock()
	case <-c.logCaughtUp:
		c.logCaughtUp = nil
	case <-c.wakeup:
	case <-timer.C:
		c.moderation.stop()
		c.poll()
	}
	c.silentIntervals = 0 // it could not be heard
	c.handleRequests(c.srv.options.Clock())
}
