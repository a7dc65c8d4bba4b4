package mgmt

import (
	"net/http"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/policies"
)

// policyHandlers are the handlers for user policies, or for operator policies.
type policyHandlers struct {
	api  *API
	kind policies.Kind
}

func (p policyHandlers) list(c *request) error {
	var all []object
	for _, v := range c.visible() {
		for _, it := range v.Policies().List(p.kind) {
			all = append(all, definitions.Policy(v.Name(), it))
		}
	}
	return listObjects(c, all)
}

func (p policyHandlers) one(c *request) error {
	it, ok := c.vhost.Policies().Lookup(p.kind, c.vars["policy"])
	if !ok {
		return errNotFound
	}
	return c.reply(definitions.Policy(c.vhost.Name(), it))
}

var errFixedOperators = &failure{http.StatusMethodNotAllowed, "method_not_allowed", "Broker settings disallow editing of operator policies."}

// fixed reports whether policies of this kind can be read only.
func (p policyHandlers) fixed() bool { return p.kind == policies.Operator && p.api.FixedOperators }

func (p policyHandlers) put(c *request) error {
	if p.fixed() {
		return errFixedOperators
	}
	b, err := c.read(maxSmallBody)
	if err != nil {
		return err
	}
	policy, err := definitions.ReadPolicy(p.api.Rules, p.kind, c.vars["policy"], b)
	if err != nil {
		return err
	}
	return c.created(c.vhost.SetPolicy(p.kind, policy))
}

func (p policyHandlers) delete(c *request) error {
	if p.fixed() {
		return errFixedOperators
	}
	return c.removed(c.vhost.ClearPolicy(p.kind, c.vars["policy"]))
}
