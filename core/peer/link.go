package peer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// link leads to another node. It consists of the two streams that this node dials.
type link struct {
	links   *Links
	node    Node
	cancel  context.CancelFunc
	small   *sender
	bulk    *sender
	began   time.Time
	met     atomic.Bool   // the node has been connected at least once
	dialing chan struct{} // a token for each running handshake of Dial
	in      atomic.Uint64 // bytes of messages received from the node

	mu     sync.Mutex // guards the rest
	offset samples
}

func compareNodes(a, b Node) int {
	return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.ID, b.ID))
}

// newLink begins to dial a node. The caller holds mu of the links.
func (l *Links) newLink(n Node) *link {
	ctx, cancel := context.WithCancel(l.ctx)
	k := &link{links: l, node: n, cancel: cancel, began: time.Now(), dialing: make(chan struct{}, maxDialing)}
	k.small = &sender{link: k, kind: Small, box: newOutbox(l.options.Queue), poked: make(chan struct{}, 1)}
	k.bulk = &sender{link: k, kind: Bulk, box: newOutbox(l.options.Queue), poked: make(chan struct{}, 1)}
	l.running.Go(func() { k.small.run(ctx) })
	l.running.Go(func() { k.bulk.run(ctx) })
	return k
}

// poke makes the link dial at once, because the node appears to be up.
func (k *link) poke() {
	k.small.poke()
	k.bulk.poke()
}

// sender manages one stream of a link. Its goroutine dials, and writes the letters in its outbox.
type sender struct {
	link  *link
	kind  Kind
	box   *outbox
	poked chan struct{} // has a token if the next attempt need not wait
	out   atomic.Uint64 // bytes of messages that were sent

	mu      sync.Mutex // guards the rest
	conn    net.Conn   // nil = it is not connected
	since   hook.Instant
	version string // of the other node's broker
	format  Range  // of the logs that it reads
	err     error  // why it was last not connected, or is not now
}

func (s *sender) poke() {
	select {
	case s.poked <- struct{}{}:
	default:
	}
}

// run dials and writes until ctx ends.
func (s *sender) run(ctx context.Context) {
	l := s.link.links
	backOff := backOff{}
	ended := false // the last connection was ended by the other side
	for ctx.Err() == nil {
		conn, hello, err := l.connect(ctx, s.link.node.Address, s.link.node.ID, s.kind)
		if err != nil {
			if ended && errors.Is(err, syscall.ECONNREFUSED) {
				ended = false
				s.gone()
			}
			s.failed(ctx, err)
			backOff.wait(ctx, s.poked)
			continue
		}
		s.connected(conn, hello)
		began := time.Now()
		err = s.serve(ctx, conn)
		s.disconnected(ctx, err)
		ended = closedByPeer(err)
		if time.Since(began) < steady { // the node, or a second one with the same number, may do this every time
			backOff.wait(ctx, s.poked)
			continue
		}
		backOff.reset()
	}
}

// gone reports that the node's process has ended. A report of one of the two streams is enough.
func (s *sender) gone() {
	if s.kind == Small {
		s.link.links.options.Gone(s.link.node.ID)
	}
}

// closedByPeer reports whether the other node ended a connection, as opposed to this node giving up on a silent one.
func closedByPeer(err error) bool {
	for _, end := range [...]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

func (s *sender) connected(conn net.Conn, h *Hello) {
	l := s.link.links
	s.mu.Lock()
	s.conn, s.since, s.version, s.format, s.err = conn, l.options.Clock(), h.Version, h.Format, nil
	s.mu.Unlock()
	s.box.connected()
	s.link.met.Store(true)
	if s.kind == Small {
		l.reports.connected(s.link.node)
	}
}

func (s *sender) disconnected(ctx context.Context, err error) {
	s.mu.Lock()
	sever(s.conn)
	s.conn, s.since, s.err = nil, s.link.links.options.Clock(), err
	s.mu.Unlock()
	s.box.disconnected()
	if s.kind != Small {
		return
	}
	s.link.bulk.abort() // otherwise it would notice later
	s.link.forgetOffset()
	if ctx.Err() == nil {
		s.link.links.reports.disconnected(s.link.node, err)
	}
}

func (s *sender) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	if s.kind == Small {
		k := s.link
		starts := errors.Is(err, ErrLater) || !k.met.Load() && time.Since(k.began) < startTime
		k.links.reports.unreachable(ctx, k.node, err, starts)
	}
}

// abort closes the stream, if there is one. It will be dialled again.
func (s *sender) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		sever(s.conn)
	}
}

// serve writes letters until the stream ends.
func (s *sender) serve(ctx context.Context, conn net.Conn) error {
	ended := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	go func() { ended <- s.listen(conn) }()
	err := s.write(ctx, conn, ended)
	conn.Close()
	if read := <-ended; closedByPeer(read) {
		return read // more precise than the error of writing
	}
	return err
}

