// Package session is the state machine of an AMQP connection and its channels: bytes from the client in, bytes for the
// client out, and whatever was asked for done in between.
//
// It has no goroutine, no socket and no clock: package wire feeds a [Conn] with what it read and the time, and writes what
// its [Writer] hands out. Queues call back into a connection from their own turns, to deliver and to confirm.
package session

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Conn is one client's connection: the handshake, then channels. It belongs to the goroutine that reads the connection,
// which calls Feed with what it read; only out, and what a channel keeps under out's lock, is touched by others.
type Conn struct {
	srv   *Server
	peer  Peer
	id    uint64 // unique in this process: the owner of exclusive queues
	title string // what spans call it; "" while traces are off
	wake  func() // see [Server.Accept]
	out   writeBuffer

	phase      phase
	counted    bool // counted among the open connections
	user       auth.User
	tracked    *auth.TrackedConn // nil before connection.open
	vhost      *vhost.VHost
	caps       capabilities
	name       string // what the client calls itself, if it does
	channelMax int
	frameMax   int    // negotiated; before that, the most a handshake frame may have
	heartbeat  uint16 // negotiated, seconds

	login       func(context.Context)       // see Login
	loginResult atomic.Pointer[loginResult] // what came of it; nil = nothing so far, or Tick has seen it

	mechanism  string
	properties amqp.Table               // what the client tells of itself
	info       atomic.Pointer[ConnInfo] // nil before connection.open; set once
	blocked    bool                     // Block was called last, not Unblock; written under out's lock

	ended   atomic.Bool            // it is not one of the broker's open connections any more
	evicted atomic.Pointer[string] // why the connection must end; nil = it need not

	channels     []*channel   // by number; nil where none is open. Grown as they are opened; written under out's lock
	openChannels int          // how many of them are not nil
	lastChannel  *channel     // the one the last frame was for
	partial      partialFrame // a body frame that comes in pieces

	now               hook.Instant    // of the current Feed
	block             *block.Block    // the bytes of the current Feed lie in it
	published         bool            // a message was published since Published was asked
	observed          bool            // somebody looks at messages: spans, or the firehose
	consumersCaughtUp <-chan struct{} // see Ahead
	logCaughtUp       <-chan struct{} // see Behind

	// What the current Feed collects: flush lets it happen.
	dirty      []*channel // that published something since
	outbox     outbox
	acks       ackBatches
	belowLimit []*channel // that have room again for consumers that wait for it

	routes           map[routeKey]*cachedRoute // that were used
	pruneAbove       int                       // as soon as there are so many, some are forgotten
	prunedGeneration uint64                    // the vhost's generation when that was done last
	pruneAt          hook.Instant              // when it is to be done again
	tagBuf           []tagged                  // room to work in
}

// Peer is the far end of a connection.
type Peer struct {
	Address  string // "host:port"
	Local    string // the address it connected to
	Loopback bool   // it is this machine
	TLS      bool
}

// phase is how far a connection has come [AMQP 2.2.4].
type phase uint8

const (
	awaitHeader  phase = iota // the protocol header
	awaitStartOK              // connection.start was sent
	awaitLogin                // the credentials in connection.start-ok are being checked
	awaitTuneOK               // connection.tune was sent
	awaitOpen                 // connection.open must come
	running                   // channels may be opened
	closing                   // connection.close was sent or answered; close-ok or the end of the socket is awaited
	denied                    // the handshake failed without an answer
	closed                    // nothing is read, and nothing written beyond what is pending
)

// State is what a connection needs from whoever owns its socket.
type State uint8

// The states, in the order they are gone through.
const (
	Handshake State = iota // bounded in time
	Open
	Closing // connection.close was sent or received: read on, but not for long
	Denied  // leave the peer without an answer for a while, then close the socket
	Closed  // write what is pending, then close the socket
)

// State is how far the connection has come.
func (c *Conn) State() State {
	switch c.phase {
	case running:
		return Open
	case closing:
		return Closing
	case denied:
		return Denied
	case closed:
		return Closed
	}
	return Handshake
}

// Feed handles the complete frames at the start of data, which lies in block, and says how many bytes they took. What
// they ask for is done, and the answers pending, when it returns; messages may lie in block, and hold it. Feed stops
// early when [Conn.Congested] becomes true.
func (c *Conn) Feed(now hook.Instant, block *block.Block, data []byte) (consumed int) {
	c.now, c.block, c.consumersCaughtUp, c.logCaughtUp = now, block, nil, nil
	c.observed = c.srv.spans != nil || c.tracing()
	for !c.out.congested.Load() {
		n := c.step(data[consumed:])
		if n == 0 {
			break
		}
		consumed += n
	}
	c.flush()
	c.block = nil
	return consumed
}

// step handles what data starts with: a frame or, at first, the protocol header. It returns 0 when that is incomplete.
func (c *Conn) step(data []byte) int {
	switch c.phase {
	case awaitHeader:
		return c.header(data)
	case awaitLogin:
		return 0
	case denied, closed:
		return len(data)
	}
	if c.partial.channel != nil {
		return c.continuePartial(data)
	}
	f, n, err := amqp.NextFrame(data, c.frameMax)
	if err != nil {
		c.fail(err)
		c.lose()
		return 0
	}
	if n == 0 {
		return c.beginPartial(data)
	}
	c.frame(f)
	return n
}

