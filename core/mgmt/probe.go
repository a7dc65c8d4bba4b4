package mgmt

import (
	"net/http"
	"slices"
	"strings"
)

// Draining is the alarm of a broker that closes its connections and takes no others.
const Draining = "draining"

// shardAlarm is what the names of alarms begin with that say that a log of the data directory failed.
const shardAlarm = "shard "

// probe is what those who start and stop brokers ask: it says which alarms speak against the broker.
type probe func(alarm string) bool

var (
	// health is whether the process does its work: if not, it is to be started again, which is what helps when a log failed.
	health probe = isBroken
	// readiness is whether clients may be sent here. That there is no more memory, or room on the disk, is no reason against
	// it: publishers wait, and it takes consumers to come to put an end to that.
	readiness probe = func(alarm string) bool { return alarm == Draining || isBroken(alarm) }
)

func isBroken(alarm string) bool { return strings.HasPrefix(alarm, shardAlarm) }

// failures are those of the alarms that speak against the broker.
func (p probe) failures(alarms []string) []string {
	return slices.DeleteFunc(slices.Clone(alarms), func(alarm string) bool { return !p(alarm) })
}

// answer says how the broker is, and lists all alarms in any case.
func (p probe) answer(w http.ResponseWriter, all []string) {
	alarms := slices.DeleteFunc(append([]string{}, all...), func(alarm string) bool { return alarm == Draining })
	failures := p.failures(all)
	if len(failures) == 0 {
		writeJSON(w, http.StatusOK, appendObject(nil, object{{"status", "ok"}, {"alarms", alarms}}))
		return
	}
	writeJSON(w, http.StatusServiceUnavailable, appendObject(nil, object{{"status", "failed"}, {"reasons", failures}, {"alarms", alarms}}))
}

func (a *API) healthz(w http.ResponseWriter) { health.answer(w, a.Alarms()) }
func (a *API) readyz(w http.ResponseWriter)  { readiness.answer(w, a.Alarms()) }

// Starting answers in place of an API whose broker is not there yet: that the process lives, and that nothing else can be
// asked of it so far.
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
		(*API)(nil).open(w, r, func(w http.ResponseWriter) {
			writeJSON(w, status, appendObject(nil, object{{"status", "starting"}}))
		})
	})
}

// The checks below are those that RabbitMQ 4 has in addition.

const notServing = "this rabbit node is not currently available to serve" // RabbitMQ's words

// checkService passes while clients may be sent here.
func (a *API) checkService(c *request) error {
	if len(readiness.failures(a.Alarms())) > 0 {
		return c.failed(notServing)
	}
	return c.reply(object{{"status", "ok"}})
}

// connections counts clients, and what there may be of them.
func (a *API) connectionCount() (now int, limit any, below bool) {
	now = a.AMQP.Connections()
	if a.ConnectionLimit == 0 {
		return now, "infinity", true
	}
	return now, a.ConnectionLimit, now < a.ConnectionLimit
}

const connectionLimitReached = "node connection limit is reached"

func (a *API) checkConnectionLimit(c *request) error {
	now, limit, below := a.connectionCount()
	if !below {
		return c.failed(connectionLimitReached, member{"limit", limit}, member{"connections", now})
	}
	return c.reply(object{{"status", "ok"}, {"limit", limit}, {"connections", now}})
}

// checkServing passes while clients may be sent here and would get in.
func (a *API) checkServing(c *request) error {
	if len(readiness.failures(a.Alarms())) > 0 {
		return c.failed(notServing)
	}
	if !slices.ContainsFunc(a.Listeners(), func(l Listener) bool { return strings.HasPrefix(l.Protocol, "amqp") }) {
		return c.failed("no active listeners for AMQP/AMQPS")
	}
	if now, _, below := a.connectionCount(); !below {
		return c.failed(connectionLimitReached, member{"connections", now})
	}
	return c.reply(object{{"status", "ok"}})
}
