package mgmt

import (
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// vhosts lists the vhosts the user has access to or, with the tag monitoring, all.
func (a *API) vhosts(c *request) error {
	all := a.Store.VHosts()
	if !isMonitor(c.user) {
		all = c.visible()
	}
	var tallies map[string]session.Counters
	if !c.query.noStats {
		tallies = a.tallies()
	}
	return list(c, listing[*vhost.VHost]{
		items: all, name: (*vhost.VHost).Name,
		object: func(v *vhost.VHost) object { return a.describeVHost(v, tallies) },
		field:  func(v *vhost.VHost, name string) (any, bool) { return v.Name(), name == "name" },
	})
}

func (a *API) oneVHost(c *request) error {
	v, ok := a.Store.VHost(c.vars["name"])
	if !ok {
		return errNotFound
	}
	return c.reply(a.describeVHost(v, a.tallies()))
}

type (
	vhostKey       struct{ vhost *vhost.VHost }
	vhostCountsKey struct{ vhost *vhost.VHost }
)

// describeVHost shows a vhost, with statistics if there are tallies.
func (a *API) describeVHost(v *vhost.VHost, tallies map[string]session.Counters) object {
	m := v.Metadata()
	if m.DefaultQueueType == "" {
		m.DefaultQueueType = "classic"
	}
	o := object{
		{"name", v.Name()},
		{"description", m.Description},
		{"tags", tagList(m.Tags)},
		{"default_queue_type", m.DefaultQueueType},
		{"tracing", m.Tracing},
		{"metadata", metadataObject(&m)},
		{"cluster_state", object{{a.Node, "running"}}},
	}
	if tallies == nil {
		return o
	}
	var sum depth
	sum.addAll(v)
	o = a.meters.stats(o, vhostKey{v}, sum.counts())
	t := tallies[v.Name()]
	o.add("message_stats", a.meters.stats(nil, vhostCountsKey{v}, channelCounts(&t)))
	return o
}

func (a *API) putVHost(c *request) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	m, err := f.metadata(a.tracing(c.vars["name"]))
	if err != nil {
		return err
	}
	fresh, err := a.Store.AddVHost(c.vars["name"], m)
	if err != nil {
		return err
	}
	if err := a.welcome(c, fresh); err != nil {
		return err
	}
	return c.created(fresh)
}

// tracing says whether a vhost is traced: who does not mention it does not change it.
func (a *API) tracing(name string) bool {
	v, ok := a.Store.VHost(name)
	return ok && v.Tracing()
}

// welcome gives who makes a vhost every permission in it.
func (a *API) welcome(c *request, fresh bool) error {
	if !fresh {
		return nil
	}
	_, err := a.users().SetPermissions(fullGrant(c.user.Name, c.vars["name"]))
	return err
}

// metadata reads what is said of a vhost. RabbitMQ writes "undefined" for no default queue type, and files have the same
// again below "metadata".
func (f fields) metadata(tracing bool) (m vhost.Metadata, err error) {
	inner, err := f.object("metadata")
	if err != nil {
		return m, err
	}
	for _, name := range []string{"description", "tags", "default_queue_type"} {
		if _, ok := f[name]; !ok && inner[name] != nil {
			f[name] = inner[name]
		}
	}
	if m.Description, err = f.text("description"); err != nil {
		return m, err
	}
	if m.Tags, err = f.tags("tags"); err != nil {
		return m, err
	}
	if f["default_queue_type"] == nil {
		f["default_queue_type"] = f["defaultqueuetype"] // as requests have it
	}
	if m.DefaultQueueType, err = f.text("default_queue_type"); err != nil {
		return m, err
	}
	if m.DefaultQueueType == "undefined" {
		m.DefaultQueueType = ""
	}
	m.Tracing, err = f.flag("tracing", tracing)
	return m, err
}

