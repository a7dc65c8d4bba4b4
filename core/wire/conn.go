package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// conn is one socket. It belongs to its reader, the goroutine that executes run, except for
// atomics and channels. Its writer, the goroutine that executes write, uses socket,
// unwritten and written.
type conn struct {
	srv        *Server
	socket     net.Conn
	tcp        *tcpConn     // under socket; nil if that is not TCP
	source     netip.Prefix // the network from which the socket connects
	session    *session.Conn
	in         input
	moderation moderation
	ticks      *metronome // while polling
	readOn     bool       // the last read brought so much that the next one does not wait for a tick

	spent         time.Duration   // part of the handshake's time that the header of a proxy took
	waited        time.Duration   // part of LoginWait that has passed
	left          time.Duration   // remaining time of the handshake while its login waits for its turn; otherwise 0
	state         session.State   // as last seen
	deadline      hook.Instant    // of the next timer
	rearm         bool            // the socket's read deadline differs from deadline
	fedSincePause int             // bytes fed since the last pause, while it publishes faster than consumers take, or within a message
	unfed         bool            // in has frames that Feed left because of congestion, a login or many copies
	alarm         <-chan struct{} // closed when the alarm that blocks the publisher ends; nil means not blocked
	logCaughtUp   <-chan struct{} // closed when the log has caught up; nil if the connection need not wait for the log
	failure       error           // the error that ended reading
	suspended     atomic.Bool     // the peer has been told that the server is suspended; Resume reads it
	held          atomic.Bool     // see heldBack; the writer reads it
	cancelLogin   func()          // nil if no login is under way

	// In a cluster.
	search  search
	found   atomic.Pointer[found] // set by the search, taken by the reader
	relay   atomic.Pointer[relay] // nil if this node serves the connection; the reader sets it once
	skip    uint64                // bytes still to drop of a frame that was passed on in part
	adopted *session.Handover     // nil if the client is connected to this node; never changed
	front   wlog.NodeID           // the node that has handed the connection over; 0 = none

	heartbeatAt     hook.Instant // when heartbeats are checked next
	heartbeats      uint         // checks so far
	silentIntervals int          // intervals in a row in which no bytes arrived
	lastWritten     uint64       // bytes written to the peer as of maySpeak's last check

	requests  atomic.Uint32 // requests to the reader, as bits
	wakeup    chan struct{} // capacity 1; wakes a reader that is not reading
	unwritten net.Buffers   // buffers that the writer is writing
	written   chan struct{} // closed when the writer has ended
	traffic   traffic
}

// Requests to a reader.
const (
	requestShutdown uint32 = 1 << iota // close the connection in good order
	requestStop                        // end: the socket is closed
	requestTick                        // call the session's Tick
	requestResume                      // the server is no longer suspended
	requestFound                       // the search has ended
	requestOwner                       // the owner's side has ended, or the vhost has another owner
)

const (
	deniedDelay  = 3 * time.Second  // how long a failed handshake gets no answer
	closeTimeout = 5 * time.Second  // for the peer to close its side
	idleInterval = 30 * time.Second // between checks of an open connection
	minInterval  = 50 * time.Millisecond
)

func newConn(s *Server, socket net.Conn) *conn {
	c := &conn{srv: s, socket: socket, source: sourceOf(socket), in: newInput(), wakeup: make(chan struct{}, 1), written: make(chan struct{})}
	if c.tcp = tcpConnOf(socket); c.tcp != nil && c.tcp.forwarded != nil {
		c.spent = time.Since(c.tcp.forwarded.Accepted)
	}
	if readsNow && c.tcp != nil && c.tcp.buf == nil {
		c.tcp.onIdle = c.in.park
	}
	c.session = s.sessions.Accept(peerOf(socket), func() { c.request(requestTick) })
	return c
}

// request asks the reader to do something, and wakes it.
func (c *conn) request(what uint32) {
	c.requests.Or(what)
	_ = c.socket.SetReadDeadline(time.Unix(1, 0)) // fails if the socket is closed, which wakes the reader too
	c.wake()
}

func (c *conn) wake() {
	select {
	case c.wakeup <- struct{}{}:
	default:
	}
}

