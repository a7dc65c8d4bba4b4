package ctl

import (
	"context"
	"net/http"
)

func parameterCommands() []command {
	return []command{
		{
			name: "set_parameter", operands: "<component> <name> <value>", least: 3, most: 3, scoped: true, run: setParameter,
			about: "sets a runtime parameter of a virtual host; the value is JSON",
		},
		{
			name: "clear_parameter", operands: "<component> <name>", least: 2, most: 2, scoped: true, run: clearParameter,
			about: "removes a runtime parameter",
		},
		{
			name: "list_parameters", scoped: true, run: listParameters,
			about: "lists the runtime parameters of a virtual host",
		},
		{
			name: "set_global_parameter", operands: "<name> <value>", least: 2, most: 2, run: setGlobalParameter,
			about: "sets a runtime parameter of the broker; the value is JSON",
		},
		{
			name: "clear_global_parameter", operands: "<name>", least: 1, most: 1, run: clearGlobalParameter,
			about: "removes a runtime parameter of the broker",
		},
		{
			name: "list_global_parameters", run: listGlobalParameters,
			about: "lists the runtime parameters of the broker",
		},
	}
}

func setParameter(ctx context.Context, c *call) error {
	component, name := c.operands[0], c.operands[1]
	c.say("Setting runtime parameter \"%s\" for component \"%s\" to \"%s\" in vhost \"%s\" ...", name, component, c.operands[2], c.vhost())
	value, err := document(c.operands[2])
	if err != nil {
		return err
	}
	body := map[string]any{"vhost": c.vhost(), "component": component, "name": name, "value": value}
	if err := c.api.put(ctx, path("parameters", component, c.vhost(), name), body); err != nil {
		return instead(err, noVHost(c.vhost()))
	}
	return c.done()
}

func clearParameter(ctx context.Context, c *call) error {
	component, name := c.operands[0], c.operands[1]
	c.say("Clearing runtime parameter \"%s\" for component \"%s\" on vhost \"%s\" ...", name, component, c.vhost())
	if err := c.api.remove(ctx, path("parameters", component, c.vhost(), name)); err != nil {
		return instead(err, errNoParameter)
	}
	return c.done()
}

func listParameters(ctx context.Context, c *call) error {
	c.say("Listing runtime parameters for vhost \"%s\" ...", c.vhost())
	if err := c.needVHost(ctx); err != nil {
		return err
	}
	var all, here []object
	if err := c.api.get(ctx, path("parameters"), &all); err != nil {
		return err
	}
	for _, p := range all {
		if p.text("vhost") == c.vhost() {
			here = append(here, p)
		}
	}
	return c.showAll(here, column{name: "component"}, column{name: "name"}, column{name: "value", show: showText})
}

// needVHost fails when there is no such virtual host, for resources of the API that are empty then.
func (c *call) needVHost(ctx context.Context) error {
	err := c.api.get(ctx, path("vhosts", c.vhost())+"?columns=name", nil)
	switch {
	case isRefusal(err, http.StatusNotFound):
		return noVHost(c.vhost())
	case isRefusal(err, http.StatusUnauthorized), isRefusal(err, http.StatusForbidden):
		return nil // whoever may list things here need not see the virtual host itself
	}
	return err
}

func setGlobalParameter(ctx context.Context, c *call) error {
	name := c.operands[0]
	c.say("Setting global runtime parameter \"%s\" to \"%s\" ...", name, c.operands[1])
	value, err := document(c.operands[1])
	if err != nil {
		return err
	}
	if err := c.api.put(ctx, path("global-parameters", name), map[string]any{"name": name, "value": value}); err != nil {
		return err
	}
	return c.done()
}

func clearGlobalParameter(ctx context.Context, c *call) error {
	c.say("Clearing global runtime parameter \"%s\" ...", c.operands[0])
	if err := c.api.remove(ctx, path("global-parameters", c.operands[0])); err != nil {
		return instead(err, errNoParameter)
	}
	return c.done()
}

func listGlobalParameters(ctx context.Context, c *call) error {
	c.say("Listing global runtime parameters ...")
	var all []object
	if err := c.api.get(ctx, path("global-parameters"), &all); err != nil {
		return err
	}
	return c.showAll(all, column{name: "name"}, column{name: "value", show: showText})
}