// tags reads tags, a list or a string with commas between them.
func (f fields) tags(key string) ([]string, error) {
	var words []string
	switch v := f[key].(type) {
	case nil:
		return nil, nil
	case string:
		words = strings.Split(v, ",")
	case []any:
		for _, it := range v {
			s, ok := it.(string)
			if !ok {
				return nil, badTerm("not_string", key)
			}
			words = append(words, s)
		}
	default:
		return nil, badTerm("not_string", key)
	}
	var tags []string
	for _, w := range words {
		if w = strings.TrimSpace(w); w != "" && !slices.Contains(tags, w) {
			tags = append(tags, w)
		}
	}
	return tags, nil
}

func (a *API) deleteVHost(c *request) error {
	name := c.vars["name"]
	existed, err := a.Store.DeleteVHost(name)
	if err != nil {
		return err
	}
	a.AMQP.Sessions().ForgetVHost(name)
	return c.removed(existed)
}

// startVHost has nothing to do: vhosts run.
func (a *API) startVHost(c *request) error {
	if a.isNode(c.vars["node"]) != nil {
		return badRequest("Request to node %s failed with nodedown", c.vars["node"])
	}
	return c.done()
}

// The limits of vhosts.

func (a *API) vhostLimits(c *request) error {
	all := c.visible()
	if c.vhost == nil && isMonitor(c.user) {
		all = a.Store.VHosts()
	}
	return listLimits(c, "vhost", all, func(v *vhost.VHost) (string, object) {
		l := v.Limits()
		return v.Name(), limitsObject(limit{limitConnections, l.Connections}, limit{limitQueues, l.Queues})
	})
}

func (a *API) limitsOfVHost(c *request) error { return a.vhostLimits(c) }

// The names of limits.
const (
	limitConnections = "max-connections"
	limitChannels    = "max-channels"
	limitQueues      = "max-queues"
)

type limit struct {
	name string
	hook.Limit
}

// limitsObject shows the limits that are set.
func limitsObject(ls ...limit) object {
	o := object{}
	for _, l := range ls {
		if l.Set() {
			o.add(l.name, l.N())
		}
	}
	return o
}

// listLimits lists the limits of everything that has any.
func listLimits[T any](c *request, what string, items []T, limits func(T) (name string, o object)) error {
	var all []object
	for _, it := range items {
		if name, o := limits(it); len(o) > 0 {
			all = append(all, object{{what, name}, {"value", o}})
		}
	}
	return list(c, listing[object]{items: all, object: itself})
}

func (a *API) putVHostLimit(c *request) error {
	l := c.vhost.Limits()
	const unknown = "Validation failed\n\nUnrecognised terms [{<<\"%s\">>,%d}] in limits\n"
	const wrong = "Validation failed\n\n%s should be a number, actually was %s\n"
	if err := c.readLimit(unknown, wrong, map[string]*hook.Limit{
		limitConnections: &l.Connections, limitQueues: &l.Queues,
	}); err != nil {
		return err
	}
	if err := c.vhost.SetLimits(l); err != nil {
		return err
	}
	return c.done()
}

// readLimit sets the limit that the path names to what the body says; unknown is what to say of one that there is not, wrong of
// a value that is none.
func (c *request) readLimit(unknown, wrong string, limits map[string]*hook.Limit) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	if err := f.need("value"); err != nil {
		return err
	}
	name := c.vars["limit"]
	n, err := f.whole("value")
	if err != nil {
		return badRequest(wrong, name, rabbit.JSON(marshal(f["value"])))
	}
	l, ok := limits[name]
	if !ok {
		return badRequest(unknown, name, n)
	}
	*l = 0
	if n >= 0 {
		*l = hook.LimitOf(n)
	}
	return nil
}

// deleteVHostLimit takes a limit away. One that there is not is not there afterwards, either, as in RabbitMQ.
func (a *API) deleteVHostLimit(c *request) error {
	l := c.vhost.Limits()
	switch c.vars["limit"] {
	case limitConnections:
		l.Connections = 0
	case limitQueues:
		l.Queues = 0
	}
	if err := c.vhost.SetLimits(l); err != nil {
		return err
	}
	return c.done()
}
