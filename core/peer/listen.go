package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// Limits on connections in their handshake: in total, and from one address.
const (
	maxCallers      = 256
	maxCallersOfOne = 128
)

// callers holds the incoming connections that have not finished the handshake.
type callers struct {
	mu    sync.Mutex // guards all of it
	conns map[net.Conn]netip.Addr
	of    map[netip.Addr]int
	over  bool // no more connections are accepted
}

// enter adds a connection, unless there are too many.
func (c *callers) enter(conn net.Conn) bool {
	from := addressOf(conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || len(c.conns) >= maxCallers || c.of[from] >= maxCallersOfOne {
		return false
	}
	c.conns[conn] = from
	c.of[from]++
	return true
}

func (c *callers) leave(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := c.conns[conn]
	delete(c.conns, conn)
	if c.of[from]--; c.of[from] == 0 {
		delete(c.of, from)
	}
}

// hangUp closes all connections, and refuses later ones.
func (c *callers) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for conn := range c.conns {
		conn.Close()
	}
}

// addressOf returns the remote address of a connection, without the port; the zero value means unknown.
func addressOf(conn net.Conn) netip.Addr {
	return addrPortOf(conn.RemoteAddr()).Addr()
}

// accept takes connections until the listener is closed.
func (l *Links) accept() {
	pause := 5 * time.Millisecond
	for {
		conn, err := l.options.Listener.Accept()
		switch {
		case err == nil:
			pause = 5 * time.Millisecond
			l.enter(conn)
			continue
		case errors.Is(err, net.ErrClosed), l.ctx.Err() != nil:
			return
		}
		l.reports.cannotAccept(err)
		select {
		case <-time.After(pause): // there may be a lack of file descriptors
		case <-l.ctx.Done():
		}
		pause = min(2*pause, time.Second)
	}
}

func (l *Links) enter(conn net.Conn) {
	if !l.callers.enter(conn) {
		conn.Close()
		l.reports.tooMany(conn.RemoteAddr())
		return
	}
	l.running.Go(func() { l.welcome(conn) })
}

// welcome does the handshake of an incoming connection, and then serves it according to its kind.
func (l *Links) welcome(raw net.Conn) {
	conn, h, err := l.shake(raw)
	l.callers.leave(raw)
	if err != nil {
		raw.Close()
		if l.ctx.Err() == nil {
			l.reports.refused(raw.RemoteAddr(), h, err)
		}
		return
	}
	switch h.Kind {
	case Small, Bulk:
		l.receive(conn, h)
	case Relay, HTTP:
		if fn := l.server(h.Kind); fn != nil {
			go fn(conn, h.Node) // Close does not wait for it
			return
		}
		conn.Close()
	default:
		conn.Close()
	}
}

func (l *Links) shake(raw net.Conn) (net.Conn, *Hello, error) {
	ctx, cancel := context.WithTimeout(l.ctx, handshakeTimeout)
	defer cancel()
	handshakeDeadline(raw)
	conn, h, err := l.accepted(ctx, raw)
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	return conn, h, err
}

// receive reads messages until the stream ends.
func (l *Links) receive(conn net.Conn, h *Hello) {
	defer conn.Close()
	key := incomingKey{h.Node, h.Kind}
	k := l.register(key, conn)
	if k == nil {
		return
	}
	k.poke()
	err := l.readFrames(conn, k, h.Kind)
	l.unregister(key, conn, errors.Is(err, os.ErrDeadlineExceeded))
	if !closedByPeer(err) && l.ctx.Err() == nil {
		l.reports.broken(k.node, h.Kind, err)
	}
}

// register adds a message stream, in place of an older one of the same node. It returns nil if the node is no longer known.
func (l *Links) register(key incomingKey, conn net.Conn) *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.links[key.node] == nil {
		return nil
	}
	if old := l.incoming[key]; old != nil {
		sever(old)
	}
	l.incoming[key] = conn
	return l.links[key.node]
}

// unregister removes a message stream that has ended, because of silence or otherwise. If
// the node opens no new stream in time, it counts as silent, too.
func (l *Links) unregister(key incomingKey, conn net.Conn, silence bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.incoming[key] != conn {
		return
	}
	delete(l.incoming, key)
	switch {
	case key.kind != Small || l.closed:
	case silence:
		go l.options.Silent(key.node)
	default:
		time.AfterFunc(idle, func() { l.away(key) })
	}
}

// away reports that a node is silent, unless it has opened a stream in the meantime.
func (l *Links) away(key incomingKey) {
	l.mu.Lock()
	is := !l.closed && l.links[key.node] != nil && l.incoming[key] == nil
	l.mu.Unlock()
	if is {
		l.options.Silent(key.node)
	}
}

// readFrames passes on messages, and answers pings.
func (l *Links) readFrames(conn net.Conn, k *link, kind Kind) error {
	limit := l.options.MaxMessage
	if kind == Small {
		limit = maxSmall
	}
	_, secure := conn.(*tls.Conn)
	r := newFrameReader(&paced{conn, idle, true}, limit, !secure)
	w := newFrameWriter(conn)
	for {
		f, err := r.next()
		if err != nil {
			return err
		}
		switch f.typ {
		case frameMessage:
			k.in.Add(uint64(len(f.body)))
			l.options.Received(k.node.ID, f.shard, f.body)
		case framePing:
			err = l.pinged(w, k.node.ID, kind, f.body)
		default:
			err = errUnexpected(f)
		}
		if err != nil {
			return err
		}
	}
}

func (l *Links) pinged(w *frameWriter, from wlog.NodeID, kind Kind, body []byte) error {
	p, err := parsePing(body)
	if err != nil {
		return err
	}
	if kind == Small {
		l.options.Heard(from, p.times, p.short)
	}
	if err := w.add(framePong, 0, appendPong(nil, p.sent, l.options.Clock())); err != nil {
		return err
	}
	return w.flush()
}

func errUnexpected(f frame) error {
	return fmt.Errorf("a frame of type %d, which this side does not take", f.typ)
}
