package mgmt

import (
	"fmt"
	"strings"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
)

// plan is definitions that were read and are to be put in force. Each of them could be, taken alone.
type plan struct {
	vhosts     []plannedVHost
	users      []auth.Account
	grants     []auth.Grant
	topics     []auth.TopicGrant
	globals    []store.GlobalParameter
	parameters []planned[vhost.Parameter]
	policies   []plannedPolicy
	exchanges  []planned[vhost.Exchange]
	queues     []planned[vhost.QueueDeclare]
	bindings   []planned[vhost.Binding]
}

type plannedVHost struct {
	name string
	vhost.Metadata
}

// planned is something in a vhost.
type planned[T any] struct {
	vhost string
	it    T
}

type plannedPolicy struct {
	vhost  string
	kind   policies.Kind
	policy *policies.Policy
}

// reader makes a plan of definitions.
type reader struct {
	plan
	api *API
	in  string // the vhost that everything is in, whatever it says itself; "" = what it says
	err error  // the first thing that is wrong
}

// readPlan reads the definitions of a whole broker or, if a vhost is named, of that one: then there are no users and no
// vhosts among them.
func (a *API) readPlan(f fields, in string) (*plan, error) {
	r := &reader{api: a, in: in}
	if in == "" {
		r.each(f, "vhosts", "vhost", r.vhost)
		r.each(f, "users", "user", r.user)
		r.each(f, "permissions", "permissions of user", r.grant)
		r.each(f, "topic_permissions", "topic permissions of user", r.topic)
		r.each(f, "global_parameters", "global parameter", r.global)
	}
	r.each(f, "parameters", "parameter", r.parameter)
	r.each(f, "policies", "policy", r.policy)
	r.each(f, "exchanges", "exchange", r.exchange)
	r.each(f, "queues", "queue", r.queue)
	r.each(f, "bindings", "binding from", r.binding)
	return &r.plan, r.err
}

// each reads the objects of a section. An error names the object: what it is, its name, and its vhost.
func (r *reader) each(f fields, section, what string, read func(fields) error) {
	if r.err != nil || f[section] == nil {
		return
	}
	items, ok := f[section].([]any)
	if !ok {
		r.err = badRequest("%s: is not a list", section)
		return
	}
	for i, it := range items {
		o, ok := it.(map[string]any)
		if !ok {
			r.err = badRequest("%s[%d]: is not an object", section, i)
			return
		}
		if err := read(o); err != nil {
			if r.in != "" {
				o["vhost"] = r.in
			}
			r.err = named(fmt.Sprintf("%s[%d]", section, i), what, fields(o), err)
			return
		}
	}
}

// named adds to an error what it is about: an object with a name or, if it has none, its place in the file.
func named(place, what string, f fields, err error) error {
	failure := failureOf(err)
	if failure == nil {
		return err
	}
	for _, key := range []string{"source", "user", "name"} {
		if name, ok := f[key].(string); ok {
			place = fmt.Sprintf("%s '%s'", what, name)
		}
	}
	if v, ok := f["vhost"].(string); ok {
		place += fmt.Sprintf(" in vhost '%s'", v)
	}
	text := failure.text()
	if end := asRabbitMQ(what, f); end != "" {
		return badRequest("%s%s", text, end)
	}
	if strings.Contains(text, place) {
		return badRequest("%s", text)
	}
	return badRequest("%s: %s", place, text)
}

// asRabbitMQ is how RabbitMQ ends an error of a policy or a parameter; "" for everything else, and for what has no name.
func asRabbitMQ(what string, f fields) string {
	name, named := f["name"].(string)
	switch {
	case !named:
		return ""
	case what == "policy":
		return fmt.Sprintf(" (%v/%s)", f["vhost"], name)
	case what == "parameter":
		return fmt.Sprintf(" (%v/%v/%s)", f["vhost"], f["component"], name)
	}
	return ""
}

// text is the reason in one line.
func (f *failure) text() string {
	if list, ok := f.reason.([]string); ok {
		return fmt.Sprintf("%s: %s", list[0], list[1])
	}
	return fmt.Sprint(f.reason)
}

// place returns the vhost that an object is in, and its name.
func (r *reader) place(f fields) (in, name string, err error) {
	if err := f.need("name"); err != nil {
		return "", "", err
	}
	if name, err = f.name("name"); err != nil {
		return "", "", err
	}
	in, err = r.vhostOf(f)
	return in, name, err
}

func (r *reader) vhostOf(f fields) (string, error) {
	if r.in != "" {
		return r.in, nil
	}
	if err := f.need("vhost"); err != nil {
		return "", err
	}
	return f.name("vhost")
}

func (r *reader) vhost(f fields) error {
	name, err := f.name("name")
	if err != nil {
		return err
	}
	m, err := f.metadata(r.api.tracing(name))
	if err != nil {
		return err
	}
	r.vhosts = append(r.vhosts, plannedVHost{name, m})
	return store.CheckVHost(name, m)
}

