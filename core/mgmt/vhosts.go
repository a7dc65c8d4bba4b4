package mgmt

import (
	"cmp"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/sdk/hook"
)

// vhostHandlers show and change virtual hosts.
type vhostHandlers struct {
	node   string
	store  *store.Store
	amqp   *wire.Server
	meters *meters
	nodes  *nodes
	totals *totals
}

// list lists the vhosts that the user may enter or, with the tag monitoring, all.
func (a *vhostHandlers) list(c *request) error {
	all := a.store.VHosts()
	if !isMonitor(c.user) {
		all = c.visible()
	}
	var counters map[string]session.Counters
	if !c.query.noStats {
		counters = a.totals.channelCounters()
	}
	return list(c, listing[*vhost.VHost]{
		items: all, name: (*vhost.VHost).Name,
		object: func(v *vhost.VHost) object { return a.describe(v, counters) },
		field:  func(v *vhost.VHost, name string) (any, bool) { return v.Name(), name == "name" },
	})
}

func (a *vhostHandlers) one(c *request) error {
	name := c.vars["name"]
	v, ok := a.store.VHost(name)
	switch {
	case ok:
	case a.nodes.knows(name):
		return c.errUnowned(vhostText(name))
	default:
		return errNotFound
	}
	return c.reply(a.describe(v, a.totals.channelCounters()))
}

type (
	vhostKey       struct{ vhost *vhost.VHost }
	vhostCountsKey struct{ vhost *vhost.VHost }
)

// describe returns a vhost as an object, with statistics unless counters is nil.
func (a *vhostHandlers) describe(v *vhost.VHost, counters map[string]session.Counters) object {
	m := v.Metadata()
	m.DefaultQueueType = cmp.Or(m.DefaultQueueType, "classic")
	o := object{
		{"name", v.Name()},
		{"description", m.Description},
		{"tags", definitions.Tags(m.Tags)},
		{"default_queue_type", m.DefaultQueueType},
		{"tracing", m.Tracing},
		{"metadata", definitions.Metadata(&m)},
		{"cluster_state", object{{a.node, "running"}}},
	}
	if counters == nil {
		return o
	}
	o = a.meters.append(o, vhostKey{v}, depthOf(v).counts())
	own := counters[v.Name()]
	o.Add("message_stats", a.meters.append(nil, vhostCountsKey{v}, channelCounts(&own)))
	return o
}

// put creates a vhost, or changes one. The user gets every permission in a vhost that it creates.
func (a *vhostHandlers) put(c *request) error {
	r, name := c.body(), c.vars["name"]
	m := definitions.ReadMetadata(r, a.store, name)
	if err := r.Err(); err != nil {
		return err
	}
	created, err := a.store.AddVHost(name, m)
	if created {
		_, err = a.store.Users().SetPermissions(definitions.AllPermissions(c.user.Name, name))
		err = begun(err)
	}
	return c.created(created, err)
}

func (a *vhostHandlers) delete(c *request) error {
	name := c.vars["name"]
	existed, err := a.store.DeleteVHost(name)
	if err == nil {
		a.amqp.Sessions().ForgetVHost(name)
	}
	return c.removed(existed, err)
}

// start has nothing to do: vhosts run.
func (a *vhostHandlers) start(c *request) error {
	if node := c.vars["node"]; a.nodes.seat(node) == len(a.nodes.members()) {
		return badRequest("Request to node %s failed with nodedown", node)
	}
	return c.done(nil)
}

// The limits of vhosts.

func listVHostLimits(c *request) error {
	return listLimits(c, "vhost", c.watched(), func(v *vhost.VHost) (string, object) { return v.Name(), definitions.VHostLimits(v) })
}

func vhostLimitsByName(l *vhost.Limits) map[string]*hook.Limit {
	return map[string]*hook.Limit{definitions.MaxConnections: &l.Connections, definitions.MaxQueues: &l.Queues}
}

func putVHostLimit(c *request) error {
	const unknown = "Validation failed\n\nUnrecognised terms [{<<\"%s\">>,%d}] in limits\n"
	const wrong = "Validation failed\n\n%s should be a number, actually was %s\n"
	limit, err := readLimit(c, unknown, wrong, vhostLimitsByName(&vhost.Limits{}))
	if err != nil {
		return err
	}
	return c.done(c.vhost.Parameters().ChangeLimits(func(l *vhost.Limits) { *vhostLimitsByName(l)[c.vars["limit"]] = limit }))
}

func deleteVHostLimit(c *request) error {
	return c.done(c.vhost.Parameters().ChangeLimits(func(l *vhost.Limits) { clearLimit(c, vhostLimitsByName(l)) }))
}

// readLimit returns the value in the body for the limit that the path names. unknown is the error for a limit that does not exist, and
// wrong the error for a value that is no number.
func readLimit(c *request, unknown, wrong string, known map[string]*hook.Limit) (hook.Limit, error) {
	r, name := c.body(), c.vars["limit"]
	r.Need("value")
	if err := r.Err(); err != nil {
		return 0, err
	}
	n := r.Int("value")
	if r.Err() != nil {
		return 0, badRequest(wrong, name, rabbit.JSON(jsonobj.Marshal(r.Value("value"))))
	}
	if _, ok := known[name]; !ok {
		return 0, badRequest(unknown, name, n)
	}
	return jsonobj.LimitOf(n), nil
}

// clearLimit takes away the limit that the path names. As in RabbitMQ, a limit that does not exist is no error.
func clearLimit(c *request, limits map[string]*hook.Limit) {
	if l, ok := limits[c.vars["limit"]]; ok {
		*l = 0
	}
}
