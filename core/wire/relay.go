package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// relay is a connection that another node serves, the owner of its vhost. This node, the front, passes on the bytes: the reader those of
// the client, the writer those of the owner. At most one buffer is in flight per direction, or one frame if that is larger.
type relay struct {
	*session.Handover
	node  wlog.NodeID
	owner net.Conn // the stream to the owner

	fromClient clientFrames              // used by the reader
	halfClosed bool                      // the client has closed its side; used by the reader
	fromOwner  ownerFrames               // used by the writer, and by the reader after ended
	begun      bool                      // the writer has begun to pass on bytes
	broken     atomic.Bool               // writing to the owner fails
	moved      atomic.Bool               // another node owns the vhost
	left       atomic.Bool               // this node ends
	until      atomic.Pointer[time.Time] // when the relay stops waiting for the owner's last frames; nil = the relay goes on
	ended      atomic.Pointer[ending]
}

// ending says how the owner's side has ended: err is nil if it ended in good order.
type ending struct{ err error }

// brokenFor is how long an owner that accepts no more bytes, or has lost the vhost, may take to close the connection itself.
const brokenFor = 500 * time.Millisecond

// errOwnerGone returns the error for a client whose owner no longer answers.
func errOwnerGone(vhost string) error {
	return amqp.Errorf(amqp.ReplyConnectionForced, "the node that serves vhost '%s' has gone", vhost)
}

// beginRelay passes on the bytes that the client has sent so far, and everything that follows.
func (c *conn) beginRelay(now hook.Instant, f *found) {
	r := &relay{Handover: f.handover, node: f.node, owner: f.owner, fromOwner: ownerFrames{frameMax: f.handover.FrameMax}}
	c.relay.Store(r)
	c.srv.relays.enter(c.srv, c)
	c.session.Relay(now, f.node)
}

// relaying returns the relay while bytes are passed on, otherwise nil. Only the reader calls it.
func (c *conn) relaying() *relay {
	if c.state != session.Relayed {
		return nil
	}
	return c.relay.Load()
}

// passUp passes on the client's bytes. The reader calls it.
func (c *conn) passUp(r *relay) {
	b := c.in.unread()
	n := r.fromClient.pass(b)
	if n > 0 && !r.broken.Load() {
		if _, err := r.owner.Write(b[:n]); err != nil {
			r.broken.Store(true)
			r.endSoon(brokenFor)
		}
	}
	c.in.consumed(n)
	c.unfed = false
}

// endSoon bounds how long the relay still waits for the owner's frames, counted from the
// first call. It returns the end of that time. Any goroutine may call it.
func (r *relay) endSoon(most time.Duration) (until time.Time) {
	until = time.Now().Add(most)
	if !r.until.CompareAndSwap(nil, &until) {
		until = *r.until.Load()
	}
	r.setIdleDeadline()
	return until
}

// setIdleDeadline bounds how long a read from the owner waits. Any goroutine may call it.
func (r *relay) setIdleDeadline() {
	if until := r.until.Load(); until != nil {
		_ = r.owner.SetReadDeadline(*until) // fails if it is closed, and so does the read
		return
	}
	_ = r.owner.SetReadDeadline(time.Now().Add(idleInterval))
	if r.isEnding() {
		r.setIdleDeadline()
	}
}

// isEnding reports whether the time in which the relay waits for the owner's frames is bounded.
func (r *relay) isEnding() bool { return r.until.Load() != nil }

// clientEnded handles the end of the client's side. If the stream can be closed in one direction, the owner's last frames still come.
func (c *conn) clientEnded(r *relay, now hook.Instant, why error) {
	half, ok := r.owner.(interface{ CloseWrite() error })
	if !errors.Is(why, io.EOF) || !ok || half.CloseWrite() != nil {
		c.failure = why
		return
	}
	r.halfClosed = true
	c.deadline, c.rearm = now.Add(closeTimeout), true
}

