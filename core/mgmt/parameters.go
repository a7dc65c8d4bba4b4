package mgmt

import (
	"encoding/json"
	"slices"

	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
)

// parameters lists parameters, of one component or all, of one vhost or all. Operator policies are among them, as in
// RabbitMQ.
func (a *API) parameters(c *request) error {
	component, chosen := c.vars["component"]
	var all []object
	for _, v := range c.visible() {
		for _, o := range parametersOf(v) {
			if of, _ := o.at("component"); !chosen || of == any(component) {
				all = append(all, o)
			}
		}
	}
	return list(c, listing[object]{items: all, object: itself, name: memberName})
}

func parametersOf(v *vhost.VHost) []object {
	var all []object
	for _, p := range v.Parameters() {
		all = append(all, describeParameter(v.Name(), p))
	}
	for _, p := range v.Policies().List(policies.Operator) {
		all = append(all, operatorParameter(v.Name(), p))
	}
	return all
}

func describeParameter(in string, p vhost.Parameter) object {
	return object{{"value", p.Value}, {"vhost", in}, {"component", p.Component}, {"name", p.Name}}
}

// ofLimits is for a path that names the component of the vhosts' limits.
func ofLimits(do func(*request) error) func(*request) error {
	return naming("component", "vhost-limits", do)
}

// ofClusterName is for a path that names that global parameter.
func ofClusterName(do func(*request) error) func(*request) error {
	return naming("parameter", paramClusterName, do)
}

// naming does what is done where a path says by a label what this one says itself.
func naming(label, value string, do func(*request) error) func(*request) error {
	return func(c *request) error {
		c.vars[label] = value
		return do(c)
	}
}

// The components whose parameters are policies.
var policyComponents = map[string]policies.Kind{
	policies.User.String():     policies.User,
	policies.Operator.String(): policies.Operator,
}

func (*API) parameter(c *request) error {
	component, name := c.vars["component"], c.vars["parameter"]
	if component == policies.Operator.String() {
		p, ok := c.vhost.Policies().Lookup(policies.Operator, name)
		if !ok {
			return errNotFound
		}
		return c.reply(operatorParameter(c.vhost.Name(), p))
	}
	value, ok := c.vhost.Parameter(component, name)
	if !ok {
		return errNotFound
	}
	return c.reply(describeParameter(c.vhost.Name(), vhost.Parameter{Component: component, Name: name, Value: value}))
}

// keptComponents are those whose parameters can be set: the vhosts' limits, and what is kept for RabbitMQs that get the definitions.
// An import, which is an administrator's, keeps others, too.
var keptComponents = []string{limitsComponent, "shovel", "federation-upstream", "federation-upstream-set"}

func (a *API) putParameter(c *request) error {
	if err := c.notPolicies(); err != nil {
		return err
	}
	value, err := c.value()
	if err != nil {
		return err
	}
	if component := c.vars["component"]; !slices.Contains(keptComponents, component) {
		return badRequest("Validation failed\n\ncomponent %s not found\n", component)
	}
	fresh, err := c.vhost.SetParameter(vhost.Parameter{Component: c.vars["component"], Name: c.vars["parameter"], Value: value})
	if err != nil {
		return err
	}
	return c.created(fresh)
}

// notPolicies refuses to change policies as if they were parameters: other rules apply to who may.
func (c *request) notPolicies() error {
	if kind, ok := policyComponents[c.vars["component"]]; ok {
		return badRequest("parameters of the component %s are changed as policies", kind)
	}
	return nil
}

// value reads the member "value" of the body, whatever it is.
func (c *request) value() (json.RawMessage, error) {
	f, err := c.body()
	if err != nil {
		return nil, err
	}
	if err := f.need("value"); err != nil {
		return nil, err
	}
	return marshal(f["value"]), nil
}

func (*API) deleteParameter(c *request) error {
	if err := c.notPolicies(); err != nil {
		return err
	}
	existed, err := c.vhost.ClearParameter(c.vars["component"], c.vars["parameter"])
	if err != nil {
		return err
	}
	return c.removed(existed)
}

// Global parameters.

func (a *API) globalParameters(c *request) error {
	return list(c, listing[store.GlobalParameter]{
		items: a.Store.GlobalParameters(), object: describeGlobal, name: func(p store.GlobalParameter) string { return p.Name },
	})
}

func describeGlobal(p store.GlobalParameter) object {
	return object{{"name", p.Name}, {"value", p.Value}}
}

func (a *API) globalParameter(c *request) error {
	name := c.vars["parameter"]
	value, ok := a.Store.GlobalParameter(name)
	if !ok {
		return errNotFound
	}
	return c.reply(describeGlobal(store.GlobalParameter{Name: name, Value: value}))
}

func (a *API) putGlobalParameter(c *request) error {
	value, err := c.value()
	if err != nil {
		return err
	}
	fresh, err := a.Store.SetGlobalParameter(c.vars["parameter"], value)
	if err != nil {
		return err
	}
	return c.created(fresh)
}

func (a *API) deleteGlobalParameter(c *request) error {
	existed, err := a.Store.ClearGlobalParameter(c.vars["parameter"])
	if err != nil {
		return err
	}
	return c.removed(existed)
}
