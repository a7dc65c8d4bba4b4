package mgmt

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/mgmt/events"
	"github.com/curfewmq/curfew/core/mgmt/probe"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wire"
)

// passed answers a health check that passes.
func (c *request) passed(more ...member) error {
	return c.reply(append(object{{"status", "ok"}}, more...))
}

// failed answers a health check that does not pass.
func (c *request) failed(reason string, more ...member) error {
	writeObject(c.w, http.StatusServiceUnavailable, append(object{{"status", "failed"}, {"reason", reason}}, more...))
	return nil
}

// healthHandlers check this node's health.
type healthHandlers struct {
	node            string
	store           *store.Store
	amqp            *wire.Server
	connectionLimit int // 0 = any number
	alarms          func() []string
	listeners       func() []Listener
	nodes           *nodes
}

func (a *healthHandlers) alarmsRaised(c *request) error {
	alarms := a.alarms()
	if len(alarms) == 0 {
		return c.passed()
	}
	return c.failed("alarms raised", member{"alarms", a.alarmDetails(alarms)})
}

// alarmDetails describes alarms, a disk alarm with the space that is missing.
func (a *healthHandlers) alarmDetails(alarms []string) []object {
	all := make([]object, len(alarms))
	for i, name := range alarms {
		all[i] = object{{"node", a.node}, {"resource", name}, {"text", a.alarmText(name)}}
		if short := a.store.Shortage(); name == "disk" && short != nil {
			all[i] = append(all[i], events.Shortage(telemetry.Shortage(*short))...)
		}
	}
	return all
}

// checkVHosts fails while a vhost has no owner. A broker alone owns all, and does not start if it cannot recover a vhost or a definition.
func (a *healthHandlers) checkVHosts(c *request) error {
	down := []string{}
	for _, name := range a.nodes.placements.VHosts() {
		if owner, known := a.nodes.placements.OwnerOf(name); known && owner == 0 && (isMonitor(c.user) || c.mayEnter(name)) {
			down = append(down, name)
		}
	}
	if len(down) > 0 {
		return c.failed("Some virtual hosts are down", member{"virtual-hosts", down})
	}
	return c.passed()
}

// checkRegistry fails while the registry has no owner: then users, permissions and vhosts can be read, but not changed.
func (a *healthHandlers) checkRegistry(c *request) error {
	if a.nodes.placements.Registrar() == 0 {
		return c.failed("the registry has no owner: a majority of the nodes is needed")
	}
	return c.passed()
}

// checkSingle always passes, because no other node depends on a broker alone. In a cluster it answers with this node's part of [checked].
func checkSingle(c *request) error {
	if c.part {
		return c.api.cluster.sendView(c)
	}
	return c.passed(member{"reason", "single node cluster"})
}

func (a *healthHandlers) checkPort(c *request) error {
	asked, err := strconv.Atoi(c.vars["port"])
	if err != nil {
		return badRequest("Invalid port")
	}
	var ports []any
	for _, l := range a.listeners() {
		_, port := l.hostPort()
		if port == asked {
			return c.passed(member{"port", port})
		}
		ports = append(ports, port)
	}
	return c.failed("No active listener", member{"missing", asked}, member{"ports", ports})
}

// protocolNames maps clients' names for protocols to the listeners' names.
var protocolNames = map[string]string{
	"amqp091": "amqp", "amqp0.9.1": "amqp", "amqp-0-9-1": "amqp", "amqp0-9-1": "amqp",
	"amqps": "amqp/ssl", "amqp091/ssl": "amqp/ssl",
}

func (a *healthHandlers) checkProtocol(c *request) error {
	asked := c.vars["protocol"]
	protocol, ok := protocolNames[asked]
	if !ok {
		protocol = asked
	}
	var there []string
	for _, l := range a.listeners() {
		if l.Protocol == protocol {
			return c.passed(member{"protocol", protocol})
		}
		there = append(there, l.Protocol)
	}
	return c.failed("No active listener", member{"missing", asked}, member{"protocols", slices.Compact(there)})
}

// units are the units of time that certificates can be checked for.
var units = map[string]func(time.Time, int) time.Time{
	"days":   func(t time.Time, n int) time.Time { return t.AddDate(0, 0, n) },
	"weeks":  func(t time.Time, n int) time.Time { return t.AddDate(0, 0, 7*n) },
	"months": func(t time.Time, n int) time.Time { return t.AddDate(0, n, 0) },
	"years":  func(t time.Time, n int) time.Time { return t.AddDate(n, 0, 0) },
}

// maxWithin limits how many units a check may look ahead: certificates do not last that long.
const maxWithin = 10_000

