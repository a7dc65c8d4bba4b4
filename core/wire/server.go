// Package wire connects sessions to sockets: listeners, TLS, a reader and a writer goroutine for each connection, heartbeats and other
// timers, and the memory alarm that stops publishers.
//
// Package session interprets the bytes. It has no goroutine, clock or socket.
package wire

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/certfile"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Options configure a server.
type Options struct {
	AMQP  string // address to listen on, "host:port"; "" means none
	AMQPS string // the same for TLS; needs TLS
	TLS   TLS
	// Proxies are the addresses of proxies. Connections from them must begin with a header of the PROXY protocol, which names the client.
	Proxies []netip.Prefix

	// Descriptors is how many file descriptors clients may use, the lowest ones; 0 = all. The rest is kept for logs and other nodes.
	Descriptors int

	Session session.Options
	Clock   clock.Clock

	// Dial opens a stream to a node of the cluster, whose broker passes it to Adopt. ctx applies to opening it only. Dial is not called if
	// Session.Home is nil.
	Dial func(ctx context.Context, to wlog.NodeID) (net.Conn, error)

	HandshakeTimeout time.Duration // from accepting a connection to connection.open, without the time that its login waits for its turn
	LoginWait        time.Duration // how long a login may wait for its turn; 0 = a minute
	Handshakes       int           // connections in this phase at a time; 0 means any number
	MemoryLimit      int64         // bytes of memory in use, as returned by MemoryUsed, above which publishers wait; 0 means no limit

	// LiveHeap returns the bytes of the Go heap that the last collection found in use. Any goroutine calls it. With nil, only messages
	// and unsent output count as memory in use.
	LiveHeap func() int64

	// DiskFull returns a channel while there is no space for published messages, and closes it when there is; otherwise it returns nil. Any
	// goroutine calls it. A nil DiskFull means that there is always space.
	DiskFull func() <-chan struct{}
	// DiskFills returns a channel that is closed when DiskFull has begun to return one, after it returned nil. Any goroutine calls it.
	DiskFills func() <-chan struct{}
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
	relays   relays

	running   sync.WaitGroup // every goroutine of the server
	quit      chan struct{}  // closed when the server ends
	suspended atomic.Bool    // changed under mu
	toldKept  atomic.Int64   // instant of the last report of tellKept
	failedTLS clock.Seldom   // log lines about TLS handshakes

	mu            sync.Mutex // guards the fields below
	listeners     []net.Listener
	conns         map[*conn]struct{}
	handshakes    handshakes
	closedTraffic Traffic // of connections that have ended
	draining      bool    // new connections are refused
	deaf          bool    // listeners are closed until Resume
}

// New returns a server that does not listen yet. It fails if the TLS files cannot be used.
func New(o Options) (*Server, error) {
	o.LoginWait = cmp.Or(o.LoginWait, time.Minute)
	s := &Server{
		options:    o,
		log:        o.Session.Log,
		sessions:   session.NewServer(o.Session),
		conns:      map[*conn]struct{}{},
		handshakes: handshakes{most: o.Handshakes},
		quit:       make(chan struct{}),
	}
	s.memory.used, s.memory.server, s.memory.heap.read = s.MemoryUsed, s, o.LiveHeap
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

// alarm returns why publishers must wait, and a channel that is closed when they may continue; nil = they need not wait.
func (s *Server) alarm() (over <-chan struct{}, reason string) {
	if over = s.memory.check(); over != nil {
		return over, "low on memory"
	}
	if s.options.DiskFull == nil {
		return nil, ""
	}
	return s.options.DiskFull(), "low on disk"
}

// nextAlarms returns channels that are closed when an alarm for memory or disk space is raised. A caller that then calls alarm misses none.
func (s *Server) nextAlarms() (memory, disk <-chan struct{}) {
	if s.options.DiskFills != nil {
		disk = s.options.DiskFills()
	}
	return s.memory.nextRaise(), disk
}

// MemoryUsed returns the bytes of memory in use, for comparison with the limit: messages, unsent output, and everything else in the Go
// heap, without garbage and without the program's own pages.
func (s *Server) MemoryUsed() int64 {
	small := slab.OnHeap()
	onHeap := small + s.sessions.Queues.UnderwayBytes() + s.sessions.PendingBytes() + s.relays.buffered.Load()
	return slab.Used() - small + max(onHeap, s.memory.heap.size(s.options.Clock)) // the Go heap includes small, too, once a collection has seen it
}

// Start listens and serves connections until Shutdown. ctx applies to the lookup of addresses only.
func (s *Server) Start(ctx context.Context) error {
	err := s.listen(ctx, "listen.amqp", s.options.AMQP, nil)
	if err == nil && s.tls != nil {
		err = s.listen(ctx, "listen.amqps", s.options.AMQPS, s.tls.Config())
	}
	if err != nil {
		closeAll(s.listeners)
		return err
	}
	for _, l := range s.listeners {
		s.running.Go(func() { s.accept(l) })
	}
	return nil
}

// Addresses returns the addresses that the server listens on: AMQP first, then AMQP over TLS, if they are on.
func (s *Server) Addresses() []net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	addresses := make([]net.Addr, len(s.listeners))
	for i, l := range s.listeners {
		addresses[i] = l.Addr()
	}
	return addresses
}

