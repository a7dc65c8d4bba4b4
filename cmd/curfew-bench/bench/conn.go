package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

const (
	frameMax  = 1 << 17 // offered to the broker
	readSize  = 2 * frameMax
	handshake = 10 * time.Second
	farewell  = 2 * time.Second
	answer    = time.Minute // that a broker may take to answer a method
)

// conn is a connection with one open channel and no heartbeats. One goroutine uses its reading half (next, fill, ask), one its writing
// half; these may be the same.
type conn struct {
	nc       net.Conn
	in       []byte // in[r:w] has arrived and is not consumed yet
	r, w     int
	frameMax int
	relayed  bool // to a relay, without a handshake
}

// closedError is the broker's reason for closing the channel or the connection.
type closedError struct {
	what string
	code uint16
	text string
}

func (e *closedError) Error() string {
	return fmt.Sprintf("broker closed the %s: %d %s", e.what, e.code, e.text)
}

// open connects, logs in and opens the channel.
func (e *env) open(ctx context.Context, t target) (*conn, error) {
	return e.openSmall(ctx, t, readSize)
}

// openSmall opens a connection with a smaller buffer, which must hold the largest frame.
func (e *env) openSmall(ctx context.Context, t target, buffer int) (*conn, error) {
	return e.openWithin(ctx, t, buffer, handshake)
}

// openWithin opens a connection; limit bounds the whole handshake.
func (e *env) openWithin(ctx context.Context, t target, buffer int, limit time.Duration) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	nc, err := e.dial(ctx, t.addr)
	if err != nil {
		return nil, fmt.Errorf("--uri %s: %w", t.addr, err)
	}
	if t.tls != nil {
		nc = tls.Client(nc, t.tls)
	}
	c := &conn{nc: nc, in: make([]byte, buffer), frameMax: min(frameMax, buffer)}
	if err := c.within(limit, func() error { return c.greet(t) }); err != nil {
		return nil, errors.Join(fmt.Errorf("--uri %s: handshake: %w%s", t.addr, err, c.hint(t, err)), nc.Close())
	}
	return c, nil
}

// hint returns a possible cause of a failed handshake: another kind of port, or a certificate; "" if the error already says it.
func (c *conn) hint(t target, err error) string {
	var unknown x509.UnknownAuthorityError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return ": --tls-ca names the authorities to trust, --tls-insecure trusts any"
	case errors.As(err, &plain):
		return ": this port does not speak TLS"
	case t.tls == nil && bytes.HasPrefix(c.in[:c.w], []byte{21, 3}): // a TLS alert
		return ": this port speaks TLS (--tls)"
	case bytes.HasPrefix(c.in[:c.w], []byte("HTTP/")):
		return ": this port speaks HTTP, not AMQP"
	case t.tls == nil && c.w == 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return ": the other side hung up without a word: a port that wants TLS does (--tls)"
	}
	return ""
}

func (c *conn) greet(t target) error {
	if _, err := c.nc.Write([]byte(amqp.ProtocolHeader)); err != nil {
		return err
	}
	if _, err := expect[*amqp.ConnectionStart](c.reply()); err != nil {
		return err
	}
	tune, err := ask[*amqp.ConnectionTune](c, 0, startOK(t))
	if err != nil {
		return err
	}
	if err := c.tune(tune); err != nil {
		return err
	}
	if _, err := ask[*amqp.ConnectionOpenOK](c, 0, &amqp.ConnectionOpen{VirtualHost: t.vhost}); err != nil {
		return err
	}
	_, err = ask[*amqp.ChannelOpenOK](c, channel, &amqp.ChannelOpen{})
	return err
}

func startOK(t target) *amqp.ConnectionStartOK {
	capabilities := amqp.Table{}
	for _, name := range []string{
		"publisher_confirms", "basic.nack", "consumer_cancel_notify", "connection.blocked", "authentication_failure_close",
	} {
		capabilities = append(capabilities, amqp.Field{Key: name, Value: true})
	}
	m := &amqp.ConnectionStartOK{
		ClientProperties: amqp.Table{{Key: "product", Value: "curfew-bench"}, {Key: "capabilities", Value: capabilities}},
		Mechanism:        "PLAIN",
		Response:         "\x00" + t.user + "\x00" + t.password,
		Locale:           "en_US",
	}
	if t.tls != nil && len(t.tls.Certificates) > 0 {
		m.Mechanism, m.Response = "EXTERNAL", ""
	}
	return m
}

func (c *conn) tune(m *amqp.ConnectionTune) error {
	if m.FrameMax > 0 {
		c.frameMax = max(amqp.FrameMinSize, min(c.frameMax, int(m.FrameMax)))
	}
	return c.send(0, &amqp.ConnectionTuneOK{ChannelMax: m.ChannelMax, FrameMax: uint32(c.frameMax)})
}

func (c *conn) send(ch uint16, m amqp.Method) error {
	if _, err := c.nc.Write(amqp.AppendMethod(nil, ch, m)); err != nil {
		return fmt.Errorf("%s: %w", m.Name(), err)
	}
	return nil
}

