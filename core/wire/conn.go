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
	srv     *Server
	socket  net.Conn
	link    *link        // under socket; nil if that is not TCP
	source  netip.Prefix // where the socket comes from
	session *session.Conn
	in      input
	hot     moderation
	ticks   *metronome // while hot.polling
	more    bool       // the last read was so fat that the next one does not wait for a tick

	state         session.State   // as it was last seen
	due           hook.Instant    // when something is to be done if nothing is read
	rearm         bool            // the socket's read deadline is not what due says
	fedSincePause int             // bytes fed that it was not held back for yet, while it is ahead or a message of it is not complete
	behind        bool            // in holds frames that were left because of congestion, or because the client is being logged in
	alarm         <-chan struct{} // closed when the alarm it waits for is over, while it is blocked
	late          <-chan struct{} // closed when the disk has caught up with it; nil while it need not wait for that
	problem       error           // why reading ended, if not by agreement
	giveUp        func()          // ends the login; nil = there was none

	beatAt hook.Instant // when it is looked next whether anything was written
	beats  uint         // how often that was
	silent int          // how often in a row it was looked whether anything was read, and nothing was

	asks      atomic.Uint32 // what others ask of the reader
	poked     chan struct{} // capacity 1; wakes a reader that does not read
	unwritten net.Buffers   // what the writer is about to write
	written   chan struct{} // closed when the writer has ended
	traffic   traffic
}

// What can be asked of a reader.
const (
	askShutdown uint32 = 1 << iota // close the connection in good order
	askStop                        // the socket is closed: end
	askTick                        // the session has something to do
)

const (
	silence   = 3 * time.Second  // how long a failed handshake is left without an answer
	patience  = 5 * time.Second  // how long a peer has to take note of an end
	idleBeat  = 30 * time.Second // how often an idle connection is looked at
	quickBeat = 50 * time.Millisecond
)

func newConn(s *Server, socket net.Conn) *conn {
	c := &conn{srv: s, socket: socket, source: sourceOf(socket), in: newInput(), poked: make(chan struct{}, 1), written: make(chan struct{})}
	if c.link = linkOf(socket); readsNow && c.link != nil && c.link.ahead == nil {
		c.link.idle = c.in.park
	}
	c.session = s.sessions.Accept(peerOf(socket), func() { c.ask(askTick) })
	return c
}

// ask wakes the reader to do something.
func (c *conn) ask(what uint32) {
	c.asks.Or(what)
	_ = c.socket.SetReadDeadline(time.Unix(1, 0)) // fails when the socket is closed, which wakes the reader too
	c.poke()
}

func (c *conn) poke() {
	select {
	case c.poked <- struct{}{}:
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
	for c.state <= session.Closing && c.problem == nil {
		switch {
		case c.held():
			c.wait()
		case c.behind:
			c.feed(c.srv.options.Clock(), 0)
		default:
			c.fill()
		}
	}
}

// fill reads once.
func (c *conn) fill() {
	space, placed := c.space()
	n, err := c.receive(space, placed)
	now := c.srv.options.Clock()
	if c.hot.note(now, n) {
		c.poll()
	}
	if n > 0 {
		c.silent = 0
		c.traffic.read(n)
		if placed {
			c.session.Took(n)
		} else {
			c.in.got(n)
		}
		c.feed(now, n)
	}
	switch {
	case errors.Is(err, errNothing):
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.rearm = true
	case err != nil && c.state == session.Closing:
		c.session.End() // what is pending may still be of interest
		c.plan(now)
		return
	case err != nil && c.state < session.Closing:
		c.problem = err
		return
	}
	c.handleRequests(now)
}

// feed hands the session what was read, of which n bytes are new.
func (c *conn) feed(now hook.Instant, n int) {
	c.in.consumed(c.session.Feed(now, c.in.block, c.in.waiting()))
	c.behind = c.session.Congested()
	if c.state == session.Handshake {
		c.login()
	}
	c.pace(n)
	c.late = c.session.LogCaughtUp()
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
		c.giveUp = cancel
		c.srv.running.Go(func() { login(ctx) })
	}
	c.behind = c.behind || c.session.LoggingIn() && len(c.in.waiting()) > 0
}

// loggedIn forgets the login, and ends it if it goes on.
func (c *conn) loggedIn() {
	if c.giveUp != nil {
		c.giveUp()
		c.giveUp = nil
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
		c.fedSincePause = min(c.fedSincePause, c.session.Receiving())
		return
	}
	if c.fedSincePause < pauseEvery {
		return
	}
	breaths := c.fedSincePause / pauseEvery
	c.fedSincePause %= pauseEvery
	c.breathe(caughtUp, time.Duration(breaths)*pauseFor)
}