func (a *healthHandlers) checkCertificates(c *request) error {
	after, ok := units[c.vars["unit"]]
	if !ok {
		return badRequest("Time unit not recognised. Supported units: days, weeks, months, years.")
	}
	n, err := strconv.Atoi(c.vars["within"])
	if err != nil || n < 0 || n > maxWithin {
		return badRequest("Invalid expiration value.")
	}
	until := after(time.Now(), n)
	var expired []object
	for _, l := range a.listeners() {
		if o := l.expiring(until); o != nil {
			expired = append(expired, append(o, member{"node", a.node}))
		}
	}
	if expired == nil {
		return c.passed()
	}
	return c.failed("Certificates expiring", member{"expired", expired})
}

// expiring describes a listener with a certificate, its own or one of its clients' authorities, that expires before until; nil if there is
// none.
func (l *Listener) expiring(until time.Time) object {
	var o object
	some := false
	for _, f := range l.Files {
		on := []string{}
		for _, cert := range f.Certificates {
			if cert.NotAfter.Before(until) {
				on, some = append(on, cert.NotAfter.UTC().Format(time.RFC3339)), true
			}
		}
		name := "certfile"
		if ofAuthorities(&f) {
			name = "cacertfile"
		}
		o = append(o, member{name, f.Path}, member{name + "_expires_on", on})
	}
	if !some {
		return nil
	}
	host, port := l.hostPort()
	return append(o, member{"protocol", l.Protocol}, member{"interface", host}, member{"port", port})
}

// aliveness sends a message through a queue of its own and waits for it.
func aliveness(c *request) error {
	const name = "aliveness-test"
	return c.direct(func(ctx context.Context, d internalClient) error {
		if _, err := d.Call(ctx, &amqp.QueueDeclare{Queue: name}); err != nil {
			return err
		}
		routed, err := d.send(ctx, "", name, amqp.Properties{}.Append(nil), []byte("test_message"))
		if err != nil {
			return err
		}
		r, err := d.Call(ctx, &amqp.BasicGet{Queue: name, NoAck: true})
		if err != nil {
			return err
		}
		if _, got := r.Method.(*amqp.BasicGetOK); !got || !routed {
			return c.failed("the message did not come back")
		}
		return c.passed()
	})
}

// Checks that RabbitMQ 4 has added.

const notServing = "this rabbit node is not currently available to serve" // RabbitMQ's words

// checkService passes while clients may connect here.
func (a *healthHandlers) checkService(c *request) error {
	if len(probe.Readiness.Failures(a.alarms())) > 0 {
		return c.failed(notServing)
	}
	return c.passed()
}

// connectionCount counts clients, and how many there may be.
func (a *healthHandlers) connectionCount() (now int, limit any, below bool) {
	now = a.amqp.Connections()
	if a.connectionLimit == 0 {
		return now, "infinity", true
	}
	return now, a.connectionLimit, now < a.connectionLimit
}

const connectionLimitReached = "node connection limit is reached"

func (a *healthHandlers) checkConnectionLimit(c *request) error {
	now, limit, below := a.connectionCount()
	if !below {
		return c.failed(connectionLimitReached, member{"limit", limit}, member{"connections", now})
	}
	return c.passed(member{"limit", limit}, member{"connections", now})
}

// checkServing passes while clients may connect here and would get in.
func (a *healthHandlers) checkServing(c *request) error {
	if len(probe.Readiness.Failures(a.alarms())) > 0 {
		return c.failed(notServing)
	}
	if !slices.ContainsFunc(a.listeners(), func(l Listener) bool { return strings.HasPrefix(l.Protocol, "amqp") }) {
		return c.failed("no active listeners for AMQP/AMQPS")
	}
	if now, _, below := a.connectionCount(); !below {
		return c.failed(connectionLimitReached, member{"connections", now})
	}
	return c.passed()
}

// alarmTexts describes the raised alarms, and what each of them means for clients.
func (a *healthHandlers) alarmTexts() []object {
	all := []object{}
	for _, name := range a.alarms() {
		all = append(all, object{{"name", name}, {"text", a.alarmText(name)}})
	}
	return all
}

// alarmText returns the meaning of an alarm.
func (a *healthHandlers) alarmText(name string) string {
	switch name {
	case "memory":
		return "The broker has more memory than its limit: publishers wait until consumers have taken messages."
	case probe.Draining:
		return "The broker is being drained: publishers wait, and no client connects, until it is stopped or the drain is ended."
	case probe.Alone:
		return "Fewer than two nodes of the cluster reach one another, or they are agreeing on an owner. Nobody is served here until they do."
	case probe.Clock:
		return "The clock differs too much from those of the other nodes. This node owns nothing until its clock is set and it is started again."
	case "disk":
		if short := a.store.Shortage(); short != nil && short.Files {
			return "No more files can be opened: publishers wait until clients close connections. Raise the limit of open files (ulimit -n), or lower limits.connections."
		}
		return "There is less free disk space than the limit: publishers wait until there is more."
	}
	if strings.HasPrefix(name, "shard ") {
		return "The log " + name + " cannot be written any more, and its queues have stopped. See the broker's log, and restart it."
	}
	return name
}
