package wire

import (
	"crypto/tls"
	"net"
)

// linkOf returns the TCP connection under a socket, nil if it is none.
func linkOf(socket net.Conn) *link {
	if t, ok := socket.(*tls.Conn); ok {
		socket = t.NetConn()
	}
	l, _ := socket.(*link)
	return l
}

// receive reads what is there to a space, as space returned it. It waits for the next interval if the connection is polled, else
// for something to be there.
func (c *conn) receive(space []byte, placed bool) (n int, err error) {
	if c.hot.polling && !c.more {
		if c.ticks.wait() != nil { // the connection is none the worse for that
			c.hot.stop()
			c.poll()
		}
	}
	if c.link != nil && c.link.idle != nil && !placed && !c.hot.polling {
		n, err = c.link.readOrIdle(space)
		if n > 0 || err != nil {
			c.more = n >= fatRead || n == len(space)
			return n, err
		}
		space, _ = c.space() // it may have been given back
	}
	if n, err = c.socket.Read(space); n > 0 {
		n, err = c.takeAhead(space, n), nil
	}
	c.more = n >= fatRead || n == len(space)
	return n, err
}

// space is where to read to. It is placed if that is where the bytes belong, so that the session has them.
func (c *conn) space() (space []byte, placed bool) {
	const little = 4 << 10
	if len(c.in.waiting()) == 0 {
		if b := c.session.Intake(); b != nil {
			return b, true
		}
	}
	space = c.in.space()
	if c.session.Halfway() {
		space = space[:min(len(space), little)]
	}
	return space, false
}

// takeAhead reads the records that TLS has got already. What is wrong behind them, or that this is the end, the next Read says
// again: what came before it has its time.
func (c *conn) takeAhead(space []byte, n int) int {
	if c.link == nil || c.link.ahead == nil {
		return n
	}
	c.link.taking = true
	defer func() { c.link.taking = false }()
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
	if !c.hot.polling {
		c.unpoll()
		return
	}
	err := errNoMetronome
	switch {
	case c.ticks != nil:
		err = c.ticks.tick(c.hot.interval)
	case c.link != nil:
		c.ticks, err = c.srv.ticks.take(c.hot.interval)
	}
	if err != nil {
		c.hot.stop()
		c.unpoll()
		return
	}
	c.link.hasty = true
	c.link.batch(lowWater)
}

func (c *conn) unpoll() {
	if c.ticks == nil {
		return
	}
	c.srv.ticks.give(c.ticks)
	c.ticks = nil
	c.link.hasty = false
	c.link.batch(1)
}
