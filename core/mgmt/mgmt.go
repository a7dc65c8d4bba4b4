// Package mgmt is the management HTTP API. It has RabbitMQ's paths, JSON shapes, status
// codes and error bodies, so that existing tools and libraries work with it. README.md
// describes it to its users: a new path has a line in [reference], from which the page's
// list is made, and a section there if one line is not enough.
//
// The routes say which users may use them. A handler gets a [request], which has the user,
// and answers or returns an error, which failureOf translates.
package mgmt

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/certfile"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/drain"
	"github.com/curfewmq/curfew/core/mgmt/live"
	"github.com/curfewmq/curfew/core/mgmt/page"
	"github.com/curfewmq/curfew/core/mgmt/pattern"
	"github.com/curfewmq/curfew/core/mgmt/probe"
	"github.com/curfewmq/curfew/core/mgmt/streams"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Options configure the API.
type Options struct {
	Product, Version string
	Node             string // the broker's name, "curfew@host"
	Store            *store.Store
	AMQP             *wire.Server
	Rules            *policies.Rules
	Clock            clock.Clock
	Log              *slog.Logger
	// Modules are the policies in WebAssembly; nil = the plugin is not there.
	Modules Modules
	// Lab shows the decisions of plugins and policies; nil = they are unknown.
	Lab Lab
	// Peers, Placements and Replicas are the cluster that the broker is a node of; all nil = it is alone.
	Peers      Peers
	Placements Placements
	Replicas   Replicas
	// Events remembers events; nil = there are none.
	Events *telemetry.Ring
	// Metrics answers admitted requests for metrics, at /metrics, /metrics/per-object and
	// /metrics/detailed; nil = there are none.
	Metrics http.Handler
	// Plugins are the names of the chain's plugins, in the order in which queues ask them.
	Plugins []string
	// LogLevel is the lowest level of lines that are logged; nil = it cannot be set.
	LogLevel *slog.LevelVar
	// Drain empties the broker before it is stopped; nil = nothing does.
	Drain *drain.Drain
	// Lateness returns how late messages expired, in seconds, by strategy; nil = it is unknown.
	Lateness func() map[string]telemetry.Distribution
	// Overstays returns how long consumers had messages past their deadlines, as Lateness does.
	Overstays func() map[string]telemetry.Distribution
	// Alarms returns the alarms that are raised. Any goroutine may call it.
	Alarms func() []string
	// Listeners returns the listeners of the broker.
	Listeners func() []Listener
	// Machine describes the machine and the process.
	Machine func() Machine

	GuestLoopbackOnly bool // the user guest may log in from this machine only
	// CertificateLogin says how certificates log clients in, where TLS requests them.
	CertificateLogin auth.CertificateLogin
	// VerifyClient checks the certificates that a client has shown, its own first, against
	// the authorities that are trusted now. Any goroutine may call it.
	VerifyClient func(shown []*x509.Certificate) error
	// Hosts are the names that requests may be for, in lower case, besides addresses and
	// this machine's own; empty = all names.
	Hosts           []string
	FixedOperators  bool // operator policies can be read only
	ConnectionLimit int  // how many clients there may be; 0 = any number
	RatesInterval   time.Duration
	BodyMax         int64 // largest body of a request, in bytes
	// Session is how long a login by /api/session lasts.
	Session time.Duration
	// PolicyFiles is the folder with the policies that were loaded at runtime, which
	// backups contain; "" = there is none.
	PolicyFiles string
	// TraceURL is where a trace can be looked at, with {trace_id} in it; "" = unknown.
	TraceURL string
	// Profiles lets administrators have profiles of the process, at /debug/pprof/.
	Profiles bool
}

// Listener is an address that the broker listens on.
type Listener struct {
	Protocol string // "amqp", "amqp/ssl", "http", "https", "http/prometheus" or "clustering", as RabbitMQ calls them
	Address  net.Addr
	Files    []certfile.File // of its certificates; none without TLS
}

// ofAuthorities reports whether a file has the authorities of others, and not the listener's own certificate.
func ofAuthorities(f *certfile.File) bool { return strings.HasSuffix(f.Key, "tls.ca") }

