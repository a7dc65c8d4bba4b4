package mgmt

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/curfewmq/curfew/policies"
)

// policyRef is a policy of a vhost.
type policyRef struct {
	vhost string
	*policies.Policy
}

func (a *API) userPolicies(c *request) error { return listPolicies(c, policies.User) }

func (a *API) operatorPolicies(c *request) error { return listPolicies(c, policies.Operator) }

func listPolicies(c *request, kind policies.Kind) error {
	var all []policyRef
	for _, v := range c.visible() {
		for _, p := range v.Policies().List(kind) {
			all = append(all, policyRef{v.Name(), p})
		}
	}
	return list(c, listing[policyRef]{items: all, object: describePolicy, name: func(r policyRef) string { return r.Name }})
}

func describePolicy(r policyRef) object {
	return object{
		{"vhost", r.vhost},
		{"name", r.Name},
		{"pattern", r.Pattern},
		{"apply-to", r.ApplyTo},
		{"definition", definitionObject(r.Definition)},
		{"priority", r.Priority},
	}
}

func (a *API) userPolicy(c *request) error     { return onePolicy(c, policies.User) }
func (a *API) operatorPolicy(c *request) error { return onePolicy(c, policies.Operator) }

func onePolicy(c *request, kind policies.Kind) error {
	p, ok := c.vhost.Policies().Lookup(kind, c.vars["policy"])
	if !ok {
		return errNotFound
	}
	return c.reply(describePolicy(policyRef{c.vhost.Name(), p}))
}

func (a *API) putUserPolicy(c *request) error { return a.putPolicy(c, policies.User) }

func (a *API) putPolicy(c *request, kind policies.Kind) error {
	b, err := c.read(maxSmallBody)
	if err != nil {
		return err
	}
	p, err := a.Rules.Parse(kind, c.vars["policy"], b)
	if err != nil {
		return ofPolicy(err)
	}
	fresh, err := c.vhost.SetPolicy(kind, p)
	if err != nil {
		return err
	}
	return c.created(fresh)
}

// ofPolicy is the answer to a policy that will not do.
func ofPolicy(err error) error {
	if errors.Is(err, policies.ErrNotJSON) {
		return errNotJSON
	}
	return badRequest("%s", err.Error())
}

func (a *API) deleteUserPolicy(c *request) error { return deletePolicy(c, policies.User) }

func deletePolicy(c *request, kind policies.Kind) error {
	existed, err := c.vhost.ClearPolicy(kind, c.vars["policy"])
	if err != nil {
		return err
	}
	return c.removed(existed)
}

func (a *API) putOperatorPolicy(c *request) error {
	if a.FixedOperators {
		return errFixedOperators
	}
	return a.putPolicy(c, policies.Operator)
}

func (a *API) deleteOperatorPolicy(c *request) error {
	if a.FixedOperators {
		return errFixedOperators
	}
	return deletePolicy(c, policies.Operator)
}

var errFixedOperators = &failure{http.StatusMethodNotAllowed, "method_not_allowed", "Broker settings disallow editing of operator policies."}

// operatorParameter shows an operator policy as RabbitMQ keeps it: as a parameter.
func operatorParameter(vhost string, p *policies.Policy) object {
	return object{
		{"value", object{
			{"pattern", p.Pattern}, {"definition", definitionObject(p.Definition)}, {"priority", p.Priority}, {"apply-to", p.ApplyTo},
		}},
		{"vhost", vhost},
		{"component", policies.Operator.String()},
		{"name", p.Name},
	}
}

// marshal makes JSON of what was read from JSON.
func marshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return b
}