// SetMemoryLimit sets the bytes of memory in use above which publishers wait. With 0 they always wait
// [RabbitMQ: memory.html#configuring-threshold], with a negative number they never do.
func (s *Server) SetMemoryLimit(bytes int64) {
	s.memory.limit.Store(max(bytes, -1))
	s.memory.check()
}

// MemoryLimit returns the limit in force.
func (s *Server) MemoryLimit() int64 { return s.memory.limit.Load() }

// begin starts a goroutine of the server. It returns false if the server is ending.
func (s *Server) begin(run func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.running.Go(run)
	return true
}

// Alarms names the active alarms of the server's own monitors that stop publishers.
func (s *Server) Alarms() []string {
	if s.memory.check() != nil { // memory may have been filled by something other than connections: check now
		return []string{memoryAlarm}
	}
	return nil
}

// Connections returns the number of connections, those in the handshake included.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// ReloadTLS reads the certificate files again. Existing connections keep their certificates.
func (s *Server) ReloadTLS() error {
	if s.tls == nil {
		return nil
	}
	return s.tls.Reload()
}

// CertificateFiles returns the certificates in use, including those of authorities; none without TLS.
func (s *Server) CertificateFiles() []certfile.File {
	if s.tls == nil {
		return nil
	}
	return s.tls.Files()
}

// Shutdown refuses new connections and closes the open ones with 320 CONNECTION_FORCED. It waits for them to end. When ctx is done, it
// closes the remaining sockets, and returns an error with their number.
func (s *Server) Shutdown(ctx context.Context) error {
	for _, c := range s.drain() {
		c.request(requestShutdown)
		if r := c.relay.Load(); r != nil {
			r.leave()
		}
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
		if n := s.cutOff(); n > 0 {
			err = fmt.Errorf("%d connections did not end in time", n)
		}
		<-ended
	}
	s.ticks.close()
	return err
}

// drain closes the listeners, refuses connections from now on, and returns the open ones. It does this in one step with regard to Resume: a
// Resume before it opens listeners that drain closes, and a Resume after it fails.
func (s *Server) drain() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	closeAll(s.listeners)
	if !s.draining {
		s.draining = true
		close(s.quit)
	}
	return s.all()
}

// all returns the connections. The caller holds mu.
func (s *Server) all() []*conn {
	return slices.Collect(maps.Keys(s.conns))
}

// cutOff closes every socket, and returns how many it closed.
func (s *Server) cutOff() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.socket.Close()
		c.request(requestStop)
	}
	return len(s.conns)
}

// serve starts the goroutines for a socket. The server owns the socket from now on.
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

// crowdOut closes a connection in the handshake that another one has displaced.
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

// opened takes a connection out of the handshakes.
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

// handshakes are the connections that have not opened a virtual host yet. At the limit, a new connection displaces the oldest one from
// the source with the most handshakes, so that a source that only connects cannot keep others out. The server's mu guards it.
type handshakes struct {
	most     int // 0 means any number
	open     []*conn
	bySource map[netip.Prefix]int

	crowdedOut int          // since the last log line
	loggedAt   hook.Instant // 0 means never
}

// logInterval is the shortest time between log lines about handshakes that were crowded out.
const logInterval = 10 * time.Second

// enter adds a connection, and returns the connection that it displaces; nil = none.
func (h *handshakes) enter(c *conn) (crowdedOut *conn) {
	if h.most == 0 {
		return nil
	}
	if len(h.open) >= h.most {
		crowdedOut = h.oldestOfBusiest()
		h.leave(crowdedOut)
	}
	if h.bySource == nil {
		h.bySource = map[netip.Prefix]int{}
	}
	h.open = append(h.open, c)
	h.bySource[c.source]++
	return crowdedOut
}

// oldestOfBusiest returns the oldest handshake of the source that has the most.
func (h *handshakes) oldestOfBusiest() *conn {
	most := slices.Max(slices.Collect(maps.Values(h.bySource)))
	return h.open[slices.IndexFunc(h.open, func(c *conn) bool { return h.bySource[c.source] == most })]
}

// leave removes a connection, unless that has been done before.
func (h *handshakes) leave(c *conn) {
	i := slices.Index(h.open, c)
	if i < 0 {
		return
	}
	h.open = slices.Delete(h.open, i, i+1)
	if h.bySource[c.source]--; h.bySource[c.source] == 0 {
		delete(h.bySource, c.source)
	}
}

// count counts a displaced connection. If it is time to log, it returns how many were displaced since the last log line, otherwise 0.
func (h *handshakes) count(now hook.Instant) (crowdedOut int) {
	h.crowdedOut++
	if h.loggedAt != 0 && now.Sub(h.loggedAt) < logInterval {
		return 0
	}
	crowdedOut, h.crowdedOut, h.loggedAt = h.crowdedOut, 0, now
	return crowdedOut
}

// sourceOf returns the source of a socket: an IPv4 address, or an IPv6 /64, the smallest network that a host usually has.
func sourceOf(socket net.Conn) netip.Prefix {
	tcp, ok := socket.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	address := tcp.AddrPort().Addr().Unmap()
	bits := 64
	if address.Is4() {
		bits = 32
	}
	prefix, _ := address.WithZone("").Prefix(bits) // the address has as many bits
	return prefix
}