// Expires returns when the first certificate of the chain that the listener presents expires; zero without TLS.
func (l *Listener) Expires() (first time.Time) {
	for _, f := range l.Files {
		for _, cert := range f.Certificates {
			if !ofAuthorities(&f) && (first.IsZero() || cert.NotAfter.Before(first)) {
				first = cert.NotAfter
			}
		}
	}
	return first
}

// hostPort returns the address that the listener has; zero values if it has none.
func (l *Listener) hostPort() (host string, port int) {
	host, text, _ := net.SplitHostPort(l.Address.String())
	port, _ = strconv.Atoi(text)
	return host, port
}

// Machine describes the process and its machine.
type Machine struct {
	Memory, MemoryLimit uint64 // bytes that the process has, and above which publishers wait; 0 = unknown
	MemoryTotal         uint64 // bytes that the process could have; 0 = unknown
	DiskLimit           uint64 // bytes of free disk space below which publishers wait
	DiskFree            uint64 // bytes; 0 = unknown
	Files, FilesLimit   int    // open descriptors, and how many there may be; 0 = unknown
	Processors          int
	DataDir             string
	ConfigFiles         []string // that the configuration was read from
	LogFiles            []string
}

// API answers requests. Any goroutine may use it.
type API struct {
	Options
	router *router
	page   *page.Page
	nodes  *nodes
	bodies *bodyMemory
	turns  *pattern.Turns // of regular expressions that users have chosen

	// The handlers of the routes, by subject. Handlers that need nothing but their request
	// are functions.
	accounts    *userHandlers
	backups     *backupHandlers
	checks      *healthHandlers
	cluster     *clusterHandlers
	connections *connectionHandlers
	deadLetters *flowHandlers
	definitions *definitionHandlers
	events      *eventHandlers
	globals     *globalHandlers
	held        *heldHandlers
	live        *liveHandlers
	machine     *nodeHandlers
	modules     *moduleHandlers
	queues      *queueHandlers
	redriving   *redriveHandlers
	sessions    *sessionHandlers
	simulations *simulationHandlers
	totals      *totals
	vhosts      *vhostHandlers
}

// New returns the API of a broker.
func New(o Options) *API {
	if o.Peers == nil {
		only := alone{o.Node, o.Store}
		o.Peers, o.Placements, o.Replicas = only, only, only
	}
	a := &API{Options: o, page: page.New(), bodies: newBodyMemory(), turns: pattern.NewTurns(o.Clock)}
	viewers, started := streams.New("live streams"), o.Clock()
	a.nodes = &nodes{
		self: o.Node, peers: o.Peers, placements: o.Placements, replicas: o.Replicas, store: o.Store, log: o.Log, viewers: viewers,
		parts: newGatherMemory(), deep: deepPage, patience: forwardTime, silence: nodeSilence,
	}
	rates := newMeters(o.Clock, o.RatesInterval)
	a.totals = &totals{&a.Options, rates, a.nodes}
	a.checks = &healthHandlers{o.Node, o.Store, o.AMQP, o.ConnectionLimit, o.Alarms, o.Listeners, a.nodes}
	a.machine = &nodeHandlers{&a.Options, started, rates, a.nodes, a.checks, a.totals}
	a.cluster = &clusterHandlers{a.nodes, o.Log}
	a.queues = &queueHandlers{o.Node, o.Clock, rates, a.nodes}
	a.connections = &connectionHandlers{o.Node, rates, a.queues}
	a.vhosts = &vhostHandlers{o.Node, o.Store, o.AMQP, rates, a.nodes, a.totals}
	a.accounts = &userHandlers{o.Store}
	a.globals = &globalHandlers{o.Store, a.nodes}
	a.sessions = &sessionHandlers{&a.Options, a.nodes}
	a.held = &heldHandlers{o.Clock}
	a.redriving = &redriveHandlers{o.Clock, o.Log}
	a.deadLetters = &flowHandlers{clock: o.Clock, meters: rates, ring: o.Events}
	a.modules = &moduleHandlers{o.Modules, o.Lab}
	a.simulations = &simulationHandlers{o.Lab, o.Clock, make(chan struct{}, maxSimulations)}
	a.events = &eventHandlers{o.Events, streams.New("event streams")}
	a.definitions = &definitionHandlers{files: definitions.New(definitions.Options{
		Product: o.Product, Version: o.Version, RabbitMQ: rabbit.Version, Store: o.Store, Rules: o.Rules, FixedOperators: o.FixedOperators, Log: o.Log,
	}), nodes: a.nodes, log: o.Log}
	a.definitions.files.Modules, _ = o.Modules.(definitions.Modules) // nil, or a test's
	a.backups = &backupHandlers{backups{streams: streams.New("backups")}, o.Node, o.Version, o.PolicyFiles, o.Store, o.Clock, o.Log, o.Replicas}
	a.live = &liveHandlers{
		node: o.Node, store: o.Store, amqp: o.AMQP, clock: o.Clock, started: started, machine: o.Machine, turns: a.turns, viewers: viewers,
		views: live.NewViews(o.Clock), survey: live.NewSurvey(func() []*vhost.VHost { return o.Store.VHosts() }, o.Clock),
		totals: a.totals, checks: a.checks, queues: a.queues,
	}
	if o.Lateness != nil {
		a.live.late = append(a.live.late, live.NewLateness("lateness", o.Lateness, o.Clock))
	}
	if o.Overstays != nil {
		a.live.late = append(a.live.late, live.NewLateness("overstay", o.Overstays, o.Clock))
	}
	a.router = newRouter(a.routes())
	return a
}