// lose is called when it is unknown where the next frame starts: close-ok could not be recognised.
func (c *Conn) lose() {
	if c.phase == closing {
		c.finish()
	}
}

// frame hands a frame to its channel and acts on the error that comes back.
func (c *Conn) frame(f amqp.Frame) {
	if f.Channel == 0 || c.phase != running {
		if err := c.control(f); err != nil {
			c.fail(err)
		}
		return
	}
	ch := c.lastChannel
	if ch == nil || ch.id != f.Channel {
		if ch = c.channel(f.Channel); ch == nil {
			c.unopened(f)
			return
		}
		c.lastChannel = ch
	}
	if err := ch.frame(f); err != nil {
		c.failIn(ch, err)
	}
}

// channel returns the open channel with that number, or nil.
func (c *Conn) channel(id uint16) *channel {
	if int(id) >= len(c.channels) {
		return nil
	}
	return c.channels[id]
}

// failIn closes the channel for a soft error, the connection for any other.
func (c *Conn) failIn(ch *channel, err error) {
	var e *amqp.Error
	if !errors.As(err, &e) || e.Hard() {
		c.fail(err)
		return
	}
	c.log().Warn("channel error", "channel", ch.id, "error", e)
	ch.fail(e)
}

// forget takes a channel that is closed on both sides out of the table.
func (c *Conn) forget(ch *channel) {
	c.tracked.CloseChannel()
	c.lastChannel = nil
	c.openChannels--
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.channels[ch.id] = nil
}

// send makes m wait for the writer.
func (c *Conn) send(channel uint16, m amqp.Method) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.pending = amqp.AppendMethod(c.out.pending, channel, m)
	c.out.kick()
}

// maxLoggedName is how much of the name that a client gives itself goes into each line of the log, bytes.
const maxLoggedName = 200

// log is for what happens seldom.
func (c *Conn) log() *slog.Logger {
	l := c.srv.Log.With("connection", c.peer.Address)
	if c.name != "" {
		l = l.With("name", c.name[:min(len(c.name), maxLoggedName)])
	}
	return l
}

// Tick acts on what nobody asked for on the connection: on what came of a login, on an eviction, and in channels on a consumer that does not
// acknowledge, and on messages that could not be stored. And it forgets routes that lead nowhere any more.
func (c *Conn) Tick(now hook.Instant) {
	c.now = now
	if v := c.loginResult.Swap(nil); v != nil && c.phase == awaitLogin {
		c.loggedIn(v)
	}
	if reason := c.evicted.Load(); reason != nil {
		c.closeForced(*reason)
	}
	for _, ch := range c.channels {
		if ch == nil {
			continue
		}
		if err := ch.tick(now); err != nil {
			c.failIn(ch, err)
		}
	}
	if c.vhost != nil && now >= c.pruneAt {
		c.pruneRoutes()
		c.pruneAt = now.Add(pruneInterval)
	}
	c.flush()
}

// Published reports whether a message was published since it was last asked.
func (c *Conn) Published() bool {
	p := c.published
	c.published = false
	return p
}

// ConsumersCaughtUp returns nil, or, if the last Feed published to a queue whose consumers have plenty to do, what is closed when they
// have less. Until then, within reason, the connection had better not be read from.
func (c *Conn) ConsumersCaughtUp() <-chan struct{} { return c.consumersCaughtUp }

// IncompleteBytes is how many bytes have come in of messages that are not complete.
func (c *Conn) IncompleteBytes() (bytes int) {
	for _, ch := range c.dirty { // as it is after a Feed
		bytes += ch.content.received
	}
	return bytes
}

// LogCaughtUp returns nil, or, if the last Feed published to a durable queue while the disk did not keep up, what is closed when
// it does. Until then the connection must not be read from: all that it publishes is memory.
func (c *Conn) LogCaughtUp() <-chan struct{} { return c.logCaughtUp }

// Congested reports that the peer does not read what it asked for. It should not be read from until Resumed says so.
func (c *Conn) Congested() bool { return c.out.congested.Load() }

// Resumed has a value when the writer has caught up, and maybe when it has not.
func (c *Conn) Resumed() <-chan struct{} { return c.out.resumed }

// SendHeartbeat sends a heartbeat, unless something else was written since it was last called, or is about to be.
func (c *Conn) SendHeartbeat() {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.heartbeat()
}

// Heartbeat is the negotiated interval in seconds; 0 = none.
func (c *Conn) Heartbeat() uint16 { return c.heartbeat }

// Writer is the half of a connection that its writing goroutine uses.
func (c *Conn) Writer() Writer { return Writer{&c.out} }

// Writer hands out what is to be written. It belongs to the goroutine that writes the connection.
type Writer struct{ out *writeBuffer }

// Next returns what is to be written next, in order; it is valid until the next call. The consumers that waited for room are
// to be woken. Nothing pending means that Wake should be waited for; ok is false when nothing will come any more.
func (w Writer) Next() (bs [][]byte, waiting []*queue.Consumer, ok bool) { return w.out.next() }

// End is called when nothing is written any more.
func (w Writer) End() { w.out.written() }

// Wake has a value when Next is worth calling.
func (w Writer) Wake() <-chan struct{} { return w.out.wake }
