package mgmt

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/telemetry"
)

// failed answers a health check that does not pass.
func (c *request) failed(reason string, more ...member) error {
	writeJSON(c.w, http.StatusServiceUnavailable, appendObject(nil, append(object{{"status", "failed"}, {"reason", reason}}, more...)))
	return nil
}

func (a *API) checkAlarms(c *request) error {
	if node, named := c.vars["node"]; named {
		if err := a.isNode(node); err != nil {
			return err
		}
	}
	alarms := a.Alarms()
	if len(alarms) == 0 {
		return c.reply(object{{"status", "ok"}})
	}
	all := make([]object, len(alarms))
	for i, name := range alarms {
		all[i] = object{{"node", a.Node}, {"resource", name}}
		if short := a.Store.Shortage(); name == "disk" && short != nil {
			all[i] = append(all[i], shortage(telemetry.Shortage(*short))...)
		}
	}
	return c.failed("alarms raised", member{"alarms", all})
}

// checkVHosts passes: a vhost, or a definition, that could not be brought back keeps the broker from starting.
func (*API) checkVHosts(c *request) error { return c.reply(object{{"status", "ok"}}) }

// checkSingle passes: no other broker depends on this one.
func (*API) checkSingle(c *request) error {
	return c.reply(object{{"status", "ok"}, {"reason", "single node cluster"}})
}

func (a *API) checkPort(c *request) error {
	port, err := strconv.Atoi(c.vars["port"])
	if err != nil {
		return badRequest("Invalid port")
	}
	var ports []any
	for _, l := range a.Listeners() {
		if l.port() == port {
			return c.reply(object{{"status", "ok"}, {"port", port}})
		}
		ports = append(ports, l.port())
	}
	return c.failed("No active listener", member{"missing", port}, member{"ports", ports})
}

func (l *Listener) port() int {
	_, port, err := net.SplitHostPort(l.Address.String())
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(port) // listeners have numbers
	return n
}

// protocolNames are the names that clients have for protocols, and ours.
var protocolNames = map[string]string{
	"amqp091": "amqp", "amqp0.9.1": "amqp", "amqp-0-9-1": "amqp", "amqp0-9-1": "amqp",
	"amqps": "amqp/ssl", "amqp091/ssl": "amqp/ssl",
}

func (a *API) checkProtocol(c *request) error {
	asked := c.vars["protocol"]
	protocol := asked
	if name, ok := protocolNames[asked]; ok {
		protocol = name
	}
	var there []string
	for _, l := range a.Listeners() {
		if l.Protocol == protocol {
			return c.reply(object{{"status", "ok"}, {"protocol", protocol}})
		}
		there = append(there, l.Protocol)
	}
	return c.failed("No active listener", member{"missing", asked}, member{"protocols", slices.Compact(there)})
}

// units are the spans that certificates can be checked for.
var units = map[string]func(time.Time, int) time.Time{
	"days":   func(t time.Time, n int) time.Time { return t.AddDate(0, 0, n) },
	"weeks":  func(t time.Time, n int) time.Time { return t.AddDate(0, 0, 7*n) },
	"months": func(t time.Time, n int) time.Time { return t.AddDate(0, n, 0) },
	"years":  func(t time.Time, n int) time.Time { return t.AddDate(n, 0, 0) },
}

// maxWithin is how many units somebody may look ahead: certificates do not last that long.
const maxWithin = 10_000

func (a *API) checkCertificates(c *request) error {
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
	for _, l := range a.Listeners() {
		if !l.Expires.IsZero() && l.Expires.Before(until) {
			expired = append(expired, object{
				{"node", a.Node}, {"protocol", l.Protocol}, {"port", l.port()}, {"certfile_expires_on", l.Expires.UTC().Format(time.RFC3339)},
			})
		}
	}
	if expired == nil {
		return c.reply(object{{"status", "ok"}})
	}
	return c.failed("Certificates expiring", member{"expired", expired})
}

// aliveness sends a message through a queue of its own and waits for it.
func (*API) aliveness(c *request) error {
	if err := c.mayAct(); err != nil {
		return err
	}
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
		return c.reply(object{{"status", "ok"}})
	})
}