// write writes letters and pings until that fails, ctx ends, or ended reports that reading has failed.
func (s *sender) write(ctx context.Context, conn net.Conn, ended chan error) error {
	w := newFrameWriter(conn)
	interval := pingInterval
	if s.kind == Bulk {
		interval = bulkPingInterval
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var letters []letter
	err := s.ping(w)
	for err == nil {
		select {
		case <-s.box.wake:
			letters = s.box.take(letters)
			err = s.writeLetters(w, letters)
			clear(letters)
		case <-ticker.C:
			err = s.ping(w)
		case err = <-ended:
			ended <- err // for serve
			return err
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return err
}

// writeLetters writes letters, and settles them all.
func (s *sender) writeLetters(w *frameWriter, letters []letter) (err error) {
	size := 0
	for i := range letters {
		if err == nil {
			err = w.add(frameMessage, letters[i].shard, letters[i].body)
		}
		size += len(letters[i].body)
	}
	if err == nil {
		err = w.flush()
	}
	for i := range letters {
		letters[i].settle(err == nil)
	}
	s.box.wrote(size)
	s.out.Add(uint64(size))
	return err
}

func (s *sender) ping(w *frameWriter) error {
	p := ping{sent: s.link.links.options.Clock()}
	if s.kind == Small {
		p.times, p.short = s.link.links.options.Times(), s.link.links.options.Short()
	}
	if err := w.add(framePing, 0, appendPing(nil, p)); err != nil {
		return err
	}
	return w.flush()
}

// listen reads the answers to pings until reading fails. On a Small stream answers must keep coming; on a Bulk stream they may
// wait behind large messages.
func (s *sender) listen(conn net.Conn) error {
	_, secure := conn.(*tls.Conn)
	r := newFrameReader(&paced{conn, silence, s.kind == Small}, pongSize, !secure)
	for {
		f, err := r.next()
		if err != nil {
			return err
		}
		if f.typ != framePong {
			return errUnexpected(f)
		}
		sent, theirs, err := parsePong(f.body)
		if err != nil {
			return err
		}
		if s.kind == Small {
			s.link.answered(sent, theirs)
		}
	}
}

// paced reads from a connection on which something must arrive within a given time.
type paced struct {
	conn  net.Conn
	each  time.Duration
	paced bool
}

// Read implements [io.Reader]. Just before it gives up, it reads once more for a short time: if this process was suspended, the runtime
// checks timers before the data in the socket.
func (p *paced) Read(b []byte) (n int, err error) {
	if !p.paced {
		return p.conn.Read(b)
	}
	for _, wait := range [...]time.Duration{p.each - secondLook, secondLook} {
		if err := p.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return 0, err
		}
		if n, err = p.conn.Read(b); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return n, err
}

// backOff spaces connection attempts.
type backOff struct{ next time.Duration }

func (b *backOff) reset() { b.next = 0 }

// wait waits, each time longer, until ctx ends or a token arrives.
func (b *backOff) wait(ctx context.Context, now <-chan struct{}) {
	b.next = min(max(2*b.next, firstBackOff), lastBackOff)
	t := time.NewTimer(b.next - rand.N(b.next/4)) // so that nodes do not dial one another in lockstep
	defer t.Stop()
	select {
	case <-t.C:
	case <-now:
	case <-ctx.Done():
	}
}

// letter is a message to be sent.
type letter struct {
	shard uint32
	body  []byte
	done  func(delivered bool) // nil = it is not called
}

func (t *letter) settle(delivered bool) {
	if t.done != nil {
		t.done(delivered)
	}
}

// outbox holds the letters that wait for a stream to a node. Any goroutine may put letters into it.
type outbox struct {
	limit int           // bytes
	wake  chan struct{} // has a token if letters wait

	mu      sync.Mutex // guards the rest
	open    bool       // a stream is connected
	letters []letter
	bytes   int // of waiting letters, and of those being written
	dropped uint64
}

func newOutbox(limit int) *outbox { return &outbox{limit: limit, wake: make(chan struct{}, 1)} }

// put adds a letter, unless there is no stream, or too many bytes wait already.
func (o *outbox) put(t letter) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.open || o.bytes > 0 && o.bytes+len(t.body) > o.limit {
		o.dropped++
		return false
	}
	o.bytes += len(t.body)
	o.letters = append(o.letters, t)
	if len(o.letters) == 1 {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// take returns the waiting letters. The memory of before is reused for the next ones.
func (o *outbox) take(before []letter) []letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.letters
	o.letters = before[:0]
	return taken
}

// wrote makes space for more letters.
func (o *outbox) wrote(bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes -= bytes
}

func (o *outbox) connected() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = true
}

// disconnected drops all waiting letters.
func (o *outbox) disconnected() {
	o.mu.Lock()
	dropped := o.letters
	o.open, o.letters, o.bytes = false, nil, 0
	o.dropped += uint64(len(dropped))
	o.mu.Unlock()
	for i := range dropped {
		dropped[i].settle(false)
	}
}

func (o *outbox) counts() (bytes int, dropped uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes, o.dropped
}
