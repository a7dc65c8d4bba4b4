package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
)

// policyKind has the differences between user policies and operator policies.
type policyKind struct {
	suffix string // of the commands' names
	path   string // in the API
	noun   string // in banners
	all    string // in the banner of list commands
}

var (
	userPolicy     = policyKind{"policy", "policies", "policy", "policies"}
	operatorPolicy = policyKind{"operator_policy", "operator-policies", "operator policy", "operator policy overrides"}
)

func policyCommands() []command {
	return append(
		userPolicy.commands("list_policies", "sets a queue policy: settings for the queues and exchanges whose name matches a pattern",
			"removes a queue policy", "lists the queue policies of a virtual host"),
		operatorPolicy.commands("list_operator_policies", "sets an operator policy, which limits queue policies and arguments",
			"removes an operator policy", "lists the operator policies of a virtual host")...)
}

func (k policyKind) commands(list, aboutSet, aboutClear, aboutList string) []command {
	return []command{
		{
			name: "set_" + k.suffix, operands: "<name> <pattern> <definition>", scoped: true, run: k.set, about: aboutSet,
			more: "A definition is a JSON object, as in '{\"message-ttl\": 60000}'.",
			options: []option{
				{long: "priority", value: "priority", numeric: true, about: "the matching policy with the highest priority applies (default 0)"},
				{long: "apply-to", value: "apply-to", about: "queues, classic_queues, quorum_queues, streams, exchanges, or all (default all)"},
			},
		},
		{
			name: "clear_" + k.suffix, operands: "<name>", scoped: true, about: aboutClear,
			run: deletion(`Clearing `+k.noun+` "{1}" on vhost "{vhost}" ...`, k.path+"/{vhost}/{1}", noParameter),
		},
		{
			name: list, scoped: true, about: aboutList,
			run: listing{
				`Listing ` + k.all + ` for vhost "{vhost}" ...`, k.path + "/{vhost}", noVHost,
				columns("vhost name pattern apply-to definition:text priority"),
			}.run,
		},
	}
}

func (k policyKind) set(ctx context.Context, c *call) error {
	name, pattern, definition := c.operands[0], c.operands[1], c.operands[2]
	priority, applyTo := cmp.Or(c.value("priority"), "0"), "all"
	if c.has("apply-to") {
		applyTo = c.value("apply-to")
	}
	noun := k.noun
	if k == operatorPolicy {
		noun = "operator policy override"
	}
	c.banner("Setting %s \"%s\" for pattern \"%s\" to \"%s\" with priority \"%s\" for vhost \"%s\" ...", noun, name, pattern, definition, priority, c.vhost())
	raw, err := parseJSON(definition)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(priority)
	if err != nil {
		return err
	}
	body := map[string]any{"pattern": pattern, "definition": raw, "priority": number, "apply-to": applyTo}
	return c.doneUnless(c.missing(c.api.put(ctx, c.path(k.path+"/{vhost}/{1}"), body), noVHost))
}

// parseJSON checks an operand that is JSON.
func parseJSON(text string) (json.RawMessage, error) {
	var raw json.RawMessage
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return nil, failed(unavailable, "JSON decoding error. Reason: %v", err)
	}
	return raw, nil
}

func parameterCommands() []command {
	return []command{
		{
			name: "set_parameter", operands: "<component> <name> <value>", scoped: true, run: setParameter,
			about: "sets a runtime parameter of a virtual host; the value is JSON",
		},
		{
			name: "clear_parameter", operands: "<component> <name>", scoped: true, about: "removes a runtime parameter",
			run: deletion(`Clearing runtime parameter "{2}" for component "{1}" on vhost "{vhost}" ...`, "parameters/{1}/{vhost}/{2}", noParameter),
		},
		{name: "list_parameters", scoped: true, run: listParameters, about: "lists the runtime parameters of a virtual host"},
		{
			name: "set_global_parameter", operands: "<name> <value>", run: setGlobalParameter,
			about: "sets a runtime parameter of the broker; the value is JSON",
		},
		{
			name: "clear_global_parameter", operands: "<name>", about: "removes a runtime parameter of the broker",
			run: deletion(`Clearing global runtime parameter "{1}" ...`, "global-parameters/{1}", noParameter),
		},
		{
			name: "list_global_parameters", about: "lists the runtime parameters of the broker",
			run: listing{"Listing global runtime parameters ...", "global-parameters", nil, columns("name value:text")}.run,
		},
	}
}

func setParameter(ctx context.Context, c *call) error {
	component, name := c.operands[0], c.operands[1]
	c.banner("Setting runtime parameter \"%s\" for component \"%s\" to \"%s\" in vhost \"%s\" ...", name, component, c.operands[2], c.vhost())
	value, err := parseJSON(c.operands[2])
	if err != nil {
		return err
	}
	body := map[string]any{"vhost": c.vhost(), "component": component, "name": name, "value": value}
	return c.doneUnless(c.missing(c.api.put(ctx, c.path("parameters/{1}/{vhost}/{2}"), body), noVHost))
}

func listParameters(ctx context.Context, c *call) error {
	c.banner("Listing runtime parameters for vhost \"%s\" ...", c.vhost())
	if err := c.needVHost(ctx); err != nil {
		return err
	}
	var all, here []object
	if err := c.api.get(ctx, c.path("parameters"), &all); err != nil {
		return err
	}
	for _, p := range all {
		if p.text("vhost") == c.vhost() {
			here = append(here, p)
		}
	}
	return c.showAll(here, columns("component name value:text")...)
}

// needVHost fails if the virtual host does not exist, for resources that the API answers with an empty list in that case.
func (c *call) needVHost(ctx context.Context) error {
	err := c.api.get(ctx, c.path("vhosts/{vhost}")+"?columns=name", nil)
	if isRefusal(err, http.StatusUnauthorized) || isRefusal(err, http.StatusForbidden) {
		return nil // a user who may list this resource may lack the right to see the virtual host
	}
	return c.missing(err, noVHost)
}

func setGlobalParameter(ctx context.Context, c *call) error {
	name := c.operands[0]
	c.banner("Setting global runtime parameter \"%s\" to \"%s\" ...", name, c.operands[1])
	value, err := parseJSON(c.operands[1])
	if err != nil {
		return err
	}
	return c.put(ctx, "global-parameters/{1}", map[string]any{"name": name, "value": value})
}
