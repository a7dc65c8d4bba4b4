package definitions

import (
	"errors"
	"fmt"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
)

// plan is the definitions of a file. Each is valid by itself.
type plan struct {
	modules    []Module
	vhosts     []scoped[vhost.Metadata] // metadata of vhosts
	users      []auth.Account
	grants     []auth.Grant
	topics     []auth.TopicGrant
	globals    []store.GlobalParameter
	parameters []scoped[vhost.Parameter]
	policies   []scoped[plannedPolicy]
	exchanges  []scoped[vhost.Exchange]
	queues     []scoped[vhost.QueueDeclare]
	bindings   []scoped[vhost.Binding]

	queueTypes map[string]string // default types of all defined vhosts, including vhosts that were removed from the plan

	problems
	differing remarks             // exchanges and queues that the file repeats, or that exist with other properties and stay as they are
	lost      remarks             // bindings that are left out
	unread    map[unreadName]bool // refused vhosts and users, so that definitions that belong to them are not refused, too
}

type unreadName struct{ section, name string }

type plannedPolicy struct {
	kind policies.Kind
	*policies.Policy
}

// scoped is a definition in a vhost.
type scoped[T any] struct {
	vhost string
	it    T
}

// planner reads definitions into a plan.
type planner struct {
	*Definitions
	plan
	in    string // the vhost of all definitions; "" = each definition names its own
	hash  func(password string) (auth.Hash, error)
	named map[string]bool // names of modules
}

// read reads the definitions of a whole broker or, if in names a vhost, of that vhost; then users and vhosts are ignored. The plan collects
// the problems.
func (d *Definitions) read(r *reader, in string, hash func(password string) (auth.Hash, error)) *plan {
	p := &planner{Definitions: d, in: in, hash: hash, plan: plan{queueTypes: map[string]string{}, unread: map[unreadName]bool{}}}
	if in == "" {
		p.each(r, "vhosts", "vhost", p.vhost)
		p.each(r, "users", "user", p.user)
		p.each(r, "permissions", "permissions of user", p.grant)
		p.each(r, "topic_permissions", "topic permissions of user", p.topic)
		p.each(r, "global_parameters", "global parameter", p.global)
	}
	p.each(r, "parameters", "parameter", p.parameter)
	p.each(r, "policies", "policy", p.policy)
	p.each(r, "exchanges", "exchange", p.exchange)
	p.each(r, "queues", "queue", p.queue)
	p.each(r, "bindings", "binding from", p.binding)
	return &p.plan
}

// each reads the objects of a section. An error names the object by its kind, its name and its vhost.
func (p *planner) each(all *reader, of, what string, read func(*reader)) {
	if !all.Has(of) {
		return
	}
	items, ok := all.Value(of).([]any)
	if !ok {
		p.add(jsonobj.Errorf("%s: is not a list", all.Where(of)))
		return
	}
	for i, it := range items {
		if p.enough() {
			all = all.Unplaced()
		}
		o, ok := it.(map[string]any)
		if !ok {
			p.add(jsonobj.Errorf("%s: is not an object", all.Element(of, i, nil).Here()))
			continue
		}
		if p.in != "" {
			o["vhost"] = p.in
		}
		r := all.Element(of, i, o)
		if read(r); r.Err() == nil {
			continue
		}
		p.add(at(r.Position(), named(fmt.Sprintf("%s[%d]", of, i), what, o, r.Err())))
		if name, ok := o["name"].(string); ok {
			p.unread[unreadName{of, name}] = true
		}
	}
}

// at adds to an error the place in the file where its definition begins, unless the error has a place already or is one of RabbitMQ's.
func at(position string, err error) error {
	e, ok := errors.AsType[*jsonobj.Error](err)
	if !ok || position == "" || strings.Contains(e.Text(), ": line ") || strings.HasSuffix(e.Text(), ")") {
		return err
	}
	return jsonobj.Errorf("%s (%s)", e.Text(), position)
}

// named adds to an error the name of its definition or, if it has none, its position in the file.
func named(position, what string, o map[string]any, err error) error {
	text, ok := reason(err)
	if !ok {
		return err
	}
	for _, key := range []string{"source", "user", "name"} {
		if name, ok := o[key].(string); ok {
			position = fmt.Sprintf("%s '%s'", what, name)
		}
	}
	if v, ok := o["vhost"].(string); ok {
		position += fmt.Sprintf(" in vhost '%s'", v)
	}
	if end := asRabbitMQ(what, o); end != "" || strings.Contains(text, position) {
		return jsonobj.Errorf("%s%s", text, end)
	}
	return jsonobj.Errorf("%s: %s", position, text)
}

// reason returns the text of an error that the client has caused; ok is false for other errors.
func reason(err error) (text string, ok bool) {
	if e, ok := errors.AsType[*jsonobj.Error](err); ok {
		return e.Text(), true
	}
	if e, ok := errors.AsType[*vhost.Error](err); ok {
		return e.Text, true
	}
	if e, ok := errors.AsType[*auth.Invalid](err); ok {
		return e.Text, true
	}
	return "", false
}

// asRabbitMQ returns the end of RabbitMQ's errors about policies and parameters; "" for other definitions, and without a name.
func asRabbitMQ(what string, o map[string]any) string {
	name, named := o["name"].(string)
	switch {
	case !named:
		return ""
	case what == "policy":
		return fmt.Sprintf(" (%v/%s)", o["vhost"], name)
	case what == "parameter":
		return fmt.Sprintf(" (%v/%v/%s)", o["vhost"], o["component"], name)
	}
	return ""
}

