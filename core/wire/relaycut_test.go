package wire

import (
	"io"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// cutStream is a stream to an owner that ends after some bytes in each direction, and that returns its input in pieces.
type cutStream struct {
	net.Conn
	reads, writes int  // bytes until the end; negative means never
	piece         int  // bytes that a Read returns at most; 0 means any
	handedOver    bool // the first Write, which does not count, is done
}

func (s *cutStream) Read(p []byte) (int, error) {
	if s.piece > 0 {
		p = p[:min(len(p), s.piece)]
	}
	if s.reads < 0 {
		return s.Conn.Read(p)
	}
	if s.reads == 0 {
		s.Close()
		return 0, io.EOF
	}
	n, err := s.Conn.Read(p[:min(len(p), s.reads)])
	s.reads -= n
	return n, err
}

func (s *cutStream) Write(p []byte) (int, error) {
	if !s.handedOver {
		s.handedOver = true
		return s.Conn.Write(p)
	}
	if s.writes < 0 || len(p) <= s.writes {
		n, err := s.Conn.Write(p)
		if s.writes >= 0 {
			s.writes -= n
		}
		return n, err
	}
	n, _ := s.Conn.Write(p[:s.writes])
	s.Close()
	return n, net.ErrClosed
}

// script returns what the client of a cut test sends after its login without waiting: messages of one and of several frames, published
// and consumed.
func script() []byte {
	b := amqp.AppendMethod(nil, 0, &amqp.ConnectionOpen{VirtualHost: "/"})
	for _, m := range []amqp.Method{
		&amqp.ChannelOpen{}, &amqp.QueueDeclare{Queue: "q", AutoDelete: true}, &amqp.ConfirmSelect{}, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c", NoAck: true},
	} {
		b = amqp.AppendMethod(b, 1, m)
	}
	for _, size := range []int{0, 5, 100, 2*4096 - amqp.FrameOverhead} {
		b = amqp.AppendMethod(b, 1, &amqp.BasicPublish{RoutingKey: "q"})
		b = amqp.AppendContentHeader(b, 1, uint64(size), []byte{0, 0})
		b = amqp.AppendBody(b, 1, make([]byte, size), 4096)
	}
	return amqp.AppendMethod(b, 1, &amqp.ChannelClose{ReplyCode: 200})
}

// clientLog records the whole frames that a client has read.
type clientLog struct {
	t          *testing.T
	deliveries int
	closed     uint16 // reply code of connection.close; 0 means that there was none
	text       string
	closeOK    bool // its own connection.close was answered
	rest       int  // bytes of an incomplete frame
}

// playCut runs the script on a relayed connection, and answers connection.close. It returns when the server has ended the connection.
func playCut(t *testing.T, p *pair) *clientLog {
	t.Helper()
	c := dial(t, p.front)
	c.write([]byte(amqp.ProtocolHeader))
	expectMethod[*amqp.ConnectionStart](c)
	c.send(0, &amqp.ConnectionStartOK{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
	expectMethod[*amqp.ConnectionTune](c)
	c.send(0, &amqp.ConnectionTuneOK{ChannelMax: 1, FrameMax: 4096})
	c.stall() // the test reads by itself
	go func() { _, _ = c.socket.Write(script()) }()
	log, in, part := &clientLog{t: t}, []byte(nil), make([]byte, 4096)
	for {
		n, err := c.socket.Read(part)
		in = append(in, part[:n]...)
		for log.next(c, &in) {
		}
		if err != nil {
			log.rest = len(in)
			c.resume()
			return log
		}
	}
}

// next reads the next frame. Like a client, it closes the connection after the last message, and answers connection.close.
func (l *clientLog) next(c *client, in *[]byte) bool {
	f, n, err := amqp.NextFrame(*in, 4096)
	if err != nil {
		l.t.Fatalf("the client got a malformed frame: %v", err)
	}
	if n == 0 {
		return false
	}
	*in = (*in)[n:]
	if f.Type != amqp.FrameMethod {
		return true
	}
	m, err := amqp.ParseMethod(f.Payload)
	if err != nil {
		l.t.Fatalf("the client got a malformed method: %v", err)
	}
	switch m := m.(type) {
	case *amqp.ConnectionClose:
		l.closed, l.text = m.ReplyCode, m.ReplyText
		go l.send(c, &amqp.ConnectionCloseOK{})
	case *amqp.ConnectionCloseOK:
		l.closeOK = true
		c.socket.Close()
	case *amqp.ChannelCloseOK:
		go l.send(c, &amqp.ConnectionClose{ReplyCode: 200})
	case *amqp.BasicDeliver:
		l.deliveries++
	}
	return true
}

// send sends a method, unless the server has ended the connection.
func (l *clientLog) send(c *client, m amqp.Method) {
	_, _ = c.socket.Write(amqp.AppendMethod(nil, 0, m))
}

// Wherever the stream from the owner ends, within a frame or between two, the client gets whole frames and then connection.close. It never
// has to wait.
func TestCutFromOwner(t *testing.T) {
	for piece, step := range map[int]int{0: 1, 1: 7, 100: 5} {
		if testing.Short() {
			step = 37
		}
		t.Run("pieces of "+strconv.Itoa(piece), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { cutFromOwner(t, piece, step*fewer) })
		})
	}
}

// cutFromOwner cuts every step bytes, and less often within the last message, which is large.
func cutFromOwner(t *testing.T, piece, step int) {
	t.Helper()
	p := newPair(t)
	const answer = 8 // bytes, before the frames
	const small = 700
	for n, cuts := answer, 0; ; n += step {
		if n > small {
			n += 150
		}
		stream := &cutStream{reads: n, writes: -1, piece: piece}
		p.wrap = func(near net.Conn) net.Conn {
			stream.Conn = near
			return stream
		}
		start := time.Now()
		log := playCut(t, p)
		if took := time.Since(start); took != 0 {
			t.Fatalf("cut after %d bytes: the client waited for %v", n, took)
		}
		if log.rest != 0 {
			t.Fatalf("cut after %d bytes: %d bytes behind the last whole frame", n, log.rest)
		}
		synctest.Wait()
		if f, o := p.front.Connections(), p.owner.Connections(); f != 0 || o != 0 {
			t.Fatalf("cut after %d bytes: %d connections at the front, %d at the owner", n, f, o)
		}
		switch {
		case log.closeOK && log.deliveries == 4 && cuts > 100/step:
			return // the stream is longer than the answers
		case log.closeOK && log.deliveries == 4: // the client had asked for the end
		case log.closed != amqp.ReplyConnectionForced || log.text != gone:
			t.Fatalf("cut after %d bytes: the client got %d %s", n, log.closed, log.text)
		}
		cuts++
	}
}

// Wherever the stream to the owner ends, the front finds the client's answer to connection.close after the frame that was cut.
func TestCutToOwner(t *testing.T) {
	step := 29 * fewer
	if testing.Short() {
		step = 211
	}
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		stream := &cutStream{reads: -1, writes: -1}
		p.wrap = func(near net.Conn) net.Conn {
			stream.Conn = near
			return stream
		}
		for n := 0; n < len(script())-50; n += step {
			stream.writes, stream.handedOver = n, false
			log := playCut(t, p)
			if log.closed != amqp.ReplyConnectionForced || log.rest != 0 {
				t.Fatalf("cut after %d bytes: the client got %d %q, and %d bytes of a frame", n, log.closed, log.text, log.rest)
			}
			synctest.Wait()
			if f, o := p.front.Connections(), p.owner.Connections(); f != 0 || o != 0 {
				t.Fatalf("cut after %d bytes: %d connections at the front, %d at the owner", n, f, o)
			}
		}
	})
}
