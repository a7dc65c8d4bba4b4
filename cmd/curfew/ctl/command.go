package ctl

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/config"
)

// command is one of rabbitmqctl's.
type command struct {
	name     string
	operands string // as in the usage line; their number follows from it
	about    string // one line for help
	more     string // further lines for its own help page
	scoped   bool   // it acts on a virtual host, so its usage line shows --vhost
	lists    *known // the columns that it can list; operands name the chosen ones
	options  []option
	actions  []command           // the values of its first operand; they differ in their help pages only
	patience time.Duration       // the default of --timeout; 0 = unlimited
	waits    bool                // it handles --timeout itself
	offline  bool                // it does not call the API
	check    func(c *call) error // checks the operands; nil = only their number is checked
	run      func(ctx context.Context, c *call) error
}

// action returns the action that the first operand names; the command itself if it has no actions.
func (c *command) action(operands []string) *command {
	if len(operands) > 0 {
		for i := range c.actions {
			if c.actions[i].name == c.name+" "+operands[0] {
				return &c.actions[i]
			}
		}
	}
	return c
}

func (c *command) actionNames() string {
	names := make([]string, len(c.actions))
	for i := range c.actions {
		names[i] = strings.TrimPrefix(c.actions[i].name, c.name+" ")
	}
	last := len(names) - 1
	return "knows " + strings.Join(names[:last], ", ") + " and " + names[last]
}

// arity returns how many operands the command takes; most is -1 if it takes any number.
func (c *command) arity() (least, most int) {
	if c.lists != nil || strings.Contains(c.operands, "...") {
		most = -1
	}
	least = math.MaxInt
	for form := range strings.SplitSeq(c.operands, " | ") {
		words := strings.Fields(form)
		required := len(words)
		if optional := slices.IndexFunc(words, func(w string) bool { return w[0] == '[' }); optional >= 0 {
			required = optional
		}
		least = min(least, required)
		if most >= 0 {
			most = max(most, len(words))
		}
	}
	return least, most
}

// section is a group of commands on the help page.
type section struct {
	title    string
	commands []command
}

func sections() []section {
	return []section{
		{"Help", helpCommands()},
		{"Users", userCommands()},
		{"Access control", permissionCommands()},
		{"Queue policies", policyCommands()},
		{"Virtual hosts", vhostCommands()},
		{"Limits", limitCommands()},
		{"Parameters", parameterCommands()},
		{"Definitions", definitionCommands()},
		{"Queues", queueCommands()},
		{"Exchanges, bindings, consumers", topologyCommands()},
		{"Held messages", heldCommands()},
		{"Connections", connectionCommands()},
		{"Events", eventCommands()},
		{"Broker", slices.Concat(brokerCommands(), topCommands(), drainCommands(), watermarkCommands())},
		{"Cluster", clusterCommands()},
	}
}

// find returns the command with a name. If there is none, the error suggests similar names.
func find(name string) (*command, error) {
	var near []string
	for _, s := range sections() {
		for i, c := range s.commands {
			if c.name == name {
				return &s.commands[i], nil
			}
			near = append(near, c.name)
		}
	}
	if reason := absent(name); reason != "" {
		return nil, &failure{usageError, fmt.Sprintf("Error:\n%s does not exist here: %s", name, reason)}
	}
	text := fmt.Sprintf("\nCommand '%s' not found.", name)
	if n := config.Nearest(name, near); n != "" {
		text += fmt.Sprintf("\nDid you mean '%s'?", n)
	}
	return nil, &failure{usageError, text}
}

func commandNames() []string {
	var all []string
	for _, s := range sections() {
		for _, c := range s.commands {
			all = append(all, c.name)
		}
	}
	slices.Sort(all)
	return all
}

// usage returns the command's usage line.
func (p *Program) usage(c *command) string {
	words := []string{p.Name, c.name}
	if c.scoped {
		words = append(words, "[--vhost <vhost>]")
	}
	for _, o := range c.options {
		words = append(words, "["+o.synopsis()+"]")
	}
	if c.lists != nil {
		words = append(words, "[<column>, ...]")
	}
	if c.operands != "" {
		words = append(words, c.operands)
	}
	return strings.Join(words, " ")
}

func (o option) synopsis() string {
	s := "--" + o.long
	if o.short != "" {
		s += "|-" + o.short
	}
	if o.value != "" {
		s += " <" + o.value + ">"
	}
	return s
}