// ask sends m and waits for the answer, which must be a T. The broker must not send anything but answers on the connection.
func ask[T amqp.Method](c *conn, ch uint16, m amqp.Method) (answer T, err error) {
	if err := c.send(ch, m); err != nil {
		return answer, err
	}
	if answer, err = expect[T](c.reply()); err != nil {
		return answer, fmt.Errorf("%s: %w", m.Name(), err)
	}
	return answer, nil
}

// within calls fn with a time limit for its requests.
func (c *conn) within(limit time.Duration, fn func() error) error {
	if err := c.nc.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return err
	}
	return c.nc.SetDeadline(time.Time{})
}

func expect[T amqp.Method](m amqp.Method, err error) (T, error) {
	answer, ok := m.(T)
	if err != nil {
		return answer, err
	}
	if !ok {
		return answer, fmt.Errorf("unexpected answer %s", m.Name())
	}
	return answer, nil
}

// reply returns the next method that is an answer.
func (c *conn) reply() (amqp.Method, error) {
	for {
		f, err := c.frame()
		if err != nil {
			return nil, err
		}
		if f.Type != amqp.FrameMethod {
			continue
		}
		m, err := amqp.ParseMethod(f.Payload)
		if err != nil {
			return nil, err
		}
		switch m.(type) {
		case *amqp.ConnectionBlocked, *amqp.ConnectionUnblocked:
			continue
		}
		return m, asClosed(m)
	}
}

// frame waits for the next frame. Its payload is valid until the next call.
func (c *conn) frame() (amqp.Frame, error) {
	for {
		f, ok, err := c.next()
		if ok || err != nil {
			return f, err
		}
		if err := c.fill(); err != nil {
			return amqp.Frame{}, err
		}
	}
}

// next returns a frame that has arrived completely; ok is false if there is none.
func (c *conn) next() (f amqp.Frame, ok bool, err error) {
	f, n, err := amqp.NextFrame(c.in[c.r:c.w], c.frameMax)
	c.r += n
	return f, n > 0, err
}

// serve calls drain at first and after each read, until the read deadline.
func (c *conn) serve(drain func() error) error {
	for {
		if err := drain(); err != nil {
			return err
		}
		switch err := c.fill(); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return err
		}
	}
}

// fill reads at least one byte. Frames that were returned before become invalid.
func (c *conn) fill() error {
	c.w = copy(c.in, c.in[c.r:c.w]) // few bytes, and the start of the buffer stays in the processor's cache
	c.r = 0
	n, err := c.nc.Read(c.in[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	return err
}

// asClosed returns the error for a method that closes the channel, the connection or a consumer; nil for others.
func asClosed(m amqp.Method) error {
	switch m := m.(type) {
	case *amqp.ChannelClose:
		return &closedError{what: "channel", code: m.ReplyCode, text: m.ReplyText}
	case *amqp.ConnectionClose:
		return &closedError{what: "connection", code: m.ReplyCode, text: m.ReplyText}
	case *amqp.BasicCancel:
		return errors.New("broker cancelled the consumer: its queue is gone")
	}
	return nil
}

// complaint returns the error that an unsolicited method reports; nil if it reports none.
func complaint(payload []byte) error {
	m, err := amqp.ParseMethod(payload)
	if err != nil {
		return err
	}
	return asClosed(m)
}

// close closes the connection, and waits only briefly for the broker's answer. No other goroutine may still use the connection.
func (c *conn) close() error {
	if c.relayed {
		return c.nc.Close()
	}
	if err := c.nc.SetDeadline(time.Now().Add(farewell)); err != nil {
		return errors.Join(err, c.nc.Close())
	}
	err := c.send(0, &amqp.ConnectionClose{ReplyCode: amqp.ReplySuccess, ReplyText: "done"})
	for err == nil {
		var f amqp.Frame
		if f, err = c.frame(); err == nil && isCloseOK(f) {
			return c.nc.Close()
		}
	}
	return errors.Join(fmt.Errorf("connection.close: %w", err), c.nc.Close())
}

func isCloseOK(f amqp.Frame) bool {
	if f.Type != amqp.FrameMethod {
		return false
	}
	class, method, err := amqp.MethodID(f.Payload)
	return err == nil && class == amqp.ClassConnection && method == amqp.MethodConnectionCloseOK
}

// request is ask on the channel, with a time limit.
func request[T amqp.Method](c *conn, m amqp.Method) (reply T, err error) {
	err = c.within(answer, func() error {
		reply, err = ask[T](c, channel, m)
		return err
	})
	return reply, err
}

// declare declares a queue and returns its number of messages.
func (c *conn) declare(d amqp.QueueDeclare) (depth int64, err error) {
	ok, err := request[*amqp.QueueDeclareOK](c, &d)
	if err != nil {
		return 0, fmt.Errorf("queue %s: %w", d.Queue, err)
	}
	return int64(ok.MessageCount), nil
}

// depth returns the number of ready messages in a queue. It renews the queue's lease.
func (c *conn) depth(queue string) (int64, error) {
	return c.declare(amqp.QueueDeclare{Queue: queue, Passive: true})
}

// confirms turns on publisher confirms.
func (c *conn) confirms() error {
	_, err := ask[*amqp.ConfirmSelectOK](c, channel, &amqp.ConfirmSelect{})
	return err
}
