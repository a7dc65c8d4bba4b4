package wire

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/curfewmq/curfew/core/session"
)

// write writes what is pending, all of it at once, until nothing will come any more.
func (c *conn) write() {
	defer close(c.written)
	w := c.session.Writer()
	defer w.End()
	for {
		bs, waiting, ok := w.Next()
		for _, consumer := range waiting {
			consumer.Wake() // there is room, to be filled while this is written
		}
		switch {
		case len(bs) > 0:
			if err := c.send(bs); err != nil {
				c.socket.Close() // wakes the reader
				c.request(requestStop)
				return
			}
		case ok:
			<-w.Wake()
		default:
			return
		}
	}
}

// send writes bytes that lie in several places.
func (c *conn) send(bs [][]byte) error {
	n := 0
	for _, b := range bs {
		n += len(b)
	}
	c.traffic.write(n)
	if len(bs) == 1 {
		_, err := c.socket.Write(bs[0])
		return err
	}
	c.unwritten = bs
	_, err := c.unwritten.WriteTo(c.socket)
	c.unwritten = nil
	return err
}

// end gives the peer a chance to read what it was told last, closes the socket and gives everything back.
func (c *conn) end() {
	c.unpoll()
	c.loggedIn()
	switch {
	case c.failure != nil && failedTLS(c.socket, c.failure):
		c.srv.log.Warn("TLS handshake failed", "connection", c.socket.RemoteAddr().String(), "reason", c.failure)
	case c.failure != nil:
		c.session.Lost(c.failure)
	case c.state == session.Denied:
		c.keepSilent()
	default:
		c.linger()
	}
	c.socket.Close()
	c.session.Release(c.srv.options.Clock())
	<-c.written
	c.in.release()
	c.srv.leave(c)
}

// keepSilent leaves a peer without an answer, unless another one needs the place.
func (c *conn) keepSilent() {
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

// failedTLS tells whether the two sides could not agree on TLS, which somebody has to look into. A peer that only wanted to see
// whether the port is open has left without a word.
func failedTLS(socket net.Conn, why error) bool {
	c, ok := socket.(*tls.Conn)
	if !ok || c.ConnectionState().HandshakeComplete || errors.Is(why, io.EOF) || errors.Is(why, errHandshake) {
		return false
	}
	e, ok := errors.AsType[*net.OpError](why)
	return !ok || e.Op == "remote error" // an alert of the peer's
}

// linger waits, not for long, until everything is written and the peer has closed its side: closing a socket with unread
// input makes the system throw away what the peer has not read yet.
func (c *conn) linger() {
	_ = c.socket.SetDeadline(time.Now().Add(closeTimeout)) // fails when it is closed already: nothing to wait for
	<-c.written
	half, ok := c.socket.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.socket) // whatever ends it, the socket is closed next
}