// Cluster returns the name that the broker was given or, if it has none, the one of its
// node; in a cluster, of the first node.
func (a *API) Cluster() string { return a.nodes.clusterName() }

func (a *API) users() *auth.Store { return a.Store.Users() }

const root = "/api/"

// ServeHTTP implements [http.Handler].
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header(), r)
	if err := a.misdirected(r); err != nil {
		(&request{caller: caller{api: a, w: w, r: r}}).refuse(err)
		return
	}
	if r.URL.EscapedPath() == pathInQuery {
		var err error
		if r, err = atPathOf(r); err != nil {
			(&request{caller: caller{api: a, w: w, r: r}}).refuse(err)
			return
		}
	}
	path := r.URL.EscapedPath()
	switch {
	case path == "/health":
		status, body := a.checks.health()
		open(w, r, status, body)
	case path == "/healthz":
		status, body := probe.Health.Answer(a.Alarms())
		open(w, r, status, body)
	case path == "/readyz":
		status, body := probe.Readiness.Answer(a.Alarms())
		open(w, r, status, body)
	case path == "/version":
		open(w, r, http.StatusOK, object{{"product", a.Product}, {"version", a.Version}})
	case isMetrics(path):
		a.metrics(w, r)
	case strings.HasPrefix(path, profilesRoot):
		a.profile(w, r)
	case path == "/cli" || strings.HasPrefix(path, "/cli/"):
		noTool(w)
	case path == "/api" || path == root:
		w.Header().Set("Location", root+"index.html")
		w.WriteHeader(http.StatusMovedPermanently)
	case strings.HasPrefix(path, root):
		a.route(w, r, strings.TrimPrefix(path, root)) //nolint:contextcheck // the request has it
	case a.page.Has(path):
		a.page.ServeHTTP(w, r)
	default:
		writeFailure(w, errNotFound)
	}
}

// open answers a path that needs no login.
func open(w http.ResponseWriter, r *http.Request, status int, body object) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "HEAD, GET")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	writeObject(w, status, body)
}

// Starting answers in place of an API while its broker starts. It can only say that the process lives.
func Starting() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header(), r)
		status := http.StatusServiceUnavailable
		switch r.URL.EscapedPath() {
		case "/healthz":
			status = http.StatusOK
		case "/readyz", "/health":
		case "/":
			page.Starting(w, r)
			return
		default:
			w.Header().Set("Retry-After", "1")
			writeFailure(w, &failure{status, "starting", "the broker is being started: it reads its data directory, or waits for the other nodes of a new cluster"})
			return
		}
		open(w, r, status, object{{"status", "starting"}})
	})
}

func (a *healthHandlers) health() (status int, body object) {
	if alarms := a.alarms(); len(alarms) > 0 {
		return http.StatusServiceUnavailable, object{{"status", "alarm"}, {"alarms", alarms}}
	}
	return http.StatusOK, object{{"status", "ok"}}
}

// route answers a request for a path below the root.
func (a *API) route(w http.ResponseWriter, r *http.Request, path string) {
	a.answer(&request{caller: caller{api: a, w: w, r: r}}, path, checkSite)
}