func (r *reader) user(f fields) error {
	if err := f.need("name"); err != nil {
		return err
	}
	name, err := f.name("name")
	if err != nil {
		return err
	}
	u, err := f.account(name, r.api.users().Hash)
	if err != nil {
		return err
	}
	limits, err := f.object("limits")
	if err != nil {
		return err
	}
	if u.Limits.Connections, err = limits.limit(limitConnections); err != nil {
		return err
	}
	if u.Limits.Channels, err = limits.limit(limitChannels); err != nil {
		return err
	}
	r.users = append(r.users, u)
	return u.Check()
}

func (r *reader) grant(f fields) error {
	user, in, err := f.userAndVHost()
	if err != nil {
		return err
	}
	g, err := f.grant(user, in)
	r.grants = append(r.grants, g)
	return err
}

func (f fields) userAndVHost() (user, vhost string, err error) {
	if err := f.need("user", "vhost"); err != nil {
		return "", "", err
	}
	if user, err = f.name("user"); err != nil {
		return "", "", err
	}
	vhost, err = f.name("vhost")
	return user, vhost, err
}

func (r *reader) topic(f fields) error {
	user, in, err := f.userAndVHost()
	if err != nil {
		return err
	}
	g, err := f.topicGrant(user, in)
	r.topics = append(r.topics, g)
	return err
}

// ownParameters are global parameters that mean the cluster they come from, and nothing in another.
var ownParameters = map[string]bool{"internal_cluster_id": true}

func (r *reader) global(f fields) error {
	if err := f.need("name", "value"); err != nil {
		return err
	}
	name, err := f.name("name")
	if err != nil || ownParameters[name] {
		return err
	}
	p := store.GlobalParameter{Name: name, Value: marshal(f["value"])}
	r.globals = append(r.globals, p)
	return store.CheckGlobalParameter(p.Name, p.Value)
}

// limitsComponent is that of the parameter that has a vhost's limits.
const limitsComponent = "vhost-limits"

func (r *reader) parameter(f fields) error {
	in, name, err := r.place(f)
	if err != nil {
		return err
	}
	if err := f.need("component", "value"); err != nil {
		return err
	}
	component, err := f.name("component")
	if err != nil {
		return err
	}
	if kind, ok := policyComponents[component]; ok {
		value, err := f.object("value")
		if err != nil {
			return err
		}
		return r.addPolicy(kind, in, name, value)
	}
	if component == limitsComponent {
		f["value"] = asObject(f["value"])
	}
	p := vhost.Parameter{Component: component, Name: name, Value: marshal(f["value"])}
	r.parameters = append(r.parameters, planned[vhost.Parameter]{in, p})
	return p.Check()
}

func (r *reader) policy(f fields) error {
	in, name, err := r.place(f)
	if err != nil {
		return err
	}
	return r.addPolicy(policies.User, in, name, f)
}

func (r *reader) addPolicy(kind policies.Kind, in, name string, f fields) error {
	if kind == policies.Operator && r.api.FixedOperators {
		return errFixedOperators
	}
	if d, ok := f["definition"]; ok {
		f["definition"] = asObject(d)
	}
	p, err := r.api.Rules.Parse(kind, name, marshal(f))
	if err != nil {
		return ofPolicy(err)
	}
	r.policies = append(r.policies, plannedPolicy{in, kind, p})
	return nil
}

func (r *reader) exchange(f fields) error {
	in, name, err := r.place(f)
	if err != nil {
		return err
	}
	x, err := f.exchange(name)
	r.exchanges = append(r.exchanges, planned[vhost.Exchange]{in, x})
	return err
}

func (r *reader) queue(f fields) error {
	in, name, err := r.place(f)
	if err != nil {
		return err
	}
	if name == "" {
		return badRequest("the name of a queue is empty")
	}
	d, err := f.queue(name)
	if kind, _ := f.text("type"); kind != "" && err == nil {
		d.Args = withType(d.Args, kind)
	}
	d.Restored = true
	r.queues = append(r.queues, planned[vhost.QueueDeclare]{in, d})
	return err
}

func (r *reader) binding(f fields) error {
	in, err := r.vhostOf(f)
	if err != nil {
		return err
	}
	if err := f.need("source", "destination", "destination_type"); err != nil {
		return err
	}
	var b vhost.Binding
	if b.Source, err = f.name("source"); err != nil {
		return err
	}
	if b.Destination, err = f.name("destination"); err != nil {
		return err
	}
	if b.Key, err = f.name("routing_key"); err != nil {
		return err
	}
	kind, err := f.text("destination_type")
	if err != nil {
		return err
	}
	if kind != "queue" && kind != "exchange" {
		return badRequest("destination_type is '%s': queue and exchange are known", kind)
	}
	b.ToExchange = kind == "exchange"
	if b.Args, err = f.arguments(); err != nil {
		return err
	}
	if b.Source != "" { // every queue has that one
		r.bindings = append(r.bindings, planned[vhost.Binding]{in, b})
	}
	return nil
}
