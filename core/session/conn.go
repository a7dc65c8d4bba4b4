// Package session implements AMQP connections and channels as a state machine: bytes from the client in, bytes for the client out.
//
// It has no goroutine, socket or clock. Package wire feeds a [Conn] with the bytes it read and the time, and writes what the
// connection's [Writer] returns. Queues call back from their own turns to deliver and to confirm.
package session

import (
	"crypto/x509"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Conn is one client's connection: the handshake, then channels. It belongs to its reader, the goroutine that calls Feed. Other
// goroutines use only out, what out's lock guards, and atomics.
type Conn struct {
	shared
	peer Peer
	id   uint64 // unique in this process: the owner of exclusive queues
	wake func() // see [Server.Accept]
	out  writeBuffer

	phase      phase
	user       auth.User
	offset     time.Duration // difference between the vhost's time and this node's
	caps       capabilities
	name       string // connection_name of the client; "" if it gave none
	channelMax int
	frameMax   int    // negotiated; before that, handshakeFrameMax
	heartbeat  uint16 // negotiated, seconds

	front      wlog.NodeID // the node that has handed the connection over; 0 means none
	wanted     string      // vhost of connection.open, in a cluster
	registry   registryView
	login      login
	membership membership

	mechanism  string
	properties amqp.Table               // of the client
	info       atomic.Pointer[ConnInfo] // nil before connection.open; set once
	blocked    bool                     // Block was called and Unblock was not; written under out's lock

	ended   atomic.Bool            // it is no longer one of the broker's open connections
	evicted atomic.Pointer[string] // the reason why the connection must close; nil if it need not

	closedFor *amqp.Error // the broker's connection.close; nil = there was none

	channels channels
	partial  partialFrame
}

// shared is what all channels of a connection use. It belongs to the connection's reader, but for what its parts say.
type shared struct {
	srv   *Server
	vhost *vhost.VHost // nil before connection.open

	access   access
	round    round
	routes   routeCache
	plans    plans
	reader   propsReader
	observer observer
	alarm    leaseAlarm
}

// Peer is the far end of a connection.
type Peer struct {
	Address  string // "host:port"
	Local    string // the address it connected to
	Loopback bool   // the peer is on this machine
	TLS      bool
	// Certificate returns the verified certificate that the client has presented; nil = it
	// has presented none. It is called after bytes have arrived. Without TLS, the field is
	// nil.
	Certificate func() *x509.Certificate
}

// certificate returns the client's certificate; nil = there is none.
func (p *Peer) certificate() *x509.Certificate {
	if p.Certificate == nil {
		return nil
	}
	return p.Certificate()
}

// phases gives each phase of a connection its state and its RabbitMQ name, which appears in reply texts.
var phases = [...]struct {
	state State
	name  string
}{
	awaitHeader:  {Handshake, "starting"},
	awaitStartOK: {Handshake, "starting"},
	awaitLogin:   {Handshake, "starting"},
	awaitTuneOK:  {Handshake, "tuning"},
	awaitOpen:    {Handshake, "opening"},
	elsewhere:    {Elsewhere, "opening"},
	relayed:      {Relayed, "running"},
	running:      {Open, "running"},
	closing:      {Closing, "closing"},
	denied:       {Denied, "closed"},
	closed:       {Closed, "closed"},
}

func (p phase) String() string { return phases[p].name }

// phase is the progress of a connection [AMQP 2.2.4].
type phase uint8

const (
	awaitHeader  phase = iota // the protocol header
	awaitStartOK              // connection.start was sent
	awaitLogin                // the credentials in connection.start-ok are being checked
	awaitTuneOK               // connection.tune was sent
	awaitOpen                 // connection.open must follow
	elsewhere                 // looking for the vhost's owner
	relayed                   // the owner has adopted the connection
	running                   // channels may be opened
	closing                   // connection.close was sent or answered; awaits close-ok or the end of the socket
	denied                    // the handshake failed without an answer
	closed                    // no more input is read; only pending bytes are written
)

// State says how the owner of a connection's socket must treat it.
type State uint8

// The states, in order.
const (
	Handshake State = iota // limit it in time
	Elsewhere              // find the owner of the vhost: see [Conn.Handover]. Feed consumes nothing
	Relayed                // pass on the bytes, without Feed
	Open
	Closing // connection.close was sent or received: keep reading for a short time
	Denied  // give no answer for a while, then close the socket
	Closed  // write the pending bytes, then close the socket
)

// State returns the state of the connection.
func (c *Conn) State() State { return phases[c.phase].state }

// Feed handles the complete frames at the start of data, which lies in block, and returns how many bytes they took. When it
// returns, their requests are done and the answers are pending. Messages may refer to block and retain it. Feed stops early when
// [Conn.Congested] becomes true, or after maxCopies messages: see [Conn.Unfed].
func (c *Conn) Feed(now hook.Instant, block *block.Block, data []byte) (consumed int) {
	c.round.begin(now.Add(c.offset), block)
	c.observer.begin()
	for !c.Unfed() {
		n := c.step(data[consumed:])
		if n == 0 {
			break
		}
		consumed += n
	}
	c.round.end()
	return consumed
}

// step handles the frame or the protocol header that data starts with, and returns its size; 0 if it is incomplete.
func (c *Conn) step(data []byte) int {
	switch c.phase {
	case awaitHeader:
		return c.header(data)
	case awaitLogin, elsewhere, relayed:
		return 0
	case denied, closed:
		return len(data)
	}
	if c.partial.open() {
		return c.continuePartial(data)
	}
	f, n, err := amqp.NextFrame(data, c.frameMax)
	if err != nil {
		c.failFraming(err)
		return 0
	}
	if n == 0 {
		if c.phase != running {
			return 0
		}
		return c.partial.begin(&c.channels, data)
	}
	c.frame(f)
	return n
}

// failFraming ends the connection because of a malformed frame. The start of the next frame is unknown, so close-ok could not be
// recognised.
func (c *Conn) failFraming(err error) {
	c.fail(err)
	c.End()
}

// frame passes a frame to its channel and handles the error it returns.
func (c *Conn) frame(f amqp.Frame) {
	if f.Channel == 0 || c.phase != running {
		if err := c.control(f); err != nil {
			c.fail(err)
		}
		return
	}
	ch := c.channels.at(f.Channel)
	if ch == nil {
		if err := c.openChannel(f); err != nil {
			c.fail(err)
		}
		return
	}
	if err := ch.frame(f); err != nil {
		c.failIn(ch, err)
	}
}

// failIn closes the channel for a soft error, the connection for any other.
func (c *Conn) failIn(ch *channel, err error) {
	var e *amqp.Error
	if !errors.As(err, &e) || e.Hard() {
		c.fail(err)
		return
	}
	c.log().Warn("channel error", "channel", ch.outlet.id, "error", e)
	ch.fail(e)
}

// forget removes a channel that both sides have closed.
func (c *Conn) forget(channel uint16) {
	c.membership.closeChannel()
	c.channels.remove(channel)
}

// maxLoggedName bounds the client's name in log lines, bytes.
const maxLoggedName = 200

// log returns the logger of the connection. It allocates, so it is for rare events.
func (c *Conn) log() *slog.Logger {
	l := c.srv.Log.With("connection", c.peer.Address)
	if c.name != "" {
		l = l.With("name", c.name[:min(len(c.name), maxLoggedName)])
	}
	return l
}

// Tick handles events that no frame causes: the result of a login, an eviction, stopped queues, messages that could not be stored,
// acknowledgement timeouts, the end of deliveries' leases, and obsolete routes.
func (c *Conn) Tick(now hook.Instant) {
	now = now.Add(c.offset)
	c.round.tick(now)
	if r := c.login.takeResult(); r != nil && c.phase == awaitLogin {
		c.loggedIn(r)
	}
	if reason := c.evicted.Load(); reason != nil && c.phase == running {
		c.log().Warn("connection closed", "user", c.user.Name, "vhost", c.vhost.Name(), "reason", *reason)
		c.close(amqp.Errorf(amqp.ReplyConnectionForced, "%s", *reason))
	}
	if c.alarm.due(now) {
		for _, ch := range c.channels.all() {
			if ch != nil && !ch.outlet.closing {
				ch.deliveries.unsettled.endLeases(now)
			}
		}
	}
	for _, ch := range c.channels.all() {
		if ch == nil {
			continue
		}
		if err := ch.tick(now); err != nil {
			c.failIn(ch, err)
		}
	}
	if c.vhost != nil {
		c.routes.tick(now)
	}
	c.round.flush()
}

// Published reports whether a message was published since the previous call.
func (c *Conn) Published() bool { return c.round.takePublished() }

// ConsumersCaughtUp returns a channel if the last Feed published to a queue whose consumers
// have fallen behind, otherwise nil. The channel is closed when they have caught up. Until
// then the connection should be throttled.
func (c *Conn) ConsumersCaughtUp() <-chan struct{} { return c.round.consumers() }

// LogCaughtUp returns a channel if the last Feed published to a durable queue whose log has
// fallen behind, otherwise nil. The channel is closed when the log has caught up. Until
// then the connection must not be read, because the messages it publishes stay in memory.
func (c *Conn) LogCaughtUp() <-chan struct{} { return c.round.log() }

// Congested reports that the peer does not read the broker's answers. It must not be read from until Resumed has a value.
func (c *Conn) Congested() bool { return c.out.congested.Load() }

// Unfed reports that the last Feed may have left whole frames, which another Feed takes.
func (c *Conn) Unfed() bool { return c.Congested() || c.round.full() }

// Resumed has a value when the peer has read the answers. It may also have one without that.
func (c *Conn) Resumed() <-chan struct{} { return c.out.resumed }

// IncompleteBytes returns how many bytes of incomplete messages have been received.
func (c *Conn) IncompleteBytes() int { return c.round.incompleteBytes() }

// SendHeartbeat sends a heartbeat, unless something was written since the previous call or is pending.
func (c *Conn) SendHeartbeat() {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.heartbeat()
}

// Heartbeat returns the negotiated interval in seconds; 0 means none.
func (c *Conn) Heartbeat() uint16 { return c.heartbeat }

// Writer returns the part of the connection that its writer goroutine uses.
func (c *Conn) Writer() Writer { return Writer{&c.out} }

// Writer returns the bytes to write. It belongs to the goroutine that writes to the socket.
type Writer struct{ out *writeBuffer }

// Next returns the bytes to write next, valid until the next call, and stalled consumers that the caller must wake. If there are no
// bytes, the caller waits for Wake; ok is false if there will not be any more.
func (w Writer) Next() (bs [][]byte, stalled []*queue.Consumer, ok bool) { return w.out.next() }

// End releases the result of the last Next. The caller writes nothing more.
func (w Writer) End() { w.out.written() }

// Wake has a value when Next should be called.
func (w Writer) Wake() <-chan struct{} { return w.out.wake }

// control handles frames on channel 0, and all frames while channels are unavailable.
func (c *Conn) control(f amqp.Frame) error {
	if f.Type == amqp.FrameHeartbeat || c.phase >= closing && f.Channel != 0 {
		return nil
	}
	if f.Type != amqp.FrameMethod || f.Channel != 0 {
		return f.Unexpected()
	}
	m, err := amqp.ParseMethod(f.Payload)
	if err != nil {
		return err
	}
	return c.method(m)
}

// method handles a method of class connection, if the phase allows it.
func (c *Conn) method(m amqp.Method) error {
	switch m := m.(type) {
	case *amqp.ConnectionClose:
		c.closeByPeer(m)
		return nil
	case *amqp.ConnectionStartOK:
		if c.phase == awaitStartOK {
			return c.startOK(m)
		}
	case *amqp.ConnectionTuneOK:
		if c.phase == awaitTuneOK {
			return c.tuneOK(m)
		}
	case *amqp.ConnectionOpen:
		if c.phase == awaitOpen {
			return c.openVHost(m)
		}
	case *amqp.ConnectionUpdateSecret:
		if c.phase == running {
			c.log().Info("secret updated", "user", c.user.Name, "reason", m.Reason)
			c.out.post(0, &amqp.ConnectionUpdateSecretOK{}) // the secret is not used, because passwords do not expire
			return nil
		}
	case *amqp.ConnectionCloseOK:
		if c.phase == closing {
			c.finish()
			return nil
		}
	}
	if c.phase == closing {
		return nil
	}
	return amqp.Errorf(amqp.ReplyChannelError, "unexpected method in connection state %s", c.phase).In(m.ID())
}

// openChannel handles a frame on a channel that is not open; only channel.open is allowed there.
func (c *Conn) openChannel(f amqp.Frame) error {
	if f.Type != amqp.FrameMethod {
		return amqp.Errorf(amqp.ReplyUnexpectedFrame, "expected method frame, got non method frame instead")
	}
	class, method, err := amqp.MethodID(f.Payload)
	if err != nil {
		return err
	}
	if class != amqp.ClassChannel || method != amqp.MethodChannelOpen {
		return amqp.Errorf(amqp.ReplyChannelError, "expected 'channel.open'").In(class, method)
	}
	if _, err := amqp.ParseMethod(f.Payload); err != nil {
		return err
	}
	if err := c.channels.check(f.Channel, c.channelMax); err != nil {
		return err
	}
	if err := c.membership.openChannel(); err != nil {
		return in(err, class, method)
	}
	c.addChannel(newChannel(c, f.Channel))
	c.out.post(f.Channel, &amqp.ChannelOpenOK{})
	return nil
}

func (c *Conn) addChannel(ch *channel) {
	c.srv.churn.ChannelsOpened.Add(1)
	c.channels.add(ch)
}

// Block sends connection.blocked with the reason to a client that understands it: its input is not read from now on.
func (c *Conn) Block(reason string) { c.setBlocked(true, &amqp.ConnectionBlocked{Reason: reason}) }

// Unblock sends connection.unblocked: the client's input is read again.
func (c *Conn) Unblock() { c.setBlocked(false, &amqp.ConnectionUnblocked{}) }

func (c *Conn) setBlocked(blocked bool, notice amqp.Method) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.blocked = blocked
	if c.phase == running && c.caps.blocked {
		c.out.send(0, notice)
	}
}
