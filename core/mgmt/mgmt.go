// Package mgmt is the management HTTP API. It has RabbitMQ's paths, JSON shapes, status codes and error bodies, so that existing
// tools and libraries work with it.
//
// GET /health, /healthz, /readyz and /version need no login, and metrics none from this machine. Everything below /api needs a
// login with HTTP Basic authentication. What a user may do there follows from the user's tags and, as over AMQP, from the user's
// permissions in vhosts.
//
// # Health
//
// /healthz is 200 while the process works. It is 503 once a log of the data directory has failed, which a restart helps. /readyz
// is 200 while clients may connect. It is 503 while the broker reads its data directory at the start (the body's status is then
// starting), while it drains, and when /healthz is 503. Memory and disk alarms leave both at 200, and are in the member alarms of
// the bodies: they stop publishers, and only consumers can end them. /health is 503 for any alarm.
//
// # Lists
//
// Lists take the parameters page, page_size (up to 500) and name, with use_regex an RE2 expression; sort, a path of members
// such as message_stats.publish, and sort_reverse; columns, paths of the wanted members; disable_stats and enable_queue_totals.
// RabbitMQ has pages of queues, exchanges, connections, channels and vhosts; here every list has them.
//
// # Units
//
// Sizes are in bytes. Durations are in milliseconds, and instants in milliseconds since the epoch, unless RabbitMQ has another
// unit in a member of that name: timestamp, head_message_timestamp and timeout (of heartbeats) are in seconds. Rates are per
// second, between two requests that are at least management.rates-interval apart. The first request gets 0.
//
// # Members RabbitMQ does not have
//
// Queues: expiry_strategy (the one in force), next_deadline and lease_expires_at (instants or null), messages_expired,
// messages_dead_lettered and messages_dropped (objects of counts by reason), oldest_message_age (in milliseconds, null for an
// empty queue). Members that describe RabbitMQ's own workings are left out: reductions, garbage_collection,
// backing_queue_status and the like.
//
// # Paths RabbitMQ does not have
//
// wasm/policies, wasm/policies/{name} and wasm/policies/{name}/reload: expiry policies in WebAssembly, see [Modules].
// health/checks/wasm-policies fails while one of them cannot be asked.
//
// nodes/{node}/memory-watermark and nodes/{node}/disk-free-limit: limits that hold until the broker ends.
//
// events: see below.
//
// # Events
//
// GET /api/events streams what happens, for as long as the reader likes. It sends server-sent events, whose id is a number, whose
// event is the kind and whose data is a JSON object. With format=ndjson, or the header Accept: application/x-ndjson, it sends one
// JSON object a line. After 15 s without an event it sends a comment or, with ndjson, an empty line. Users with the tag monitoring
// see everything. Others see what happens in vhosts that they may enter, and alarms.
//
// The parameters vhost and queue, or queue_regex, an RE2 expression, select by name; kind, reason and outcome are lists, with
// commas, of names below. A parameter selects only events that have the member: an alarm has no vhost, and passes no vhost.
// history=N begins with the last N events that pass, as far as they are remembered; columns selects members. The header
// Last-Event-ID resumes after an event, with or without history. A reader that is too slow, or resumes too late, gets an event of
// kind missed. Its count says how many events of whatever kind were lost; its restarted is true after a restart of the broker,
// which forgets all events. There are at most 64 streams at a time, 16 of them one user's.
//
// All events have id, kind and time.
//
// message_expired, message_dead_lettered, message_dropped, message_cycle: a message left its queue for a reason. It expired; or it
// was dead-lettered or dropped for another reason; or it was dropped, for whatever reason, because it would have been routed in a
// cycle. Members: vhost, queue, strategy (of expiry), reason (expired, rejected, maxlen, delivery_limit, queue_expired, duplicate),
// outcome (dropped, dead_lettered, unroutable, no_exchange, cycle, filtered), the exchange and routing_key that it was published with,
// message_id, body_bytes, enqueued, deadline, lateness_ms (how long after its deadline it expired, with a fraction), dead_letter_exchange,
// dead_letter_routing_key (null = its own), policy_digest (the first 16 digits of the digest of the WebAssembly policy that set
// the deadline). Long exchanges, keys and ids are cut off; the member cut, if present, names which.
//
// queue_expired: a queue was not used for as long as its lease says. Members: vhost, queue, strategy, reason, last_use, deadline,
// lateness_ms, messages_dropped, messages_dead_lettered.
//
// policy_applied: a policy was set or cleared, and its queues have applied that. Members: vhost, policy, operator (whether it is an
// operator policy), action (set, cleared), queues (how many).
//
// module_loaded, module_reloaded, module_rolled_back, module_unloaded: an expiry policy in WebAssembly. Members: module, digest,
// previous_digest, beside (the strategy that it shadows). breaker_opened: it fails too often, and is not asked before until.
// breaker_closed: it answers again. Members: module, digest, beside.
//
// alarm_raised, alarm_cleared: alarm, which is memory, disk, or shard and a number.
package mgmt