// keep adds a definition to the plan unless it is refused.
func keep[T any](r *reader, list *[]T, it T) {
	if r.Err() == nil {
		*list = append(*list, it)
	}
}

// readName reads the name of a definition in a vhost, and the vhost.
func readName(r *reader) (vhost, name string) {
	r.Need("name")
	name = r.Name("name")
	r.Need("vhost")
	return r.Name("vhost"), name
}

func (p *planner) vhost(r *reader) {
	name := r.Name("name")
	m := ReadMetadata(r, p.Store, name)
	r.Fail(store.CheckVHost(name, m))
	keep(r, &p.vhosts, scoped[vhost.Metadata]{name, m})
	p.queueTypes[name] = m.DefaultQueueType
}

func (p *planner) user(r *reader) {
	r.Need("name")
	u := ReadUser(r, r.Name("name"), p.hash)
	limits := r.Object("limits")
	u.Limits.Connections, u.Limits.Channels = limits.Limit(MaxConnections), limits.Limit(MaxChannels)
	r.Fail(u.Check())
	keep(r, &p.users, u)
}

func (p *planner) grant(r *reader) {
	r.Need("user", "vhost")
	keep(r, &p.grants, ReadPermissions(r, r.Name("user"), r.Name("vhost")))
}

func (p *planner) topic(r *reader) {
	r.Need("user", "vhost")
	keep(r, &p.topics, ReadTopicPermissions(r, r.Name("user"), r.Name("vhost")))
}

// clusterID is a global parameter with the id of the exporting cluster, which means nothing in another cluster.
const clusterID = "internal_cluster_id"

func (p *planner) global(r *reader) {
	r.Need("name", "value")
	name := r.Name("name")
	if name == clusterID || r.Err() != nil {
		return
	}
	g := store.GlobalParameter{Name: name, Value: jsonobj.Marshal(r.Value("value"))}
	r.Fail(store.CheckGlobalParameter(g.Name, g.Value))
	keep(r, &p.globals, g)
}

func (p *planner) parameter(r *reader) {
	in, name := readName(r)
	r.Need("component", "value")
	component := r.Name("component")
	if kind, ok := PolicyComponents[component]; ok {
		p.addPolicy(r, kind, in, name, r.Object("value"))
		return
	}
	value := r.Value("value")
	if component == LimitsComponent {
		value = jsonobj.AsObject(value)
	}
	v := vhost.Parameter{Component: component, Name: name, Value: jsonobj.Marshal(value)}
	r.Fail(v.Check())
	keep(r, &p.parameters, scoped[vhost.Parameter]{in, v})
}

func (p *planner) policy(r *reader) {
	in, name := readName(r)
	p.addPolicy(r, policies.User, in, name, r)
}

// errFixedOperators has the text of the HTTP handlers' error.
var errFixedOperators = jsonobj.Errorf("Broker settings disallow editing of operator policies.")

// addPolicy reads a policy from value. Errors go to r.
func (p *planner) addPolicy(r *reader, kind policies.Kind, in, name string, value *reader) {
	if kind == policies.Operator && p.FixedOperators {
		r.Fail(errFixedOperators)
	}
	if r.Err() != nil {
		return
	}
	if value.Has("definition") {
		value.Set("definition", jsonobj.AsObject(value.Value("definition")))
	}
	policy, err := ReadPolicy(p.Rules, kind, name, value.Raw())
	r.Fail(err)
	keep(r, &p.policies, scoped[plannedPolicy]{in, plannedPolicy{kind, policy}})
}

func (p *planner) exchange(r *reader) {
	in, name := readName(r)
	keep(r, &p.exchanges, scoped[vhost.Exchange]{in, ReadExchange(r, name)})
}

func (p *planner) queue(r *reader) {
	in, name := readName(r)
	if name == "" {
		r.Fail(ErrNoQueueName)
	}
	d := ReadQueue(r, name)
	if kind, _ := r.Value("type").(string); kind != "" {
		d.Args = withType(d.Args, kind)
	}
	d.Restored = true
	keep(r, &p.queues, scoped[vhost.QueueDeclare]{in, d})
}

// withType adds a queue's type, which some files have beside the arguments, to the arguments.
func withType(args amqp.Table, kind string) amqp.Table {
	const argument = "x-queue-type"
	if _, given := args.Lookup(argument); given {
		return args
	}
	return append(args, amqp.Field{Key: argument, Value: kind})
}

func (p *planner) binding(r *reader) {
	r.Need("vhost")
	in := r.Name("vhost")
	r.Need("source", "destination", "destination_type")
	b := vhost.Binding{Source: r.Name("source"), Destination: r.Name("destination"), Key: r.Name("routing_key")}
	switch kind := r.Text("destination_type"); kind {
	case "queue":
	case "exchange":
		b.ToExchange = true
	default:
		r.Fail(jsonobj.Errorf("destination_type is '%s': queue and exchange are known", kind))
	}
	b.Args = r.Table("arguments")
	if b.Source != "" { // every queue has a binding to the default exchange
		keep(r, &p.bindings, scoped[vhost.Binding]{in, b})
	}
}
