package mgmt

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/rows"
)

// objects is the scope of objects that add up counts of all nodes. The first part that merge gets is the asked node's.
func objects(merge func(parts []object) object) scope {
	part := func(c *request) { c.query.columns, c.query.needs = nil, nil }
	return together("all nodes, merged", part, func(c *request, e *endpoint) error {
		g, err := c.api.nodes.gather(c, question{})
		if err != nil {
			return err
		}
		g.settle()
		g.sum, c.query.needs = merge, nil
		return e.do(c)
	})
}

// objects reads the parts of the other nodes, and leaves out parts that are not objects.
func (g *gathering) objects() (all []object) {
	for i := range g.parts {
		p := &g.parts[i]
		if g.api.nodes.isSelf(&p.node) {
			continue
		}
		o, err := jsonobj.ParseObject(p.body)
		if err != nil {
			g.drop(p.node, err)
			continue
		}
		all = append(all, o)
	}
	return all
}

// whole is the scope of short lists that are made of the parts of all nodes, and then
// sorted, filtered and divided into pages.
func whole(merge func(g *gathering, parts [][]object) []object) scope {
	part := func(c *request) {
		c.query.columns, c.query.needs, c.query.sort, c.query.name = nil, nil, nil, nil
		c.query.page, c.query.reverse = 0, false
	}
	return together("all nodes, merged", part, func(c *request, e *endpoint) error {
		g, err := c.api.nodes.gather(c, question{})
		if err != nil {
			return err
		}
		g.settle()
		g.whole, c.query.needs = merge, nil
		return e.do(c)
	})
}

// listWhole answers with the list that is made of this node's objects and the parts of the others.
func (g *gathering) listWhole(own []object) error {
	all := g.whole(g, g.lists(own))
	g.mark()
	g.request.gathering = nil // the list now has the items of all nodes
	return listObjects(g.request, all)
}

// lists reads the parts that are lists, and leaves out others. This node's part is own.
func (g *gathering) lists(own []object) (all [][]object) {
	for i := range g.parts {
		p := &g.parts[i]
		if g.api.nodes.isSelf(&p.node) {
			all = append(all, own)
			continue
		}
		items, err := jsonobj.ParseItems(p.body)
		if err != nil {
			g.drop(p.node, err)
			continue
		}
		list := make([]object, len(items))
		for k, it := range items {
			list[k], _ = jsonobj.ParseObject(it) // which is an object
		}
		all = append(all, list)
	}
	return all
}

// nodes lists all nodes, including the ones that do not answer.
func (g *gathering) nodes(parts [][]object) []object {
	all := slices.Concat(parts...)
	for _, name := range g.missing {
		all = append(all, absentNode(name))
	}
	slices.SortStableFunc(all, func(x, y object) int { return cmp.Compare(g.api.nodes.seat(nameOf(x)), g.api.nodes.seat(nameOf(y))) })
	return all
}

// seat returns the position of a node among the members.
func (ns *nodes) seat(name string) int {
	all := ns.members()
	for i := range all {
		if all[i].Name == name {
			return i
		}
	}
	return len(all)
}

// absentNode describes a node that does not answer, as RabbitMQ does.
func absentNode(name string) object {
	return object{{"name", name}, {"type", "disc"}, {"running", false}, {"partitions", []any{}}, {"cluster_links", []any{}}}
}

// vhosts lists all vhosts, including the ones without an owner.
func (g *gathering) vhosts(parts [][]object) []object {
	var all []object
	there := map[string]bool{}
	for _, o := range slices.Concat(parts...) {
		name := nameOf(o)
		if !there[name] {
			all, there[name] = append(all, o), true
			continue
		}
		owner, _ := g.api.nodes.placements.OwnerOf(name) // if two nodes list the vhost, the owner's row counts
		state, _ := valueOf(o, "cluster_state").(object)
		if n, ok := g.api.nodes.memberOf(owner); ok && valueOf(state, n.Name) != nil {
			all[slices.IndexFunc(all, func(x object) bool { return nameOf(x) == name })] = o
		}
	}
	for _, name := range g.api.nodes.placements.VHosts() {
		if !there[name] && (isMonitor(g.user) || g.mayEnter(name)) {
			all = append(all, object{{"name", name}, {"cluster_state", object{{g.api.Node, "stopped"}}}})
		}
	}
	slices.SortStableFunc(all, func(x, y object) int { return cmp.Compare(nameOf(x), nameOf(y)) })
	return all
}

// strategies adds up how many queues have each expiry strategy.
func (g *gathering) strategies(parts [][]object) []object {
	g.findUnserved()
	var all []object
	at := map[string]int{}
	for _, o := range slices.Concat(parts...) {
		name := nameOf(o)
		i, known := at[name]
		if !known {
			at[name] = len(all)
			all = append(all, o)
			continue
		}
		set(all[i], "queues", addValues(valueOf(all[i], "queues"), valueOf(o, "queues")))
		set(all[i], "some", joinObjects(someQueues, valueOf(all[i], "some"), valueOf(o, "some")))
	}
	slices.SortStableFunc(all, func(x, y object) int { return cmp.Compare(nameOf(x), nameOf(y)) })
	return all
}