import (
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/events"
	"github.com/curfewmq/curfew/core/mgmt/probe"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/telemetry"
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
	// Events remembers what happened; nil = nothing does.
	Events *telemetry.Ring
	// Metrics answers admitted requests for metrics, at /metrics, /metrics/per-object and /metrics/detailed; nil = there are none.
	Metrics http.Handler
	// Alarms returns the alarms that are raised. Any goroutine may call it.
	Alarms func() []string
	// Listeners returns what the broker listens on.
	Listeners func() []Listener
	// Machine describes the machine and the process.
	Machine func() Machine

	GuestLoopbackOnly bool // the user guest may log in from this machine only
	// Hosts are the names that requests may be for, in lower case, besides addresses and this machine's own; empty = all names.
	Hosts           []string
	FixedOperators  bool // operator policies can be read only
	ConnectionLimit int  // how many clients there may be; 0 = any number
	RatesInterval   time.Duration
	BodyMax         int64 // largest body of a request, in bytes
}

// Listener is an address that the broker listens on.
type Listener struct {
	Protocol string // "amqp", "amqp/ssl", "http", "https" or "http/prometheus", as RabbitMQ calls them
	Address  net.Addr
	Expires  time.Time // of its certificate; zero without TLS
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
	started hook.Instant
	router  *router
	meters  *meters
	streams *events.Streams
	files   *definitions.Definitions
}

// New returns the API of a broker.
func New(o Options) *API {
	a := &API{
		Options: o, started: o.Clock(), meters: newMeters(o.Clock, o.RatesInterval), streams: events.NewStreams(),
		files: definitions.New(definitions.Options{
			Product: o.Product, Version: o.Version, RabbitMQ: RabbitMQ, Store: o.Store, Rules: o.Rules, FixedOperators: o.FixedOperators, Log: o.Log,
		}),
	}
	a.router = newRouter(a.routes())
	return a
}

func (a *API) users() *auth.Store { return a.Store.Users() }

const root = "/api/"

// ServeHTTP implements [http.Handler].
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header(), r)
	if err := a.misdirected(r); err != nil {
		(&request{api: a, w: w, r: r}).refuse(err)
		return
	}
	path := r.URL.EscapedPath()
	switch {
	case path == "/health":
		status, body := a.health()
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
	case path == "/api" || path == root:
		w.Header().Set("Location", root+"index.html")
		w.WriteHeader(http.StatusMovedPermanently)
	case strings.HasPrefix(path, root):
		a.route(w, r, strings.TrimPrefix(path, root)) //nolint:contextcheck // the request has it
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

// Starting answers in place of an API while its broker starts: the process lives, and there is nothing else to ask it.
func Starting() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header(), r)
		status := http.StatusServiceUnavailable
		switch r.URL.EscapedPath() {
		case "/healthz":
			status = http.StatusOK
		case "/readyz", "/health":
		default:
			w.Header().Set("Retry-After", "1")
			writeFailure(w, &failure{status, "starting", "the broker is being started: it reads its data directory"})
			return
		}
		open(w, r, status, object{{"status", "starting"}})
	})
}

func (a *API) health() (status int, body object) {
	if alarms := a.Alarms(); len(alarms) > 0 {
		return http.StatusServiceUnavailable, object{{"status", "alarm"}, {"alarms", alarms}}
	}
	return http.StatusOK, object{{"status", "ok"}}
}

// route answers a request for a path below the root.
func (a *API) route(w http.ResponseWriter, r *http.Request, path string) {
	rt, vars := a.router.find(path)
	if rt == nil {
		writeFailure(w, errNotFound)
		return
	}
	e := rt.endpoint(r.Method)
	if e == nil {
		w.Header().Set("Allow", rt.allow())
		if r.Method != http.MethodOptions {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
		return
	}
	c := &request{api: a, w: w, r: r, vars: vars}
	err := checkSite(r)
	if err == nil {
		err = c.serve(e)
	}
	if err != nil {
		c.refuse(err)
	}
}

// secure sets the headers that every answer has for browsers: answers are data, for this site alone, and must not be cached.
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

// Server returns a server for h with limits for slow and hostile clients. connections is how many it has at a time; 0 = any
// number. Its own errors go to log.
func Server(h http.Handler, log *slog.Logger, connections int) *http.Server {
	return &http.Server{
		ConnState:         (&connLimiter{limit: connections, log: log, conns: map[net.Conn]connState{}}).follow,
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