// answer answers a request for a path below the root that check does not refuse.
func (a *API) answer(c *request, path string, check func(*http.Request) error) {
	rt, vars := a.router.find(path)
	if rt == nil {
		writeFailure(c.w, errNotFound)
		return
	}
	e := rt.endpoint(c.r.Method)
	if e == nil {
		c.w.Header().Set("Allow", rt.allow())
		if c.r.Method != http.MethodOptions {
			c.w.WriteHeader(http.StatusMethodNotAllowed)
		}
		return
	}
	c.vars = vars
	defer func() { // in any case: an answer that breaks off panics
		c.freeBody()
		if c.holding != nil {
			c.holding.end()
		}
	}()
	err := check(c.r)
	if err == nil {
		err = c.serve(e)
	}
	if err != nil {
		c.refuse(err)
	}
}

// secure sets the headers that every answer has for browsers: answers are data, for this
// site alone, and must not be cached.
func secure(h http.Header, r *http.Request) {
	h.Set("Cache-Control", "no-cache, no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Vary", "Origin")
	if r.TLS != nil {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// Server returns a server for h with limits for slow and hostile clients. connections is
// how many it has at a time; 0 = any number. Its own errors go to log.
func Server(h http.Handler, log *slog.Logger, connections int) *http.Server {
	return &http.Server{
		ConnState:         (&connLimiter{limit: connections, log: log, conns: map[net.Conn]connState{}}).follow,
		ConnContext:       noteForwarded,
		Handler:           contained{h, log},
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(errorLog{log.Handler(), new(clock.Seldom)}, slog.LevelWarn),
	}
}

// contained logs panics of its handler, and ends their connection. The handler must have released its locks by then.
type contained struct {
	http.Handler
	log *slog.Logger
}

func (h contained) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p != http.ErrAbortHandler { //nolint:errorlint // a panic's value
			h.log.Error("a request was broken off because of an error in the broker: please report it",
				"method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
		}
		panic(http.ErrAbortHandler)
	}()
	h.Handler.ServeHTTP(w, r)
}

// errorLog is where a server writes its own errors.
type errorLog struct {
	slog.Handler
	tls *clock.Seldom // lines about failed TLS handshakes
}

// maxTLSError limits the text of a failed TLS handshake, which quotes a stranger's certificates, in bytes.
const maxTLSError = 600

func (l errorLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "http: TLS handshake error") {
		should, skipped := l.tls.Next(hook.Instant(r.Time.UnixNano()))
		if !should {
			return nil
		}
		if skipped > 0 {
			r.AddAttrs(slog.Int("not_told", skipped))
		}
		r.Message = strings.ToValidUTF8(r.Message[:min(len(r.Message), maxTLSError)], "")
	}
	return l.Handler.Handle(ctx, r)
}

// isMetrics reports whether Options.Metrics answers for a path.
func isMetrics(path string) bool {
	return path == "/metrics" || path == "/metrics/per-object" || path == "/metrics/detailed"
}

// metrics answers requests from this machine, and requests of users that may monitor.
func (a *API) metrics(w http.ResponseWriter, r *http.Request) {
	if a.Metrics == nil {
		writeFailure(w, errNotFound)
		return
	}
	c := &request{caller: caller{api: a, w: w, r: r}}
	if err := admitToMetrics(c); err != nil { //nolint:contextcheck // the request has it
		c.refuse(err)
		return
	}
	a.Metrics.ServeHTTP(w, r)
}

func admitToMetrics(c *request) error {
	if err := checkSite(c.r); err != nil {
		return err
	}
	if c.elsewhere() == "" {
		return nil
	}
	if err := c.authenticate(); err != nil {
		return err
	}
	return c.authorise(monitor)
}

// Unguarded answers probes, and requests for metrics without a login, from any machine.
// Only operators and their tools may be able to reach its listener.
func (a *API) Unguarded() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		secure(w.Header(), r)
		if err := a.misdirected(r); err != nil {
			(&request{caller: caller{api: a, w: w, r: r}}).refuse(err)
			return
		}
		switch {
		case isMetrics(path) && a.Metrics != nil:
			a.Metrics.ServeHTTP(w, r)
		case path == "/healthz" || path == "/readyz":
			a.ServeHTTP(w, r)
		default:
			writeFailure(w, errNotFound)
		}
	})
}
