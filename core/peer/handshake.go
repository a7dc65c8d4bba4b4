package peer

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// refusal says that the other node refused a stream.
type refusal struct {
	reason string
	later  bool // one of the two nodes is starting
}

func (r *refusal) Error() string { return "it refuses: " + r.reason }

// Is reports whether the refusal is [ErrLater].
func (r *refusal) Is(err error) bool { return r.later && err == ErrLater }

// IsRefusal reports whether an error is a refusal by the other node of a stream that this node tried to open.
func IsRefusal(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok
}

// ErrLater means that a stream is refused because a node is starting, which is normal.
var ErrLater = errors.New("one of the nodes is starting")

// Later returns an error with its own text that matches [ErrLater].
func Later(text string) error { return &later{text} }

type later struct{ text string }

func (l *later) Error() string { return l.text }
func (*later) Unwrap() error   { return ErrLater }

// errReplayed means that the other side answers without having read this side's message.
var errReplayed = errors.New("it repeats an earlier handshake")

// hello returns the node's Hello for a stream.
func (l *Links) hello(kind Kind) *Hello {
	h := l.options.Self()
	h.Kind, h.Protocol, h.Clock = kind, protocol, l.options.Clock()
	return &h
}

// connect dials an address and does the handshake. The node there must have the given number; 0 = any.
func (l *Links) connect(ctx context.Context, address string, node wlog.NodeID, kind Kind) (net.Conn, *Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	raw, err := l.options.Dial(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	conn, other, err := l.dialled(ctx, raw, address, node, kind)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer in time: %w", err)
		}
		raw.Close()
		return nil, other, err
	}
	return conn, other, nil
}

// dialled does the handshake of the dialling node. It always returns a connection.
func (l *Links) dialled(ctx context.Context, conn net.Conn, address string, node wlog.NodeID, kind Kind) (net.Conn, *Hello, error) {
	if l.options.TLS != nil {
		secure := tls.Client(conn, l.options.TLS.dialling(address))
		if err := secure.HandshakeContext(ctx); err != nil {
			return conn, nil, plainly(err)
		}
		conn = secure
	}
	self, nonce := l.hello(kind), newNonce()
	if err := writeGreeting(conn, &greeting{Hello: self, Nonce: nonce}); err != nil {
		return conn, nil, err
	}
	g, err := readGreeting(conn)
	switch {
	case err != nil:
		return conn, nil, err
	case g.Hello == nil || len(g.Nonce) != nonceSize:
		return conn, nil, errNoNode
	case g.Refused != "":
		if err := l.checkDialled(g.Hello, self, address, node); err != nil {
			return conn, g.Hello, err // formulated from this node's point of view
		}
		return conn, g.Hello, &refusal{g.Refused, g.Later}
	case !bytes.Equal(g.Repeats, nonce):
		return conn, g.Hello, errReplayed
	}
	refused := l.checkDialled(g.Hello, self, address, node)
	end := &greeting{Repeats: g.Nonce}
	if refused != nil {
		end.refuse(refused)
		_ = writeGreeting(conn, end) // the reason matters more than the failure to send it
		return conn, g.Hello, refused
	}
	return conn, g.Hello, writeGreeting(conn, end)
}

// checkDialled returns why the answering node is not the one that was dialled.
func (l *Links) checkDialled(h, self *Hello, address string, node wlog.NodeID) error {
	if err := h.check(self); err != nil {
		return err
	}
	if h.Address != address {
		return fmt.Errorf("at %s answers the node with cluster.advertise %s", address, h.Address)
	}
	if err := l.options.Check(*h); err != nil {
		return err
	}
	if node != 0 && h.Node != node {
		return fmt.Errorf("at %s answers node %d, not %d", address, h.Node, node)
	}
	return nil
}

// accepted does the handshake of the listening node. It always returns a connection, and the other node's Hello if that is known.
func (l *Links) accepted(ctx context.Context, conn net.Conn) (net.Conn, *Hello, error) {
	var state *tls.ConnectionState
	if l.options.TLS != nil {
		secure := tls.Server(conn, l.options.TLS.accepting())
		if err := secure.HandshakeContext(ctx); err != nil {
			err = plainly(err)
			tellSpeech(conn, err)
			return conn, nil, err
		}
		s := secure.ConnectionState()
		conn, state = secure, &s
	}
	g, err := readGreeting(conn)
	switch {
	case err != nil:
		tellSpeech(conn, err)
		return conn, nil, err
	case g.Hello == nil || len(g.Nonce) != nonceSize:
		return conn, nil, errNoNode
	}
	other, self, nonce := g.Hello, l.hello(g.Hello.Kind), newNonce()
	refused := l.checkAccepted(other, self, state)
	answer := &greeting{Hello: self, Nonce: nonce, Repeats: g.Nonce}
	if refused != nil {
		answer.refuse(refused)
		_ = writeGreeting(conn, answer) // the reason matters more than the failure to send it
		return conn, other, refused
	}
	if err := writeGreeting(conn, answer); err != nil {
		return conn, other, err
	}
	end, err := readGreeting(conn)
	switch {
	case err != nil:
		return conn, other, err
	case end.Refused != "":
		return conn, other, &refusal{end.Refused, end.Later}
	case !bytes.Equal(end.Repeats, nonce):
		return conn, other, errReplayed
	}
	return conn, other, nil
}

// checkAccepted returns why a dialling node is refused. state is nil without TLS.
func (l *Links) checkAccepted(h, self *Hello, state *tls.ConnectionState) error {
	if err := h.check(self); err != nil {
		return err
	}
	if state != nil {
		if err := names(state, h.Address); err != nil {
			return err
		}
	}
	if err := l.options.Check(*h); err != nil {
		return err
	}
	switch h.Kind {
	case Small, Bulk:
		if l.link(h.Node) == nil {
			return fmt.Errorf("node %d at %s is not among those that this node has links to", h.Node, h.Address)
		}
	case Relay, HTTP:
		if l.server(h.Kind) == nil {
			return Later(fmt.Sprintf("this node takes no %v streams yet", h.Kind))
		}
	}
	return nil
}

func newNonce() []byte {
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails
	return nonce
}

// handshakeDeadline limits the time for the handshake of an incoming connection.
func handshakeDeadline(conn net.Conn) { _ = conn.SetDeadline(time.Now().Add(handshakeTimeout)) }
