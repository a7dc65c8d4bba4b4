package mgmt

import (
	"cmp"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// vhosts lists the vhosts that the user may enter or, with the tag monitoring, all.
func (a *API) vhosts(c *request) error {
	all := a.Store.VHosts()
	if !isMonitor(c.user) {
		all = c.visible()
	}
	var counters map[string]session.Counters
	if !c.query.noStats {
		counters = a.channelCounters()
	}
	return list(c, listing[*vhost.VHost]{
		items: all, name: (*vhost.VHost).Name,
		object: func(v *vhost.VHost) object { return a.describeVHost(v, counters) },
		field:  func(v *vhost.VHost, name string) (any, bool) { return v.Name(), name == "name" },
	})
}

func (a *API) oneVHost(c *request) error {
	name := c.vars["name"]
	v, ok := a.Store.VHost(name)
	switch {
	case ok:
	case a.knows(name):
		return c.errUnowned(vhostText(name))
	default:
		return errNotFound
	}
	return c.reply(a.describeVHost(v, a.channelCounters()))
}

type (
	vhostKey       struct{ vhost *vhost.VHost }
	vhostCountsKey struct{ vhost *vhost.VHost }
)

// describeVHost returns a vhost as an object, with statistics unless counters is nil.
func (a *API) describeVHost(v *vhost.VHost, counters map[string]session.Counters) object {
	m := v.Metadata()
	m.DefaultQueueType = cmp.Or(m.DefaultQueueType, "classic")
	o := object{
		{"name", v.Name()},
		{"description", m.Description},
		{"tags", definitions.Tags(m.Tags)},
		{"default_queue_type", m.DefaultQueueType},
		{"tracing", m.Tracing},
		{"metadata", definitions.Metadata(&m)},
		{"cluster_state", object{{a.Node, "running"}}},
	}
	if counters == nil {
		return o
	}
	o = a.meters.append(o, vhostKey{v}, depthOf(v).counts())
	own := counters[v.Name()]
	o.Add("message_stats", a.meters.append(nil, vhostCountsKey{v}, channelCounts(&own)))
	return o
}

// putVHost creates a vhost, or changes one. The user gets every permission in a vhost that it creates.
func (a *API) putVHost(c *request) error {
	r, name := c.body(), c.vars["name"]
	m := definitions.ReadMetadata(r, a.Store, name)
	if err := r.Err(); err != nil {
		return err
	}
	created, err := a.Store.AddVHost(name, m)
	if created {
		_, err = a.users().SetPermissions(definitions.AllPermissions(c.user.Name, name))
		err = begun(err)
	}
	return c.created(created, err)
}

func (a *API) deleteVHost(c *request) error {
	name := c.vars["name"]
	existed, err := a.Store.DeleteVHost(name)
	if err == nil {
		a.AMQP.Sessions().ForgetVHost(name)
	}
	return c.removed(existed, err)
}

// startVHost has nothing to do: vhosts run.
func (a *API) startVHost(c *request) error {
	if node := c.vars["node"]; a.seat(node) == len(a.members()) {
		return badRequest("Request to node %s failed with nodedown", node)
	}
	return c.done(nil)
}

// The limits of vhosts.

func (a *API) vhostLimits(c *request) error {
	return listLimits(c, "vhost", c.watched(), func(v *vhost.VHost) (string, object) { return v.Name(), definitions.VHostLimits(v) })
}

func vhostLimitsByName(l *vhost.Limits) map[string]*hook.Limit {
	return map[string]*hook.Limit{definitions.MaxConnections: &l.Connections, definitions.MaxQueues: &l.Queues}
}

func (a *API) putVHostLimit(c *request) error {
	const unknown = "Validation failed\n\nUnrecognised terms [{<<\"%s\">>,%d}] in limits\n"
	const wrong = "Validation failed\n\n%s should be a number, actually was %s\n"
	limit, err := c.readLimit(unknown, wrong, vhostLimitsByName(&vhost.Limits{}))
	if err != nil {
		return err
	}
	return c.done(c.vhost.ChangeLimits(func(l *vhost.Limits) { *vhostLimitsByName(l)[c.vars["limit"]] = limit }))
}

func (*API) deleteVHostLimit(c *request) error {
	return c.done(c.vhost.ChangeLimits(func(l *vhost.Limits) { c.clearLimit(vhostLimitsByName(l)) }))
}

// readLimit returns the value in the body for the limit that the path names. unknown is the error for a limit that does not exist, and
// wrong the error for a value that is no number.
func (c *request) readLimit(unknown, wrong string, known map[string]*hook.Limit) (hook.Limit, error) {
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
func (c *request) clearLimit(limits map[string]*hook.Limit) {
	if l, ok := limits[c.vars["limit"]]; ok {
		*l = 0
	}
}
