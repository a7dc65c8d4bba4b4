package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/config"
)

// command is one of rabbitmqctl's.
type command struct {
	name     string
	operands string // as the usage line shows them
	about    string // one line for help
	more     string // further lines for its own help page
	least    int    // operands
	most     int    // operands; -1 = any number
	scoped   bool   // it is about a virtual host, so its usage line shows --vhost
	lists    *known // the columns it can list, which its operands name
	options  []option
	patience time.Duration       // --timeout when none is given; 0 = for ever
	waits    bool                // it sees to --timeout itself
	offline  bool                // it does not call the API
	check    func(c *call) error // of the operands; nil = their number is all there is to check
	run      func(ctx context.Context, c *call) error
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
		{"Policies", policyCommands()},
		{"Virtual hosts", vhostCommands()},
		{"Limits", limitCommands()},
		{"Parameters", parameterCommands()},
		{"Definitions", definitionCommands()},
		{"Queues", queueCommands()},
		{"Exchanges, bindings, consumers", topologyCommands()},
		{"Connections", connectionCommands()},
		{"Events", eventCommands()},
		{"Broker", append(brokerCommands(), watermarkCommands()...)},
	}
}

// find looks a command up by name.
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

// usage is how a command is called.
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
