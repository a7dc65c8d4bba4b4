package ctl

import (
	"cmp"
	"context"
	"encoding/json"
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