// passDown passes on the owner's frames until they end. The writer calls it when nothing else is left to write.
func (c *conn) passDown(r *relay) {
	r.begun = true
	in := newInput()
	held := 0
	defer func() {
		in.release()
		c.srv.relays.buffered.Add(-int64(held))
	}()
	r.setIdleDeadline()
	for {
		n, err := r.owner.Read(in.space())
		in.added(n)
		whole, malformed := r.fromOwner.whole(in.unread())
		if whole > 0 {
			c.traffic.wrote(whole)
			if _, err := c.socket.Write(in.unread()[:whole]); err != nil {
				c.socket.Close() // wakes the reader
				r.owner.Close()  // the reader may be waiting for the owner
				c.request(requestStop)
				return
			}
		}
		in.consumed(whole)
		switch {
		case malformed != nil:
			err = malformed
		case errors.Is(err, os.ErrDeadlineExceeded) && !r.isEnding():
			in.shrinkIdle()
			r.setIdleDeadline()
			err = nil
		}
		if err != nil {
			c.ownerEnded(r, err)
			return
		}
		if size := len(in.block.Buf); size != held {
			c.srv.relays.buffered.Add(int64(size - held))
			held = size
		}
	}
}

// ownerEnded makes the reader handle the end of the owner's stream.
func (c *conn) ownerEnded(r *relay, why error) {
	if r.fromOwner.closes || r.fromOwner.closeOK {
		why = nil
	}
	r.ended.Store(&ending{why})
	c.request(requestOwner)
}

// leaveOwner makes a relay end soon, because another node owns the vhost. Any goroutine may call it.
func (c *conn) leaveOwner(r *relay, most time.Duration) {
	if r.moved.Swap(true) {
		return // it is ending already
	}
	_ = r.owner.SetWriteDeadline(r.endSoon(most)) // fails if it is closed
	c.request(requestOwner)
}

// leave ends a relay because this node ends. The reader may be waiting for the owner to take bytes. Any goroutine may call it.
func (r *relay) leave() {
	r.left.Store(true)
	sever(r.owner)
}

// handleOwner handles the end of the owner's side, or a change of the vhost's owner.
func (c *conn) handleOwner(now hook.Instant) {
	r := c.relaying()
	if r == nil {
		return
	}
	e := r.ended.Load()
	if e == nil { // the vhost has moved
		c.deadline, c.rearm = now.Add(closeTimeout), true // the writer may wait for the client
		return
	}
	c.endRelay(r)
	why := e.err
	switch {
	case why == nil:
		c.session.OwnerClosed(now, r.fromOwner.closeOK || r.fromClient.closeOK)
	case r.halfClosed:
		c.failure = io.EOF
	case r.left.Load() && !r.fromClient.closes:
		c.session.Shutdown(now, shutdownReason)
	case r.left.Load():
		c.session.OwnerGone(now, true, nil)
	default:
		c.srv.log.Warn("connection is not relayed any more", "connection", r.Peer.Address, "vhost", r.VHost, "node", r.node, "reason", why)
		c.session.OwnerGone(now, r.fromClient.closes, errOwnerGone(r.VHost))
	}
	c.plan(now)
}

// endRelay stops passing on bytes. From the next frame on, the client's input is read here.
func (c *conn) endRelay(r *relay) {
	r.owner.Close()
	c.srv.relays.leave(c)
	c.skip = r.fromClient.rest
	c.unfed = len(c.in.unread()) > 0
}

// skipFrame drops the rest of a frame that was passed on in part.
func (c *conn) skipFrame() {
	n := min(c.skip, uint64(len(c.in.unread())))
	c.skip -= n
	c.in.consumed(int(n))
}

// hasEnough reports whether to stop reading from a client whose vhost another node serves:
// the client has sent enough for now, or has ended.
func (c *conn) hasEnough() bool {
	if r := c.relaying(); r != nil {
		return r.halfClosed
	}
	return len(c.in.unread()) >= mostWaiting
}