// requested reports whether there are requests. If there are none, it also empties wakeup.
func (c *conn) requested() bool {
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

// run is the reader: it reads from the connection until that ends, and then cleans up.
func (c *conn) run() {
	now := c.srv.options.Clock()
	c.plan(now)
	c.handleRequests(now)
	c.read()
	c.end()
}

// plan sets the deadline when the session's state has changed.
func (c *conn) plan(now hook.Instant) {
	state := c.session.State()
	if state == c.state && c.deadline != 0 {
		if state == session.Handshake {
			c.planTurn(now)
		}
		return
	}
	c.state, c.rearm = state, true
	switch state {
	case session.Handshake:
		c.deadline = now.Add(c.srv.options.HandshakeTimeout - c.spent)
	case session.Elsewhere:
		c.endLogin()
		c.srv.opened(c) // it has logged in; many connections at a time may wait for an owner
		c.heartbeatAt = aligned(now, c.heartbeatInterval())
		c.deadline = c.nextCheck(now)
		c.seek()
	case session.Relayed:
		c.endSearch()
		c.deadline = c.nextCheck(now)
	case session.Open:
		c.endLogin()
		c.endSearch()
		c.srv.opened(c)
		c.heartbeatAt = aligned(now, c.heartbeatInterval())
		c.deadline = c.nextCheck(now)
	default:
		c.endSearch()
		c.deadline = now.Add(closeTimeout)
	}
}

// planTurn stops the clock of the handshake while the login waits for its turn, which has a time limit of its own.
func (c *conn) planTurn(now hook.Instant) {
	waits, most := c.session.AwaitsTurn(), c.srv.options.LoginWait
	if waits == (c.left > 0) {
		return
	}
	c.rearm = true
	if waits {
		c.left = max(c.deadline.Sub(now), 1)
		c.deadline = now.Add(most - c.waited)
		return
	}
	if c.cancelLogin != nil { // otherwise expire has set the deadline
		c.waited = most - c.deadline.Sub(now)
		c.deadline = now.Add(c.left)
	}
	c.left = 0
}

// handleRequests serves pending requests and expired timers, then sets the read deadline to the next timer.
func (c *conn) handleRequests(now hook.Instant) {
	for c.failure == nil && (c.rearm || now >= c.timer() || c.requests.Load() != 0) {
		requests := c.requests.Swap(0)
		if requests&requestStop != 0 {
			c.failure = net.ErrClosed
		}
		if requests&requestShutdown != 0 {
			c.shutDown(now)
		}
		if requests&requestTick != 0 || c.leaseEnds(now) {
			c.session.Tick(now)
			c.plan(now)
		}
		if requests&requestResume != 0 {
			c.resume()
		}
		if requests&requestFound != 0 {
			c.arrive(now)
		}
		if requests&requestOwner != 0 {
			c.handleOwner(now)
		}
		if now >= c.deadline {
			c.expire(now)
		}
		// A request sets a read deadline after its bit: either this loop sees the bit, or the read sees the deadline.
		c.rearm = false
		_ = c.socket.SetReadDeadline(time.Now().Add(c.timer().Sub(now))) // fails if the socket is closed, and so does the read
	}
}

// shutDown closes the connection because the server ends. A relayed connection is closed
// after its writer has stopped, in a way that depends on the owner's last frames.
func (c *conn) shutDown(now hook.Instant) {
	if r := c.relaying(); r != nil {
		r.leave()
		c.deadline, c.rearm = now.Add(closeTimeout), true // the writer may wait for the client
		return
	}
	c.session.Shutdown(now, shutdownReason)
	c.plan(now)
}

// shutdownReason is the text of connection.close that clients get when the server ends.
const shutdownReason = "shutdown"

// timer returns the instant at which the connection has to act without having received a byte.
func (c *conn) timer() hook.Instant {
	if at := c.session.LeaseAt(); at != 0 {
		return min(at, c.deadline)
	}
	return c.deadline
}

// leaseEnds reports whether the lease of a delivery may have ended.
func (c *conn) leaseEnds(now hook.Instant) bool {
	at := c.session.LeaseAt()
	return at != 0 && now >= at
}

var (
	errHandshake = errors.New("handshake timeout")
	errLeftOpen  = errors.New("client did not close its socket")
	errSilent    = errors.New("missed heartbeats from client")
)

// expire handles the deadline.
func (c *conn) expire(now hook.Instant) {
	switch c.state {
	case session.Handshake:
		if c.left > 0 && c.cancelLogin != nil { // the login is refused, and the client gets the reason
			c.endLogin()
			c.waited, c.deadline = c.srv.options.LoginWait, now.Add(c.left)
			return
		}
		c.failure = errHandshake
	case session.Elsewhere, session.Open:
		c.check(now)
	case session.Relayed:
		c.checkRelay(now)
	default:
		c.failure = errLeftOpen
	}
}

// heartbeatInterval returns half the negotiated heartbeat; 0 means none.
func (c *conn) heartbeatInterval() time.Duration {
	return time.Duration(c.session.Heartbeat()) * time.Second / 2
}

// nextCheck returns when an open connection is checked next.
func (c *conn) nextCheck(now hook.Instant) hook.Instant {
	interval := idleInterval
	if t := c.srv.options.Session.ConsumerTimeout; t > 0 {
		interval = min(interval, max(t/4, minInterval))
	}
	next := aligned(now, interval)
	if c.heartbeatInterval() > 0 {
		next = min(next, c.heartbeatAt)
	}
	return next
}

// aligned returns an instant about one interval from now, rounded down so that many
// connections are checked at the same instant: waking a processor for each connection costs
// more than the check.
func aligned(now hook.Instant, interval time.Duration) hook.Instant {
	at, step := now.Add(interval), hook.Instant(interval/256)
	if step == 0 {
		return at
	}
	return at - at%step
}

// check checks the heartbeats of an open connection, releases memory that it does not need, and ticks its session.
func (c *conn) check(now hook.Instant) {
	if c.heartbeatDue(now) {
		c.session.SendHeartbeat()
		if c.silent(maxSilentIntervals) {
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

// maxSilentIntervals is the number of heartbeat intervals without a byte after which a
// connection ends. The peer's last byte may have come at the end of the interval before
// them, so the peer is cut off after two to three intervals, as by RabbitMQ.
const maxSilentIntervals = 3

// heartbeatDue reports whether half a heartbeat interval has passed since it last returned true.
func (c *conn) heartbeatDue(now hook.Instant) bool {
	interval := c.heartbeatInterval()
	if interval == 0 || now < c.heartbeatAt {
		return false
	}
	c.heartbeatAt = aligned(now, interval)
	return true
}

// silent is called after each half of a heartbeat interval. It reports whether the peer has
// sent nothing for most intervals, so that the connection must end [AMQP 4.2.7].
func (c *conn) silent(most int) bool {
	if c.heartbeats++; c.heartbeats%2 != 0 {
		return false
	}
	if c.mayNotRead() && c.maySpeak() {
		c.silentIntervals = 0
		return false
	}
	c.silentIntervals++
	return c.silentIntervals >= most
}

// maySpeak reports whether the peer may be alive although the connection is not read. If
// the connection is not read only because the peer does not read, maySpeak reads from the
// socket, and the bytes are fed later. Once mostWaiting bytes wait, maySpeak instead checks
// whether the peer has read any bytes since the last call.
func (c *conn) maySpeak() bool {
	if !forClientAlone(c.reasons()) {
		return true
	}
	if len(c.in.unread()) >= mostWaiting {
		was := c.lastWritten
		c.lastWritten = c.traffic.bytesOut.Load()
		return c.lastWritten != was
	}
	const look = 100 * time.Millisecond                // far longer than a busy machine needs to begin to read
	_ = c.socket.SetReadDeadline(time.Now().Add(look)) // fails if the socket is closed, and so does the read
	switch n, err := c.socket.Read(c.in.space()); {
	case n > 0:
		c.traffic.read(n)
		c.in.added(n)
		c.in.consumed(0) // makes space for more
		c.unfed = true
		return true
	case err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, errWouldBlock):
		c.failure = err
	}
	return false
}

// login runs a login in a goroutine of its own, while the reader still notices a timeout
// and the end of the socket. Input that arrives in the meantime waits.
func (c *conn) login() {
	if login := c.session.Login(); login != nil {
		ctx, cancel := context.WithCancel(context.Background())
		c.cancelLogin = cancel
		c.srv.running.Go(func() { login(ctx) })
	}
	c.unfed = c.unfed || c.session.LoggingIn() && len(c.in.unread()) > 0
}

// endLogin cancels a login in progress.
func (c *conn) endLogin() {
	if c.cancelLogin != nil {
		c.cancelLogin()
		c.cancelLogin = nil
	}
}

// write is the writer: it writes everything that is pending in one call, again and again, until the session has ended.
func (c *conn) write() {
	defer close(c.written)
	w := c.session.Writer()
	defer w.End()
	for {
		bs, stalled, ok := w.Next()
		for _, consumer := range stalled {
			consumer.Wake() // the queue refills the buffer while this is being written
		}
		switch {
		case len(bs) > 0:
			if c.held.Load() { // the peer may have received something to settle
				c.wake()
			}
			if err := c.send(bs); err != nil {
				c.socket.Close() // wakes the reader
				c.request(requestStop)
				return
			}
		case ok:
			if r := c.relay.Load(); r != nil && !r.begun {
				c.passDown(r)
				continue
			}
			<-w.Wake()
		default:
			return
		}
	}
}

func (c *conn) send(bs [][]byte) error {
	n := 0
	for _, b := range bs {
		n += len(b)
	}
	c.traffic.wrote(n)
	if len(bs) == 1 {
		_, err := c.socket.Write(bs[0])
		return err
	}
	c.unwritten = bs
	_, err := c.unwritten.WriteTo(c.socket)
	c.unwritten = nil
	return err
}

// logTLS logs why the TLS handshake failed.
func (c *conn) logTLS() {
	should, skipped := c.srv.failedTLS.Next(c.srv.options.Clock())
	if !should {
		return
	}
	log := c.srv.log
	if skipped > 0 {
		log = log.With("not_told", skipped)
	}
	log.Warn("TLS handshake failed", "connection", c.socket.RemoteAddr().String(), "reason", fmt.Sprintf("%.500v", c.failure)) // it quotes a stranger's certificates
}

// end lets the peer read the last bytes that were written, closes the socket and releases everything.
func (c *conn) end() {
	c.unpoll()
	c.endLogin()
	c.endSearch()
	if r := c.relay.Load(); r != nil {
		c.endRelay(r)
	}
	switch {
	case c.failure != nil && failedTLS(c.socket, c.failure):
		c.logTLS()
	case c.failure != nil:
		c.session.Lost(c.failure)
	case c.state == session.Denied:
		c.delayDenied()
	default:
		c.linger()
	}
	c.socket.Close()
	c.session.Release(c.srv.options.Clock())
	<-c.written
	c.in.release()
	c.srv.leave(c)
}

// delayDenied delays closing the socket of a denied client, unless the server ends or
// another connection needs the place.
func (c *conn) delayDenied() {
	timer := time.NewTimer(deniedDelay)
	defer timer.Stop()
	for c.requests.Load()&requestStop == 0 {
		select {
		case <-timer.C:
			return
		case <-c.srv.quit:
			return
		case <-c.wakeup:
		}
	}
}

// failedTLS reports whether a TLS handshake failed in a way that an operator should see. A
// peer that only checks whether the port is open closes the socket without a TLS message.
func failedTLS(socket net.Conn, why error) bool {
	c, ok := socket.(*tls.Conn)
	if !ok || c.ConnectionState().HandshakeComplete || errors.Is(why, io.EOF) || errors.Is(why, errHandshake) {
		return false
	}
	e, ok := errors.AsType[*net.OpError](why)
	return !ok || e.Op == "remote error" // an alert from the peer
}

// linger waits until everything is written and the peer has closed its side, for at most
// closeTimeout. If a socket with unread input is closed, the system discards data that the
// peer has not read yet.
func (c *conn) linger() {
	_ = c.socket.SetDeadline(time.Now().Add(closeTimeout)) // fails if the socket is closed: nothing to wait for
	<-c.written
	half, ok := c.socket.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.socket) // in any case the socket is closed next
}
