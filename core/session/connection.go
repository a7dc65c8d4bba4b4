package session

import (
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// control handles frames of the connection itself: those on channel 0, and whatever comes while channels cannot be used.
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

// method handles a method of class connection, if it may come now.
func (c *Conn) method(m amqp.Method) error {
	switch m := m.(type) {
	case *amqp.ConnectionClose:
		c.closeByPeer(m)
		return nil
	case *amqp.ConnectionStartOK:
		if c.phase == awaitStartOK {
			c.startOK(m)
			return nil
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
			return c.updateSecret(m)
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

// String is RabbitMQ's name for the phase, which its reply texts have.
func (p phase) String() string {
	switch p {
	case awaitHeader, awaitStartOK, awaitLogin:
		return "starting"
	case awaitTuneOK:
		return "tuning"
	case awaitOpen:
		return "opening"
	case running:
		return "running"
	case closing:
		return "closing"
	}
	return "closed"
}

// unopened handles a frame on a channel that is not open: it can only open it.
func (c *Conn) unopened(f amqp.Frame) {
	if err := c.openChannel(f); err != nil {
		c.fail(err)
	}
}

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
	if err := c.checkChannelMax(f.Channel); err != nil {
		return err
	}
	if err := c.tracked.OpenChannel(); err != nil {
		return in(err, class, method)
	}
	c.addChannel(newChannel(c, f.Channel))
	c.send(f.Channel, &amqp.ChannelOpenOK{})
	return nil
}

func (c *Conn) addChannel(ch *channel) {
	c.srv.churn.ChannelsOpened.Add(1)
	c.openChannels++
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if grow := int(ch.id) + 1 - len(c.channels); grow > 0 {
		c.channels = append(c.channels, make([]*channel, grow)...)
	}
	c.channels[ch.id] = ch
}

// checkChannelMax refuses numbers over channel-max [AMQP 1.4.2.6, channel-max]. RabbitMQ counts the open channels instead;
// where both refuse, the text is RabbitMQ's.
func (c *Conn) checkChannelMax(id uint16) error {
	if int(id) <= c.channelMax {
		return nil
	}
	if c.openChannels >= c.channelMax {
		return amqp.Errorf(amqp.ReplyNotAllowed,
			"number of channels opened (%d) has reached the negotiated channel_max (%d)", c.openChannels, c.channelMax)
	}
	return amqp.Errorf(amqp.ReplyNotAllowed, "channel %d is higher than the negotiated channel_max (%d)", id, c.channelMax)
}

// updateSecret takes a new secret for credentials that run out. Passwords do not.
func (c *Conn) updateSecret(m *amqp.ConnectionUpdateSecret) error {
	c.log().Info("secret updated", "user", c.user.Name, "reason", m.Reason)
	c.send(0, &amqp.ConnectionUpdateSecretOK{})
	return nil
}

// closeByPeer answers connection.close, however often it comes. When the client reads close-ok, its exclusive queues are gone. It
// is the client's to close the socket.
func (c *Conn) closeByPeer(m *amqp.ConnectionClose) {
	switch {
	case c.phase == closing:
	case m.ReplyCode != amqp.ReplySuccess:
		c.log().Warn("client closed the connection", "code", m.ReplyCode, "text", m.ReplyText)
	default:
		c.log().Info("connection closed", "user", c.user.Name)
	}
	c.flush()
	c.leave()
	c.seal(&amqp.ConnectionCloseOK{})
	c.phase = closing
}

// fail ends the connection for err. Who has not logged in learns nothing, unless it is a refused login and the client
// understands the answer.
func (c *Conn) fail(err error) {
	var e *amqp.Error
	if !errors.As(err, &e) {
		c.log().Error("internal error", "error", err)
		e = amqp.Errorf(amqp.ReplyInternalError, "see the broker logfile")
	}
	if c.phase >= closing {
		return
	}
	c.log().Warn("connection error", "state", c.phase.String(), "error", e)
	answered := (e.Code == amqp.ReplyAccessRefused || e.Code == amqp.ReplyConnectionForced) && c.caps.authFailureClose
	if c.phase <= awaitLogin && !answered {
		c.phase = denied
		return
	}
	c.close(e)
}

// close gives back what the connection holds, and sends connection.close as the last frame.
func (c *Conn) close(e *amqp.Error) {
	c.flush()
	c.phase = closing
	c.leave()
	c.seal(&amqp.ConnectionClose{ReplyCode: e.Code, ReplyText: e.ReplyText(), ClassID: e.Class, MethodID: e.Method})
}

// seal sends m as the last method.
func (c *Conn) seal(m amqp.Method) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.seal(amqp.AppendMethod(nil, 0, m))
}

// finish lets what is pending be the last that is written.
func (c *Conn) finish() {
	c.phase = closed
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.end()
}

// End is told that the peer will say nothing more to a connection that is closing.
func (c *Conn) End() {
	if c.phase == closing {
		c.finish()
	}
}

// Shutdown closes the connection for a reason that is not the client's.
func (c *Conn) Shutdown(now hook.Instant, reason string) {
	c.now = now
	switch {
	case c.phase >= closing:
	case c.phase <= awaitLogin:
		c.finish()
	default:
		c.close(amqp.Errorf(amqp.ReplyConnectionForced, "broker forced connection closure with reason '%s'", reason))
	}
}

// Evict has the connection closed because what it was let in for is gone. The client reads the reason as it is. Any goroutine
// may call it; it does not wait.
func (c *Conn) Evict(reason string) {
	if c.evicted.CompareAndSwap(nil, &reason) {
		c.wake()
	}
}

func (c *Conn) closeForced(reason string) {
	if c.phase == running {
		c.log().Warn("connection closed", "user", c.user.Name, "vhost", c.vhost.Name(), "reason", reason)
		c.close(amqp.Errorf(amqp.ReplyConnectionForced, "%s", reason))
	}
}

// Block tells a client that knows the notice why it is not read from any more.
func (c *Conn) Block(reason string) {
	c.setBlocked(true)
	if c.phase == running && c.caps.blocked {
		c.send(0, &amqp.ConnectionBlocked{Reason: reason})
	}
}

// Unblock tells it that it is read from again.
func (c *Conn) Unblock() {
	c.setBlocked(false)
	if c.phase == running && c.caps.blocked {
		c.send(0, &amqp.ConnectionUnblocked{})
	}
}

func (c *Conn) setBlocked(blocked bool) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.blocked = blocked
}

// Release ends the connection's part in the broker when the socket is gone. Feed must not be called any more.
func (c *Conn) Release(now hook.Instant) {
	c.now = now
	c.phase = closed
	c.out.close()
	c.leave()
}

// leave gives back what the connection holds in the broker: unacknowledged messages, consumers, exclusive queues. The peer
// is not told.
func (c *Conn) leave() {
	c.ended.Store(true)
	c.closeChannels(c.channels...)
	c.lastChannel, c.openChannels = nil, 0
	c.dropChannels()
	if c.counted {
		c.counted = false
		c.vhost.RemoveConnection(c.id)
		c.tracked.Leave()
		c.srv.leave()
	}
}

func (c *Conn) dropChannels() {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	clear(c.channels)
}

// Lost is told why the socket can no longer be used, when the connection did not end in good order.
func (c *Conn) Lost(why error) {
	switch {
	case c.phase == awaitHeader:
		c.log().Debug("closed before the handshake", "reason", why)
	case c.phase < running:
		c.log().Warn("connection lost in the handshake", "state", c.phase.String(), "reason", why)
	case c.phase == running:
		c.log().Warn("connection lost", "user", c.user.Name, "vhost", c.vhost.Name(), "reason", why)
	}
}