// checkRelay is check for a relayed connection. The owner sends heartbeats, and ends a connection whose client is silent. While the writer
// waits for a client that does not read, it does not notice that end: so the front ends the connection an interval later.
func (c *conn) checkRelay(now hook.Instant) {
	if r := c.relaying(); r.halfClosed || r.moved.Load() || r.left.Load() {
		c.failure = errLeftOpen
		return
	}
	if c.heartbeatDue(now) && c.silent(maxSilentIntervals+1) {
		c.failure = errSilent
		return
	}
	c.deadline = c.nextCheck(now)
	c.in.shrinkIdle()
	if c.tcp != nil {
		c.tcp.shrink()
	}
}

// frameHead is the decoded start of a frame: its size including head and end, and whether it is connection.close or connection.close-ok.
type frameHead struct {
	size            uint64
	closes, closeOK bool
}

const (
	headSize     = amqp.FrameOverhead - 1
	methodIDSize = 4
)

// parseFrameHead decodes the start of a frame. ok is false if b is too short.
func parseFrameHead(b []byte) (h frameHead, ok bool) {
	if len(b) < headSize {
		return h, false
	}
	payload := uint64(binary.BigEndian.Uint32(b[3:]))
	h.size = payload + amqp.FrameOverhead
	if b[0] != amqp.FrameMethod || b[1] != 0 || b[2] != 0 || payload < methodIDSize {
		return h, true
	}
	if len(b) < headSize+methodIDSize {
		return h, false
	}
	class, method := binary.BigEndian.Uint16(b[headSize:]), binary.BigEndian.Uint16(b[headSize+2:])
	h.closes = class == amqp.ClassConnection && method == amqp.MethodConnectionClose
	h.closeOK = class == amqp.ClassConnection && method == amqp.MethodConnectionCloseOK
	return h, true
}

// clientFrames tracks the frame boundaries in a client's bytes. When frames can no longer be passed on, the front needs to know where the
// next one begins. It validates nothing: the owner does.
type clientFrames struct {
	rest            uint64 // bytes of the current frame that have not come yet
	closes, closeOK bool   // connection.close, or connection.close-ok, has been seen
}

// pass returns how many bytes of b may be passed on: all except an incomplete frame head at the end.
func (f *clientFrames) pass(b []byte) int {
	n := min(f.rest, uint64(len(b)))
	f.rest -= n
	for f.rest == 0 {
		h, ok := parseFrameHead(b[n:])
		if !ok {
			break
		}
		f.closes, f.closeOK = f.closes || h.closes, f.closeOK || h.closeOK
		part := min(h.size, uint64(len(b))-n)
		f.rest = h.size - part
		n += part
	}
	return int(n)
}

// ownerFrames tracks the frames that an owner sends. Only whole frames are passed on, so that connection.close can follow at any time.
type ownerFrames struct {
	frameMax        int
	closes, closeOK bool // connection.close, or connection.close-ok, has been seen: the connection ends in good order
}

var errFrameEnd = errors.New("a frame from the owner has no frame end")

// whole returns the size of the whole frames at the start of b.
func (f *ownerFrames) whole(b []byte) (n int, err error) {
	for {
		h, ok := parseFrameHead(b[n:])
		if !ok {
			return n, nil
		}
		if h.size > uint64(f.frameMax)+amqp.FrameSlack {
			return n, fmt.Errorf("a frame from the owner has %d bytes, expected at most %d", h.size, f.frameMax)
		}
		if uint64(len(b)-n) < h.size {
			return n, nil
		}
		n += int(h.size)
		if b[n-1] != amqp.FrameEnd {
			return n - int(h.size), errFrameEnd
		}
		f.closes, f.closeOK = f.closes || h.closes, f.closeOK || h.closeOK
	}
}
