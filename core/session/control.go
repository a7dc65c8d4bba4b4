package session

import "github.com/curfewmq/curfew/core/amqp"

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
