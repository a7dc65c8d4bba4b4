package mgmt

import (
	"encoding/json"
	"slices"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
)

// listParameters lists parameters of one component or all, and of one vhost or all. As in RabbitMQ, operator policies are among
// them.
func listParameters(c *request) error {
	component, chosen := c.vars["component"]
	var all []object
	for _, v := range c.visible() {
		for _, o := range definitions.Parameters(v) {
			if of, _ := o.Value("component"); !chosen || of == any(component) {
				all = append(all, o)
			}
		}
	}
	return listObjects(c, all)
}

// with is a handler for a path whose label has a fixed value in the path of do.
func with(label, value string, do handler) handler {
	return func(c *request) error {
		c.vars[label] = value
		return do(c)
	}
}

// ofLimits is for the path of the component of the vhosts' limits.
func ofLimits(do handler) handler { return with("component", definitions.LimitsComponent, do) }

// ofClusterName is for the path of that global parameter.
func ofClusterName(do handler) handler { return with("parameter", paramClusterName, do) }

func oneParameter(c *request) error {
	component, name := c.vars["component"], c.vars["parameter"]
	if component == policies.Operator.String() {
		p, ok := c.vhost.Policies().Lookup(policies.Operator, name)
		if !ok {
			return errNotFound
		}
		return c.reply(definitions.OperatorParameter(c.vhost.Name(), p))
	}
	value, ok := c.vhost.Parameters().Get(component, name)
	if !ok {
		return errNotFound
	}
	return c.reply(definitions.Parameter(c.vhost.Name(), vhost.Parameter{Component: component, Name: name, Value: value}))
}

// settableComponents are the components whose parameters users can set: limits of vhosts, and components that are only stored, for a
// RabbitMQ that gets the definitions. An import, which needs an administrator, also stores others.
var settableComponents = []string{definitions.LimitsComponent, "shovel", "federation-upstream", "federation-upstream-set"}

func putParameter(c *request) error {
	if err := refusePolicies(c); err != nil {
		return err
	}
	value, err := c.value()
	if err != nil {
		return err
	}
	component := c.vars["component"]
	if !slices.Contains(settableComponents, component) {
		return badRequest("Validation failed\n\ncomponent %s not found\n", component)
	}
	return c.created(c.vhost.Parameters().Set(vhost.Parameter{Component: component, Name: c.vars["parameter"], Value: value}))
}

// refusePolicies refuses to change policies as parameters, because the rights to change the two differ.
func refusePolicies(c *request) error {
	if kind, ok := definitions.PolicyComponents[c.vars["component"]]; ok {
		return badRequest("parameters of the component %s are changed as policies", kind)
	}
	return nil
}

// value reads the member "value" of the body, of any type.
func (c *request) value() (json.RawMessage, error) {
	r := c.body()
	r.Need("value")
	return jsonobj.Marshal(r.Value("value")), r.Err()
}

func deleteParameter(c *request) error {
	if err := refusePolicies(c); err != nil {
		return err
	}
	return c.removed(c.vhost.Parameters().Clear(c.vars["component"], c.vars["parameter"]))
}

// Global parameters.

const paramClusterName = "cluster_name"

// globalHandlers show and change global parameters.
type globalHandlers struct {
	store *store.Store
	nodes *nodes
}

func (a *globalHandlers) list(c *request) error {
	return list(c, listing[store.GlobalParameter]{
		items: a.store.GlobalParameters(), object: definitions.GlobalParameter,
		name: func(p store.GlobalParameter) string { return p.Name },
	})
}

func (a *globalHandlers) one(c *request) error {
	name := c.vars["parameter"]
	value, ok := a.store.GlobalParameter(name)
	if !ok {
		return errNotFound
	}
	return c.reply(definitions.GlobalParameter(store.GlobalParameter{Name: name, Value: value}))
}

func (a *globalHandlers) put(c *request) error {
	value, err := c.value()
	if err != nil {
		return err
	}
	return c.created(a.store.SetGlobalParameter(c.vars["parameter"], value))
}

func (a *globalHandlers) delete(c *request) error {
	return c.removed(a.store.ClearGlobalParameter(c.vars["parameter"]))
}

func (a *globalHandlers) clusterName(c *request) error {
	return c.reply(object{{"name", a.nodes.clusterName()}})
}

func (a *globalHandlers) setClusterName(c *request) error {
	r := c.body()
	r.Need("name")
	name := r.Name("name")
	if err := r.Err(); err != nil {
		return err
	}
	_, err := a.store.SetGlobalParameter(paramClusterName, jsonobj.Append(nil, name))
	return c.done(err)
}
