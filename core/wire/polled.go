package wire

import (
	"crypto/tls"
	"net"
)

// tcpConnOf returns the TCP connection under a socket, nil if it is none.
func tcpConnOf(socket net.Conn) *tcpConn {
	if t, ok := socket.(*tls.Conn); ok {
		socket = t.NetConn()
	}
	l, _ := socket.(*tcpConn)
	return l
}

// receive reads what is there to a space, as space returned it. It waits for the next interval if the connection is polled, else
// for something to be there.
func (c *conn) receive(space []byte, placed bool) (n int, err error) {
	if c.moderation.polling && !c.readOn {
		if c.ticks.wait() != nil { // the connection is none the worse for that
			c.moderation.stop()
			c.poll()
		}
	}
	if c.tcp != nil && c.tcp.onIdle != nil && !placed && !c.moderation.polling {
		n, err = c.tcp.readOrIdle(space)
		if n > 0 || err != nil {
			c.readOn = n >= fatRead || n == len(space)
			return n, err
		}
		space, _ = c.readSpace() // it may have been given back
	}
	if n, err = c.socket.Read(space); n > 0 {
		n, err = c.takeAhead(space, n), nil
	}
	c.readOn = n >= fatRead || n == len(space)
	return n, err
}

// readSpace is where to read to. It is placed if that is where the bytes belong, so that the session has them.
func (c *conn) readSpace() (space []byte, placed bool) {
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

// takeAhead reads the records that TLS has got already. What is wrong behind them, or that this is the end, the next Read says
// again: what came before it has its time.
func (c *conn) takeAhead(space []byte, n int) int {
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

// lowWater is how many bytes a polled socket gathers before the system reports them.
const lowWater = fatRead

// poll begins or ends to poll, or changes the interval, as hot says.
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