func valueOf(o object, name string) any {
	v, _ := o.Value(name)
	return v
}

// joinObjects joins lists of objects, up to most.
func joinObjects(most int, lists ...any) []object {
	all := []object{}
	for _, l := range lists {
		objects, _ := l.([]object) // an empty list is none
		all = append(all, objects...)
	}
	return all[:min(len(all), most)]
}

// addValues adds two numbers, or the numbers at the same places of two objects. Other values are taken from a.
func addValues(a, b any) any {
	switch x := a.(type) {
	case nil:
		return b
	case object:
		y, ok := b.(object)
		if !ok {
			return a
		}
		sum := slices.Clone(x)
		for i := range sum {
			sum[i][1] = addValues(sum[i][1], valueOf(y, sum[i].Name()))
		}
		for i := range y {
			if _, there := x.Value(y[i].Name()); !there {
				sum = append(sum, y[i])
			}
		}
		return sum
	}
	x, y := numeral(a), numeral(b)
	i, err := x.Int64()
	j, bad := y.Int64()
	if err == nil && bad == nil {
		return i + j
	}
	f, err := x.Float64() // a number that is too large is infinite, for which JSON has null
	g, bad := y.Float64()
	if errors.Is(err, strconv.ErrSyntax) || errors.Is(bad, strconv.ErrSyntax) {
		return a
	}
	return f + g
}

// numeral returns a value as a JSON number. If the value is none, the methods of the result fail.
func numeral(v any) json.Number {
	if n, ok := v.(json.Number); ok {
		return n
	}
	return json.Number(jsonobj.Append(nil, v))
}

// intOf returns a whole number of JSON; 0 for anything else.
func intOf(v any) int64 {
	n, err := numeral(v).Int64()
	if err != nil {
		return 0
	}
	return n
}

// mergeOverview adds up the totals of all nodes.
func mergeOverview(parts []object) object {
	o := parts[0]
	for _, other := range parts[1:] {
		for _, name := range []string{"object_totals", "message_stats", "churn_rates", "queue_totals"} {
			if v, ok := o.Value(name); ok {
				set(o, name, addValues(v, valueOf(other, name)))
			}
		}
		for _, name := range []string{"listeners", "contexts"} {
			if v, ok := o.Value(name); ok {
				set(o, name, joinObjects(maxListeners, v, valueOf(other, name)))
			}
		}
	}
	return o
}

// maxListeners limits how many listeners are listed.
const maxListeners = 1000

// mergeDeadlines adds up when messages are due.
func mergeDeadlines(parts []object) object {
	o := parts[0]
	for _, other := range parts[1:] {
		addDue(o, other)
	}
	return o
}

// addDue adds counts of messages that are due, in the same buckets.
func addDue(o, other object) {
	for _, name := range []string{"overdue", "never", "held"} {
		set(o, name, addValues(valueOf(o, name), valueOf(other, name)))
	}
	for _, name := range []string{"earliest", "next_release"} {
		set(o, name, earlierOf(valueOf(o, name), valueOf(other, name)))
	}
	set(o, "complete", valueOf(o, "complete") == true && valueOf(other, "complete") == true)
	own, _ := valueOf(o, "buckets").([]object)
	more, _ := valueOf(other, "buckets").([]object)
	for i := range min(len(own), len(more)) {
		for _, name := range []string{"count", "held"} {
			set(own[i], name, addValues(valueOf(own[i], name), valueOf(more[i], name)))
		}
	}
}

// earlierOf returns the earlier of two instants. Either of them may be null.
func earlierOf(a, b any) any {
	switch {
	case a == nil:
		return b
	case b != nil && rows.Compare(b, a) < 0:
		return b
	}
	return a
}

// mergeRemembered says how far back events of messages are remembered by all nodes.
func mergeRemembered(parts []object) object {
	o := parts[0]
	for _, other := range parts[1:] {
		for _, name := range []string{"messages", "most"} {
			set(o, name, addValues(valueOf(o, name), valueOf(other, name)))
		}
		if since := valueOf(other, "since"); since != nil && rows.Compare(since, valueOf(o, "since")) > 0 {
			set(o, "since", since)
		}
	}
	return o
}

// alarmed is the scope of the check for alarms of the whole cluster.
var alarmed = together("all nodes, merged", unchangedPart, func(c *request, _ *endpoint) error {
	others, missing := c.api.nodes.askOthers(c, &question{merged: true})
	g := gathering{request: c, parts: append(others, c.api.nodes.ownPart(nil))}
	g.findUnserved()
	g.markUnserved()
	alarms := c.api.checks.alarmDetails(c.api.Alarms())
	for _, p := range others {
		o, err := jsonobj.ParseObject(p.body)
		switch {
		case err != nil || p.status != http.StatusOK && p.status != http.StatusServiceUnavailable:
			missing = append(missing, p.node.Name)
		default:
			raised, _ := valueOf(o, "alarms").([]object)
			alarms = append(alarms, raised...)
		}
	}
	if len(missing) > 0 { // as in RabbitMQ, nodes that are away have no alarms
		c.w.Header().Set(unreachableHeader, joinNames(missing))
	}
	if len(alarms) == 0 {
		return c.passed()
	}
	return c.failed("alarms raised", member{"alarms", alarms})
})
