package ctl

import (
	"context"
	"encoding/json"
	"strconv"
)

// policyKind is what tells user policies from operator policies.
type policyKind struct {
	path string // in the API
	noun string // in banners
	all  string // in the banner of the list
}

func (k policyKind) setting() string {
	if k.path == "policies" {
		return "policy"
	}
	return "operator policy override"
}

var (
	userPolicy     = policyKind{"policies", "policy", "policies"}
	operatorPolicy = policyKind{"operator-policies", "operator policy", "operator policy overrides"}
)

func policyCommands() []command {
	const definition = "A definition is a JSON object, as in '{\"message-ttl\": 60000}'."
	set := []option{
		{long: "priority", value: "priority", numeric: true, about: "of the policies that match, the one with the highest priority applies (default 0)"},
		{long: "apply-to", value: "apply-to", about: "queues, classic_queues, quorum_queues, streams, exchanges, or all (default all)"},
	}
	return []command{
		{
			name: "set_policy", operands: "<name> <pattern> <definition>", least: 3, most: 3, scoped: true, options: set, run: userPolicy.set,
			about: "sets a policy for the queues and exchanges whose name matches a pattern", more: definition,
		},
		{
			name: "clear_policy", operands: "<name>", least: 1, most: 1, scoped: true, run: userPolicy.clear,
			about: "removes a policy",
		},
		{
			name: "list_policies", scoped: true, run: userPolicy.list,
			about: "lists the policies of a virtual host",
		},
		{
			name: "set_operator_policy", operands: "<name> <pattern> <definition>", least: 3, most: 3, scoped: true, options: set, run: operatorPolicy.set,
			about: "sets a policy that limits what users' policies and arguments can ask for", more: definition,
		},
		{
			name: "clear_operator_policy", operands: "<name>", least: 1, most: 1, scoped: true, run: operatorPolicy.clear,
			about: "removes an operator policy",
		},
		{
			name: "list_operator_policies", scoped: true, run: operatorPolicy.list,
			about: "lists the operator policies of a virtual host",
		},
	}
}

func (k policyKind) set(ctx context.Context, c *call) error {
	name, pattern, definition := c.operands[0], c.operands[1], c.operands[2]
	priority, applyTo := "0", "all"
	if c.has("priority") {
		priority = c.value("priority")
	}
	if c.has("apply-to") {
		applyTo = c.value("apply-to")
	}
	c.say("Setting %s \"%s\" for pattern \"%s\" to \"%s\" with priority \"%s\" for vhost \"%s\" ...", k.setting(), name, pattern, definition, priority, c.vhost())
	raw, err := document(definition)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(priority)
	if err != nil {
		return err
	}
	body := map[string]any{"pattern": pattern, "definition": raw, "priority": number, "apply-to": applyTo}
	if err := c.api.put(ctx, path(k.path, c.vhost(), name), body); err != nil {
		return instead(err, noVHost(c.vhost()))
	}
	return c.done()
}

// document is JSON that was typed.
func document(text string) (json.RawMessage, error) {
	var raw json.RawMessage
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return nil, failed(unavailable, "JSON decoding error. Reason: %v", err)
	}
	return raw, nil
}

func (k policyKind) clear(ctx context.Context, c *call) error {
	c.say("Clearing %s \"%s\" on vhost \"%s\" ...", k.noun, c.operands[0], c.vhost())
	if err := c.api.remove(ctx, path(k.path, c.vhost(), c.operands[0])); err != nil {
		return instead(err, errNoParameter)
	}
	return c.done()
}

func (k policyKind) list(ctx context.Context, c *call) error {
	c.say("Listing %s for vhost \"%s\" ...", k.all, c.vhost())
	var all []object
	if err := c.api.get(ctx, path(k.path, c.vhost()), &all); err != nil {
		return instead(err, noVHost(c.vhost()))
	}
	return c.showAll(all, column{name: "vhost"}, column{name: "name"}, column{name: "pattern"}, column{name: "apply-to"},
		column{name: "definition", show: showText}, column{name: "priority"})
}
