// Package wire connects sessions to sockets: listeners, TLS, one goroutine that reads and one that writes for each
// connection, heartbeats and the other waits that need a clock, and the memory alarm that stops publishers.
//
// What the bytes mean is the business of package session, which has no goroutine, no clock and no socket.
package wire

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/slab"
)

// Options configure a server.
type Options struct {
	AMQP  string // address to listen on, "host:port"; "" = do not
	AMQPS string // the same for TLS; needs TLS
	TLS   TLS

	Session session.Options
	Clock   clock.Clock

	HandshakeTimeout time.Duration // from accepting a connection to connection.open
	Handshakes       int           // connections between the two at a time; 0 = any number
	MemoryLimit      int64         // bytes of messages and unsent output above which publishers wait; 0 = none

	// DiskFull returns nil, or, while there is no space for what is published, what is closed when there is again. It is
	// called from any goroutine; nil = there always is.
	DiskFull func() <-chan struct{}
}

// Server is the AMQP side of a broker.
type Server struct {
	options  Options
	log      *slog.Logger
	sessions *session.Server
	memory   memoryMonitor
	blocked  blockedCounts
	tls      *Certificates
	ticks    metronomes

	listeners []net.Listener
	running   sync.WaitGroup // every goroutine of the server
	quit      chan struct{}  // closed when the server ends

	mu            sync.Mutex // guards what follows
	conns         map[*conn]struct{}
	handshakes    handshakes
	closedTraffic Traffic // of connections that are gone
	draining      bool    // new connections are turned away
}

// New returns a server that does not listen yet. Its error is about the TLS files.
func New(o Options) (*Server, error) {
	s := &Server{
		options:    o,
		log:        o.Session.Log,
		sessions:   session.NewServer(o.Session),
		conns:      map[*conn]struct{}{},
		handshakes: handshakes{most: o.Handshakes},
		quit:       make(chan struct{}),
	}
	s.memory.used, s.memory.server = s.usedBytes, s
	s.memory.limit.Store(o.MemoryLimit)
	if o.MemoryLimit == 0 {
		s.memory.limit.Store(-1)
	}
	if o.AMQPS == "" {
		return s, nil
	}
	var err error
	s.tls, err = LoadCertificates(o.TLS)
	return s, err
}

// alarm returns why publishers have to wait, and what is closed when that is over; nil if they need not.
func (s *Server) alarm() (over <-chan struct{}, reason string) {
	if over = s.memory.check(); over != nil {
		return over, "low on memory"
	}
	if s.options.DiskFull == nil {
		return nil, ""
	}
	return s.options.DiskFull(), "low on disk"
}

func (s *Server) usedBytes() int64 {
	return slab.Used() + queue.UnderwayBytes() + s.sessions.PendingBytes()
}

// Start listens, and serves whoever connects until Shutdown. ctx bounds finding the addresses only.
func (s *Server) Start(ctx context.Context) error {
	err := s.listen(ctx, "listen.amqp", s.options.AMQP, nil)
	if err == nil && s.tls != nil {
		err = s.listen(ctx, "listen.amqps", s.options.AMQPS, s.tls.Config())
	}
	if err != nil {
		s.closeListeners()
		return err
	}
	for _, l := range s.listeners {
		s.running.Go(func() { s.accept(l) })
	}
	return nil
}

// Addresses returns what the server listens on: AMQP first, then AMQP over TLS, as far as they are on.
func (s *Server) Addresses() []net.Addr {
	addresses := make([]net.Addr, len(s.listeners))
	for i, l := range s.listeners {
		addresses[i] = l.Addr()
	}
	return addresses
}

// SetMemoryLimit sets above how many bytes of messages and unsent output publishers wait, from now on. With 0 they do, whatever
// there is [RabbitMQ: memory.html#configuring-threshold]; with a negative number they do not.
func (s *Server) SetMemoryLimit(bytes int64) {
	s.memory.limit.Store(max(bytes, -1))
	s.memory.check()
}

// MemoryLimit returns what SetMemoryLimit set.
func (s *Server) MemoryLimit() int64 { return s.memory.limit.Load() }

// begin runs a goroutine of the server's, unless that ends. Whoever is no goroutine of it needs to know.
func (s *Server) begin(run func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.running.Go(run)
	return true
}

// Alarms names the resources that publishers are stopped for, as far as the server watches them itself.
func (s *Server) Alarms() []string {
	if s.memory.check() != nil { // others than its connections fill the memory, too
		return []string{memoryAlarm}
	}
	return nil
}

// Connections is how many clients are connected, those in the handshake included.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// ReloadTLS reads the certificate files anew. Connections that exist keep theirs.
func (s *Server) ReloadTLS() error {
	if s.tls == nil {
		return nil
	}
	return s.tls.Reload()
}

// CertificateExpires returns when the certificate in use does; zero without TLS.
func (s *Server) CertificateExpires() time.Time {
	if s.tls == nil {
		return time.Time{}
	}
	return s.tls.Expires()
}

// Shutdown turns new clients away and closes the connections with 320 CONNECTION_FORCED. It waits for them to end, and cuts
// off those left when ctx is done: its error says how many.
func (s *Server) Shutdown(ctx context.Context) error {
	s.closeListeners()
	for _, c := range s.drain() {
		c.request(requestShutdown)
	}
	ended := make(chan struct{})
	go func() {
		s.running.Wait()
		close(ended)
	}()
	var err error
	select {
	case <-ended:
	case <-ctx.Done():
		left := s.cutOff()
		err = fmt.Errorf("%d connections did not end in time", left)
		<-ended
	}
	s.ticks.close()
	return err
}

func (s *Server) closeListeners() {
	for _, l := range s.listeners {
		l.Close()
	}
}

// drain turns new connections away from now on, and returns those there are.
func (s *Server) drain() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		s.draining = true
		close(s.quit)
	}
	return s.all()
}

// all returns the connections. The caller holds mu.
func (s *Server) all() []*conn {
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

// cutOff closes every socket, and says how many there were.
func (s *Server) cutOff() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.socket.Close()
		c.request(requestStop)
	}
	return len(s.conns)
}

// serve begins to serve a socket, which is the server's from now on.
func (s *Server) serve(socket net.Conn) {
	c := newConn(s, socket)
	crowdedOut, ok := s.enter(c)
	if !ok {
		socket.Close()
		return
	}
	s.running.Go(c.write)
	s.running.Go(c.run)
	if crowdedOut != nil {
		s.crowdOut(crowdedOut)
	}
}

func (s *Server) enter(c *conn) (crowdedOut *conn, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil, false
	}
	s.conns[c] = struct{}{}
	return s.handshakes.enter(c), true
}

// crowdOut ends a connection in the handshake for the sake of another.
func (s *Server) crowdOut(c *conn) {
	s.mu.Lock()
	n := s.handshakes.count(s.options.Clock())
	s.mu.Unlock()
	if n > 0 {
		s.log.Warn("too many connections in the handshake: the oldest ones of the source with the most are closed",
			"closed", n, "source", c.source.String(), "limits_handshakes", s.options.Handshakes)
	}
	c.socket.Close()
	c.request(requestStop)
}

// opened is told that a connection is out of the handshake.
func (s *Server) opened(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handshakes.leave(c)
}

func (s *Server) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.handshakes.leave(c)
	s.closedTraffic.add(&c.traffic)
}