// breathe waits until the consumers have caught up, the time is over, or the reader is asked for something.
func (c *conn) breathe(caughtUp <-chan struct{}, most time.Duration) {
	if c.asked() {
		return
	}
	c.srv.waiting[forConsumers].Add(1)
	defer c.srv.waiting[forConsumers].Add(-1)
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-caughtUp:
	case <-timer.C:
	case <-c.poked:
		c.poke() // it is attended to later, by who may wait for that
	}
}

// asked reports whether the reader is asked for something. If not, poked has no value of an earlier time.
func (c *conn) asked() bool {
	select {
	case <-c.poked:
	default:
	}
	if c.asks.Load() == 0 {
		return false
	}
	c.poke()
	return true
}

// plan sets due when the connection has got further.
func (c *conn) plan(now hook.Instant) {
	state := c.session.State()
	if state == c.state && c.due != 0 {
		return
	}
	c.state, c.rearm = state, true
	switch state {
	case session.Handshake:
		c.due = now.Add(c.srv.options.HandshakeTimeout)
	case session.Open:
		c.loggedIn()
		c.srv.opened(c)
		c.beatAt = together(now, c.halfBeat())
		c.due = c.nextLook(now)
	default:
		c.due = now.Add(patience)
	}
}

// handleRequests does what was asked for and what is due, and sets the socket's deadline to what is due next.
func (c *conn) handleRequests(now hook.Instant) {
	for c.problem == nil && (c.rearm || now >= c.due || c.asks.Load() != 0) {
		asks := c.asks.Swap(0)
		if asks&askStop != 0 {
			c.problem = net.ErrClosed
		}
		if asks&askShutdown != 0 {
			c.session.Shutdown(now, "shutdown")
			c.plan(now)
		}
		if asks&askTick != 0 {
			c.session.Tick(now)
			c.plan(now)
		}
		if now >= c.due {
			c.overdue(now)
		}
		// Whoever asks sets a deadline of its own after the ask: the loop sees the one or the read the other.
		c.rearm = false
		_ = c.socket.SetReadDeadline(time.Now().Add(c.due.Sub(now))) // fails when the socket is closed: so does the read
	}
}

// overdue is called when due has come.
func (c *conn) overdue(now hook.Instant) {
	switch c.state {
	case session.Handshake:
		c.problem = errHandshake
	case session.Open:
		c.look(now)
	default:
		c.problem = errLeftOpen
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

// nextLook is when an open connection is looked at next.
func (c *conn) nextLook(now hook.Instant) hook.Instant {
	interval := idleBeat
	if t := c.srv.options.Session.ConsumerTimeout; t > 0 {
		interval = min(interval, max(t/4, quickBeat))
	}
	next := together(now, interval)
	if c.halfBeat() > 0 {
		next = min(next, c.beatAt)
	}
	return next
}

// together is about an interval from now, rather less, and the same for connections that are looked at in the same intervals: one
// at a time each of them would wake a processor, which costs more than the look does.
func together(now hook.Instant, interval time.Duration) hook.Instant {
	at, grain := now.Add(interval), hook.Instant(interval/256)
	if grain == 0 {
		return at
	}
	return at - at%grain
}

// look looks at an open connection.
func (c *conn) look(now hook.Instant) {
	if half := c.halfBeat(); half > 0 && now >= c.beatAt {
		c.beatAt = together(now, half)
		if !c.beat() {
			c.problem = errSilent
			return
		}
	}
	c.due = c.nextLook(now)
	c.in.beat()
	if c.link != nil {
		c.link.relax()
	}
	c.session.Tick(now)
	c.plan(now)
}

// lostAfter is how many intervals in a row must have passed without a word until a peer is given up. What it said last may have
// been said at the end of the interval before: it is cut off between two and three intervals after that, as by RabbitMQ.
const lostAfter = 3

// beat sends a heartbeat if nothing was written for half an interval. After every whole interval it looks whether the peer said
// anything, and returns false when it is to be given up [AMQP 4.2.7].
func (c *conn) beat() (alive bool) {
	c.session.SendHeartbeat()
	if c.beats++; c.beats%2 != 0 {
		return true
	}
	c.silent++
	return c.silent < lostAfter || c.held()
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

// held reports that the connection may not be read from now.
func (c *conn) held() bool {
	return c.session.Congested() || (c.alarm != nil || c.late != nil) && c.state == session.Open || c.behind && c.session.LoggingIn()
}

// wait waits for a reason to look again. If that takes long it ends polling: ticks that nobody waits for cost the system time.
func (c *conn) wait() {
	why := c.reasons()
	c.srv.waiting.enter(&why)
	defer c.srv.waiting.leave(&why)
	most := c.due.Sub(c.srv.options.Clock())
	if c.hot.polling {
		most = min(most, pollHeld)
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-c.session.Resumed():
	case <-c.alarm:
		c.unblock()
	case <-c.late:
		c.late = nil
	case <-c.poked:
	case <-timer.C:
		c.hot.stop()
		c.poll()
	}
	c.silent = 0 // it could not be heard
	c.handleRequests(c.srv.options.Clock())
}
