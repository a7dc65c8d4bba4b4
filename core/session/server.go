package session

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// Options are shared by all connections. They must not change while there are any.
type Options struct {
	Product, Version string // as connection.start announces them
	Own              string // the broker's own version, announced as well
	ClusterName      string
	Node             string // the broker's name, "curfew@host"

	Queues *queue.Broker // also used for the queues of direct replies; nil = they get a Broker of their own
	Users  *auth.Store
	VHosts func(name string) (*vhost.VHost, bool)

	// Home returns the home of a vhost, and whether the vhost exists; nil means that this
	// broker serves all vhosts. The functions below are needed only with Home.
	Home func(vhost string) (Home, bool)
	// Applied returns how much this node knows of the cluster's registry: vhosts, users, permissions.
	Applied func() wlog.Index
	// WaitApplied waits until the node's view of the registry has reached an index.
	WaitApplied func(ctx context.Context, index wlog.Index) error
	// Fresh waits until the node knows everything that was in the registry at the time of
	// the call; nil means that it always does.
	Fresh func(ctx context.Context) error

	ChannelMax        uint16 // channels per connection, at least 1
	FrameMax          int    // of a whole frame, at least amqp.FrameMinSize
	Heartbeat         uint16 // proposed to clients, seconds; 0 means none
	MessageMax        int    // largest message body
	Connections       int    // open at a time; 0 means any number
	Consumers         int    // per channel; 0 means any number
	ConsumerTimeout   time.Duration
	GuestLoopbackOnly bool // the user guest may log in from this machine only
	// CertificateLogin says how certificates log clients in, where TLS verifies them.
	CertificateLogin auth.CertificateLogin

	Log       *slog.Logger
	Telemetry *telemetry.Recorder // nil records nothing
}

// Server holds the state that all connections share. Any goroutine may use it.
type Server struct {
	Options
	start []byte // the frame of connection.start
	// startExternal is the connection.start frame for clients whose certificate may log them in.
	startExternal []byte
	replies       *replies
	spans         *telemetry.Spans // nil: tracing is off

	ids          atomic.Uint64
	openConns    atomic.Int64 // connections past connection.open, including relayed ones
	churn        Churn
	closed       closedCounters
	barrier      barrier
	strangers    clock.Seldom // log lines about clients that have not logged in
	pendingBytes atomic.Int64 // bytes to be written to clients, or of incomplete content from them
}

// NewServer returns a server without connections.
func NewServer(o Options) *Server {
	if o.Queues == nil {
		o.Queues = new(queue.Broker)
	}
	s := &Server{Options: o, replies: newReplies(o.Queues), spans: o.Telemetry.Spans(), barrier: barrier{turn: make(chan struct{}, 1)}}
	start := amqp.ConnectionStart{VersionMajor: 0, VersionMinor: 9, ServerProperties: s.properties(), Mechanisms: auth.Mechanisms, Locales: "en_US"}
	s.start = amqp.AppendMethod(nil, 0, &start)
	start.Mechanisms = auth.External + " " + auth.Mechanisms // in RabbitMQ's order
	s.startExternal = amqp.AppendMethod(nil, 0, &start)
	return s
}

// properties returns the server properties, with RabbitMQ's names for capabilities.
func (s *Server) properties() amqp.Table {
	var can amqp.Table
	for _, name := range []string{
		"publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify", "connection.blocked",
		"consumer_priorities", "authentication_failure_close", "per_consumer_qos", "direct_reply_to",
	} {
		can = append(can, amqp.Field{Key: name, Value: true})
	}
	return amqp.Table{
		{Key: "capabilities", Value: can},
		{Key: "cluster_name", Value: s.ClusterName},
		{Key: "copyright", Value: "The Curfew authors"},
		{Key: "curfew_version", Value: s.Own},
		{Key: "information", Value: "Licensed under the Apache License 2.0"},
		{Key: "platform", Value: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH},
		{Key: "product", Value: s.Product},
		{Key: "version", Value: s.Version},
	}
}

// Accept returns a new connection, which waits for the client's protocol header. It calls
// wake, from any goroutine, when Tick should be called soon, or when LeaseAt has become
// earlier. wake must not call the connection.
func (s *Server) Accept(p Peer, wake func()) *Conn { return s.accept(p, wake, !p.TLS) }

// accept is Accept; refers is the argument of newWriteBuffer.
func (s *Server) accept(p Peer, wake func(), refers bool) *Conn {
	c := &Conn{shared: shared{srv: s}, peer: p, id: s.ids.Add(1), wake: wake, out: newWriteBuffer(&s.pendingBytes, refers), frameMax: handshakeFrameMax}
	c.out.tick = wake
	c.channels.out, c.round.buffered, c.alarm.wake = &c.out, &s.pendingBytes, wake
	c.observer.srv, c.observer.peer = s, &c.peer
	c.membership.srv, c.membership.id, c.registry.srv = s, c.id, s
	if s.spans != nil {
		c.observer.title = p.name()
	}
	return c
}

// PendingBytes returns roughly how many bytes wait to be written to clients, or belong to incomplete content from them.
func (s *Server) PendingBytes() int64 { return s.pendingBytes.Load() }

// admit counts a connection, unless there are too many.
func (s *Server) admit() bool {
	n := s.openConns.Add(1)
	if s.Connections > 0 && n > int64(s.Connections) {
		s.openConns.Add(-1)
		return false
	}
	return true
}

// propsMax is the most bytes of properties that fit into the largest frame a client may negotiate.
func (s *Server) propsMax() int { return s.FrameMax - contentOverhead }

// barrier shares calls of Options.Fresh: one call runs at a time, and all callers that
// asked before it began get its result. This way failing logins cannot flood the registry.
// Any goroutine may use it.
type barrier struct {
	turn  chan struct{} // capacity 1: has a value during a call, which guards the fields below
	begun atomic.Uint64 // calls; written during a call
	last  uint64        // number of the call that returned err
	err   error
}

// wait waits for the end of a call of fresh that began after wait was called, its own or
// another caller's, and returns its error.
func (b *barrier) wait(ctx context.Context, fresh func(context.Context) error) error {
	before := b.begun.Load()
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.turn }()
	if b.last > before {
		return b.err
	}
	n := b.begun.Add(1)
	err := fresh(ctx)
	if err == nil || ctx.Err() == nil { // otherwise only this caller gave up, and its result is not shared
		b.last, b.err = n, err
	}
	return err
}

// Refresh waits until the node knows everything that is in the registry now. Without a registry it always does.
func (s *Server) Refresh(ctx context.Context) error {
	if s.Fresh == nil {
		return nil
	}
	return s.barrier.wait(ctx, s.Fresh)
}

// loginFunc checks credentials.
type loginFunc func(context.Context, auth.Origin) (auth.User, error)

// orAgain returns a check that is repeated if it fails while the node's view of the users
// may be outdated. The registry is asked only after a refusal of checked credentials, which
// limits it like the checks themselves.
func (s *Server) orAgain(check loginFunc) loginFunc {
	if s.Fresh == nil {
		return check
	}
	return func(ctx context.Context, from auth.Origin) (auth.User, error) {
		version := s.Users.Version()
		u, err := check(ctx, from)
		if !auth.WasChecked(err) || s.Refresh(ctx) != nil || s.Users.Version() == version {
			return u, err
		}
		return check(ctx, from)
	}
}
